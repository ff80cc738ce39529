"""Our training step against the same step written by hand in PyTorch, side by side."""


def step_ratio() -> dict[str, str]:
    """Placeholder until measured."""
    raise NotImplementedError
