"""Training sequences, packed batches, sharded updates, the optimizer, checkpoints."""
