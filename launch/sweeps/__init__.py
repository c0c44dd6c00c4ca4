"""What `agentrl-sweep` runs and prints."""
