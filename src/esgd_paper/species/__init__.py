"""Optimizers as the paper's experiments draw and anneal them."""
