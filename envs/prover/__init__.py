"""A small prover of propositional logic: theorems, scripted policies and a planner."""
