"""The run folder, and the choice of what to run next."""
