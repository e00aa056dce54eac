"""Rows as tables, a run as it is now, scores of trained models."""
