"""Training and evaluation of one model; independent of sweeps and Ray."""
