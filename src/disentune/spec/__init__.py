"""What a user asks for: sweep and search-space files, trials, settings."""
