"""The run folder, and what to run next in it."""
