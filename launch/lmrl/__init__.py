"""What `agentrl-bench lmrl` runs and prints."""
