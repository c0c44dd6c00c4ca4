"""The tasks of LMRL-Gym (Abdulhai et al., arXiv 2311.18232), restated from their rules."""
