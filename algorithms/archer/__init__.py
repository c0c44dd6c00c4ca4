"""ArCHer: utterance-level critics over a token-level policy."""
