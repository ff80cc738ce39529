"""Compares our round time with bare PyTorch on this machine."""
