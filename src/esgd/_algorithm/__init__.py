"""The parts of `evolve()`, one for each place where Algorithm 1 says in a line what needs a page."""
