"""Runs a sweep on Ray Tune."""
