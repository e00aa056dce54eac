"""Mathematics that the plug-ins and the loop share."""
