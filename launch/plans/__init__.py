"""What `agentrl-plan` finds out."""
