"""Small diagnostic environments; each shows the effect of one piece of a published method."""
