"""Generated databases of businesses, and an environment in which an agent queries them."""
