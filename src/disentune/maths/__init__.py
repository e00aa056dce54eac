"""Mathematics shared by the plug-ins and the training loop."""
