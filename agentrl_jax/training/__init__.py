"""The experiment config, sources of experience, the training loop and evaluation."""
