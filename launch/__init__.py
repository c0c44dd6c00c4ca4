"""Commands: they parse arguments and make one call."""
