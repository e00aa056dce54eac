"""Rows as tables, the current state of a run, scores of trained models."""
