"""Clusters: jobs and their supervisor, checks, pre-emption."""
