"""Formats numbers and texts for people."""

import re
from typing import Any

# what moves the cursor, changes colours or the direction of writing, or cannot be written at all
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ufeff"
    "\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Return a text that only shows itself in a terminal: control characters become a mark."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


_FORMULA = ("=", "+", "@", "\t", "\n")


def cell(value: Any) -> Any:
    """Return what a CSV file may hold: a text that a spreadsheet would take for a formula quoted.

    A minus alone stands for nothing, and before a number it is a number's. A return, which would
    begin another line, is among the characters that are marked.
    """
    if not isinstance(value, str):
        return value
    text = printable(value)
    minus = text.startswith("-") and text != "-" and not _is_number(text)
    return f"'{text}" if minus or text.startswith(_FORMULA) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def is_text(text: str) -> bool:
    """Say whether a text can be written: it holds no halves of characters, and no zero byte."""
    return "\0" not in text and not any("\ud800" <= sign <= "\udfff" for sign in text)


def percent(value: float | None) -> str:
    """Return 0.5 as 50.00 %, and None as a dash."""
    return "-" if value is None else f"{100 * value:.2f} %"


def size(num_bytes: float) -> str:
    """Return a number of bytes with a suitable unit."""
    for unit in ("B", "KB", "MB", "GB"):
        if num_bytes < 999.5:  # more would be rounded to 1e+03
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"


def duration(seconds: float) -> str:
    """Return seconds as h:mm:ss or m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
