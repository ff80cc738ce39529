"""One trial in values: setup, worker, round loop, pools, checkpoints; no Ray."""
