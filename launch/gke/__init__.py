"""Kubernetes on Google Cloud with JobSet: `agentrl-gke`."""
