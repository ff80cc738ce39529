"""Federated-learning experiments under data heterogeneity."""
