"""How this process gets memory for tensors on the CPU."""

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # names of settings, in glibc's malloc.h
LARGE = 1 << 27  # bytes; larger blocks still go back to the system when they are freed


def keep_freed() -> bool:
    """Let the C library keep what is freed for the next tensors; say whether it does.

    A training step of a small convolution frees hundreds of megabytes. Given back to the system,
    they have to be mapped and filled with zeros again in the next step, which takes up to a fifth
    of its time.
    """
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # not every C library has it
    if mallopt is None:
        return False
    return all([mallopt(MMAP_THRESHOLD, LARGE), mallopt(TRIM_THRESHOLD, 2 * LARGE)])
