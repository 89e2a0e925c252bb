"""The parts of `fit()`."""
