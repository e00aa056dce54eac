"""Figures and pages, made only from rows."""
