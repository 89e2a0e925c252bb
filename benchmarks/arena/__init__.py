"""The arena: every rule of `esgd.rules` on the same tasks, with the same work, paired by seed."""
