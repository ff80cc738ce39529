"""Our round time against bare PyTorch on this machine, measured side by side."""
