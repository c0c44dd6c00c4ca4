"""What `agentrl-bench` measures, one module a bench, and how a rival's process is measured beside it."""
