"""The training loop, gradients, losses and evaluation."""
