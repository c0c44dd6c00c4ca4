"""A shop with WebShop's actions and reward (Yao et al., arXiv 2207.01206), over products of our own making."""
