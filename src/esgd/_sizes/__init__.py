"""Sizes that follow the clock or the ledger, and what sizes depend on. `esgd.sizes` has their names."""
