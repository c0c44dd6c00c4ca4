"""Device formulas of a policy-gradient step: policy losses, importance weights, regularizers."""
