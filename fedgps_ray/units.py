"""Formats numbers for people."""


def percent(value: float | None) -> str:
    """Return 0.5 as 50.00 %, and None as a dash."""
    return "-" if value is None else f"{100 * value:.2f} %"


def size(num_bytes: float) -> str:
    """Return a number of bytes with a suitable unit."""
    for unit in ("B", "KB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"


def duration(seconds: float) -> str:
    """Return seconds as h:mm:ss or m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
