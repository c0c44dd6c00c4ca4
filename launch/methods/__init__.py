"""What `agentrl-bench methods` compares."""
