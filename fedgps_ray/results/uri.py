"""URIs of storages as they may be shown: without keys, passwords and signatures."""

import re
from collections.abc import Iterator
from urllib.parse import unquote

HIDDEN = "***"
HARMLESS = {  # options whose values are shown; of all others only the name is
    "allow_bucket_creation",
    "allow_bucket_deletion",
    "endpoint_override",
    "region",
    "replication",
    "scheme",
}
_SCHEMES = ("file", "s3", "gs", "gcs", "hdfs", "viewfs", "abfs", "abfss")
_URI = re.compile(r"(?s)([A-Za-z][A-Za-z0-9+.-]*)://([^?]*)(?:\?(.*))?")
_LOGIN = re.compile(r"(?s).*(@|%40)")  # a raw secret may have any character, also / and @
_PORT = re.compile(r"[^:]*(:\d*)?|\[[^\]]*\](:\d*)?")
_OPTION = re.compile(r"[A-Za-z_]{1,40}=[^@]*")
_ENDPOINT = re.compile(r"(?s)((?:https?://)?)(?:.*@)?([\w.:\[\]/-]*)")


def redacted(uri: str) -> str:
    """Return a URI without what may be secret in it; of one that is unclear only the scheme."""
    if not set(uri) & set("@:?%"):
        return uri  # a path
    found = _URI.fullmatch(uri)
    shown = None if found is None else _parts(*found.groups(default=""))
    return _scheme(uri) + HIDDEN if shown is None else shown


def _parts(scheme: str, place: str, query: str) -> str | None:
    """Return a URI without its login and its options' secrets; None if it is not clear."""
    login = _LOGIN.match(place)
    bare = f"{HIDDEN}@{place[login.end() :]}" if login else place
    options = [_option(text) for text in query.split("&")] if query else []
    if not _PORT.fullmatch(bare.partition("/")[0]) or None in options:
        return None
    return f"{scheme}://{bare}" + ("?" + "&".join(map(str, options)) if options else "")


def _option(text: str) -> str | None:
    """Return an option as it may be shown; None if it is none, but perhaps part of a secret."""
    name, _, value = text.partition("=")
    if name == "endpoint_override":
        found = _ENDPOINT.fullmatch(unquote(unquote(value)))
        return f"{name}={found[1]}{found[2]}" if found else f"{name}={HIDDEN}"
    if not _OPTION.fullmatch(text):
        return None
    return text if name in HARMLESS else f"{name}={HIDDEN}"


def _scheme(uri: str) -> str:
    scheme = uri.partition(":")[0].lower()
    return f"{scheme}:" if scheme in _SCHEMES else ""


def without_secrets(text: str, uri: str) -> str:
    """Return what a library says about a URI, without what is secret in the URI."""
    shown = redacted(uri)
    text = text.replace(uri, shown)
    for piece in sorted(_pieces(uri, shown), key=len, reverse=True):
        text = text.replace(piece, HIDDEN)
    return text


def _pieces(uri: str, shown: str) -> Iterator[str]:
    """Yield the parts of a URI that are not shown of it, as written and decoded."""
    known = set(re.split(r"[/:@?&=]", shown))
    for text in (uri, unquote(uri)):
        for piece in re.split(r"[/:@?&=\s]", text):
            if len(piece) > 1 and piece not in known:
                yield piece
