"""Advantages, losses, aggregations, and the methods made of them."""
