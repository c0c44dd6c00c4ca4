"""The cost of compiled programs: TPU topologies, chip rates, collectives, FLOPs."""
