"""Training and evaluating one model; knows nothing of sweeps or Ray."""
