"""A shop with WebShop's actions and reward (arXiv 2207.01206) over generated products."""
