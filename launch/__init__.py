"""Commands and launchers: they parse arguments and make one call."""
