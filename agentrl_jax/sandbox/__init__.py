"""A sandbox for code that a policy wrote (docs/sandbox.md)."""
