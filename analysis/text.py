"""Text from results folders, made safe for wherever it is printed.

A results folder may come from somebody else, so its titles, names and error messages are data:
control characters never get through, and whatever the notation would read as markup is escaped.
"""

import re
import unicodedata

TRIAL_ID = re.compile(r"[0-9a-f]{12}")
KEPT = "\n\t"  # control characters that are harmless in a block of text
WITHOUT_KEPT = str.maketrans("", "", KEPT)
# Control, format (such as reversed writing), surrogate and private characters, line separators.
HIDDEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
MARKDOWN = re.compile(r"([\\`*_{}\[\]|~])")
ENTITIES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})
# What makes a list, a heading or a rule of a line that starts with it.
OPENING = re.compile(r"^(\d+(?=[.)](?:\s|$))|[-+=#](?=[-+=#\s]|$))")
LINK = re.compile(r"://|www\.|@", re.IGNORECASE)  # the last one of a mail address


def clean(text: str) -> str:
    """Return text without control characters, but for line ends and tabs."""
    if text.isascii() and text.translate(WITHOUT_KEPT).isprintable():
        return text
    return "".join(
        sign if sign in KEPT or unicodedata.category(sign) not in HIDDEN else "�" for sign in text
    )


def one_line(text: str) -> str:
    """Return clean text with all white space as single spaces."""
    return " ".join(clean(text).split())


def markdown(text: str) -> str:
    """Return text as a line of its own in which Markdown finds no markup, HTML or link."""
    return OPENING.sub(_escaped_opening, inline_markdown(text))


def inline_markdown(text: str) -> str:
    """Return text for anywhere but the start of a line, such as a cell of a table."""
    plain = MARKDOWN.sub(r"\\\1", one_line(text)).translate(ENTITIES)
    return LINK.sub(_without_link, plain)


def _without_link(found: "re.Match[str]") -> str:
    """Return the part of an address by which it is known as one, so that it no longer is."""
    signs = {"://": r":\/\/", "@": "&#64;"}
    return signs.get(found[0], rf"{found[0][:-1]}\.")


def _escaped_opening(found: "re.Match[str]") -> str:
    """Return the start of a line with its first character as a number, which makes it text."""
    sign = found[1]
    return f"&#{ord(sign[0])};{sign[1:]}"


def fence(text: str) -> str:
    """Return a line of back quotes longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    return "`" * max(3, longest + 1)


def is_trial_id(text: str) -> bool:
    """Say whether this can be the id of a trial."""
    return TRIAL_ID.fullmatch(text) is not None
