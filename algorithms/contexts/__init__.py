"""Context managers: the part of the history that the policy sees, and its notes."""
