"""TPU VMs with gcloud: `agentrl-tpu`."""
