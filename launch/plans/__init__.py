"""Compiling and costing programs for `agentrl-plan`."""
