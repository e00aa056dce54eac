"""The Weights & Biases edge."""
