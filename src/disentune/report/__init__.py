"""Figures and pages made from rows alone."""
