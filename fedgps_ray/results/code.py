"""The outside code of trials: kept beside the results, and when a folder may have it imported."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedgps_ray.errors import UserError
from fedgps_ray.identity import Settings
from fedgps_ray.references import Code, Found, digest, give, load
from fedgps_ray.results import files

FOLDER = "code"
PARTS = ("method", "model", "dataset")
CALLED = ("torchvision.models",)  # installed functions that a folder may have called
TRUST = "if you trust this code, --trust-code runs it"


def keep(folder: Path, code: Iterable[Found]) -> None:
    """Write the sources beside the results, in a folder named by their hash."""
    for origin in code:
        own = _place(folder, origin.code)
        for path, text in origin.sources.items():
            if not (own / path).exists():
                _make(folder, (own / path).parent)
                files.write(own / path, lambda beside, text=text: _put(beside, text))  # type: ignore[misc]


def _make(folder: Path, wanted: Path) -> None:
    """Make a folder inside a results folder, with those on the way to it, none of them a link."""
    for name in reversed(wanted.relative_to(folder).parents[:-1]):
        files.folder(folder / name)
    files.folder(wanted)


def _put(path: Path, text: str) -> None:
    path.write_bytes(text.encode())


def _place(folder: Path, code: Code) -> Path:
    return folder / FOLDER / code.sha256[:12]


def codes(settings: Settings) -> Iterator[Code]:
    """Yield the outside code that stored settings name."""
    for part in PARTS:
        table = settings.get(part)
        if isinstance(table, Mapping) and "code" in table:
            yield Code.from_table(str(table.get("name")), table["code"])


def admit(
    settings: Settings,
    folders: Sequence[Path],
    where: Mapping[str, str],
    trust: bool = False,
) -> list[str]:
    """Allow the code of stored settings to be imported, or refuse; return from where it comes.

    A results folder is not allowed to bring code along: it is imported from the user's own file if
    that is still the same. folders: where copies may be kept. where: content hash -> path.
    """
    return [_admitted(code, folders, where, trust) for code in codes(settings)]


def _admitted(code: Code, folders: Sequence[Path], where: Mapping[str, str], trust: bool) -> str:
    if code.package is not None:
        _check_installed(code, trust)
        give(Found(code, {}))
        return f"{code.name} is imported from the installed package {code.package} {code.version}"
    copy, sources = _kept(code, folders)
    own = _own_file(code, folders, where)
    problem = _difference(code, own, sources)
    if problem is not None and not trust:
        raise UserError(f"{problem}; the code that the trial was made with is in {copy}: {TRUST}")
    give(Found(code, sources))
    return f"{code.name} is imported from {own if problem is None else copy}"


def _kept(code: Code, folders: Sequence[Path]) -> tuple[Path, dict[str, str]]:
    """Return the kept copy of code and its texts, checked against the hash."""
    for folder in folders:
        own = _place(folder, code)
        if own.is_dir():
            paths = sorted(path for path in own.rglob("*.py") if path.is_file())
            texts = {p.relative_to(own).as_posix(): p.read_bytes().decode() for p in paths}
            if digest(code.place, texts) == code.sha256:
                return own, texts
            raise UserError(f"{own} was changed: it is not the code that the trial was made with")
    raise UserError(
        f"the code of {code.name} is not in {folders[0] / FOLDER}; start the trial again with its"
        " command or its experiment file"
    )


def _own_file(code: Code, folders: Sequence[Path], where: Mapping[str, str]) -> Path | None:
    """Return the user's own file; a path that leads into the results folder is not one."""
    path = Path(where.get(code.sha256, ""))
    inside = any(folder.resolve() in path.resolve().parents for folder in folders)
    return path if path.is_absolute() and not inside else None


def _difference(code: Code, own: Path | None, sources: Mapping[str, str]) -> str | None:
    """Say in what the user's files differ from the code of a trial, or None if they do not."""
    if own is None or not own.is_file():
        lacking = "" if own is None else f" at {own}"
        return f"there is no file of yours with the code of {code.name}{lacking}"
    depth = code.place.count("/")
    for path, text in sources.items():
        file = own.parents[depth] / path
        if not file.is_file() or file.read_bytes().decode(errors="replace") != text:
            return f"{file} differs from the code that the trial was made with"
    return None


def _check_installed(code: Code, trust: bool) -> None:
    """Refuse what a stranger's folder could do harm with: calling any function with any options."""
    if trust or code.place.startswith(CALLED):
        return
    if code.package == "python" or not _is_harmless(load(code, {})):
        raise UserError(
            f"{code.target} is a function of an installed package, which a results folder may not"
            f" have called; {TRUST}"
        )


def _is_harmless(imported: Any) -> bool:
    """Say whether it is a class of networks or of methods."""
    torch = sys.modules.get("torch")
    is_network = torch is not None and isinstance(imported, type)
    if is_network and issubclass(imported, torch.nn.Module):  # type: ignore[union-attr]
        return True
    return isinstance(imported, type) and all(
        hasattr(imported, name) for name in ("init", "send", "work", "merge", "global_params")
    )
