"""Clusters: jobs, their supervisor, checks, pre-emption."""
