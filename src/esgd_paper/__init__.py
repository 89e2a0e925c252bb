"""The paper's four experiments, each in one file: network, data, recipe, metric."""
