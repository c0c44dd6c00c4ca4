"""The benchmarks of `agentrl-bench`."""
