"""Ray Tune's edge: a sweep carried out on Ray."""
