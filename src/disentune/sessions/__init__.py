"""Sessions of a run, and of a study with the runs that it needs, without the display: for the commands and Python."""
