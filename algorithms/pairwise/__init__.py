"""Learning from pairs: REFUEL, REBEL, DPO, Bradley-Terry reward models."""
