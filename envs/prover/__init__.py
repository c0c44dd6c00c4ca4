"""A small prover of propositional logic, its theorems, and players and a planner that know it."""
