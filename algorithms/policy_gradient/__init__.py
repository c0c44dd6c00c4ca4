"""The policy-gradient trainer over the slots."""
