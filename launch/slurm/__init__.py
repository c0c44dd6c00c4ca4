"""GPU clusters with Slurm: `agentrl-slurm`."""
