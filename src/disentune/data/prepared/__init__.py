"""Public data files turned into arrays, once per node."""
