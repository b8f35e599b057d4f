"""The cost laws of protocols, messages and networks, and the profiles that hold their constants."""
