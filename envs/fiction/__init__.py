"""Interactive fiction of our own, in the manner of the Detective game that ArCHer plays (arXiv
2402.19446).
"""
