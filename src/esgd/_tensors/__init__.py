"""Tensors as they lie in memory, in batches of any structure, and averaged on the way."""
