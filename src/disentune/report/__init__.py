"""Figures and pages, made only from rows."""

from pathlib import Path

SHARED_STYLE = Path(__file__).with_name("colours.css")
"""What the page of a run and the dashboard have in common."""
