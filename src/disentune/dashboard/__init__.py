"""The local web page of all runs below a storage. It reads and never writes, and runs no code that a run names."""
