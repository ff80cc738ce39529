"""Experiment files: quickstart, smoke, an example of a search, and the paper's tables."""
