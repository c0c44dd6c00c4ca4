"""Context managers: which part of the history the policy sees, and what it writes for itself before it acts."""
