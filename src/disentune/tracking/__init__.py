"""Streams runs to Weights & Biases."""
