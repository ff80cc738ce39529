"""The outside code of trials: kept beside the results, and when a folder may have it imported."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from fedgps_ray.errors import UserError
from fedgps_ray.identity import Settings
from fedgps_ray.loading import load
from fedgps_ray.references import Code, Found, digest, give, give_own, is_noted, own_files
from fedgps_ray.results import files

FOLDER = "code"
PARTS = ("method", "model", "dataset")
NETWORKS = "torchvision.models"  # whose functions a folder may have called
DOWNLOADS = ("weights", "weights_backbone", "pretrained", "pretrained_backbone")
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


class Asked(NamedTuple):
    """Code that stored settings ask for: what it is for, its options, and which code."""

    part: str
    options: Settings
    code: Code


def codes(settings: Settings) -> Iterator[Asked]:
    """Yield the outside code that stored settings name."""
    for part in PARTS:
        table = settings.get(part)
        if isinstance(table, Mapping) and "code" in table:
            options = table.get("options", {})
            more = options if isinstance(options, Mapping) else {}
            code = Code.from_table(str(table.get("name")), table["code"])
            yield Asked(part, {**table, **more}, code)


def admit(settings: Settings, folders: Sequence[Path], trust: bool = False) -> list[str]:
    """Allow the code of stored settings to be imported, or refuse; return from where it comes.

    A results folder is not allowed to bring code along: what is imported is in the user's own
    record, and in the user's own file still the same. folders: where copies may be kept.
    """
    return [_admitted(asked, folders, trust) for asked in codes(settings)]


def _admitted(asked: Asked, folders: Sequence[Path], trust: bool) -> str:
    code = asked.code
    if code.package is not None:
        if not trust:
            _check_installed(asked)
        give(Found(code, {}))
        return f"{code.target} is imported from the installed package {code.package} {code.version}"
    copy, sources = _kept(code, folders)
    own, problem = _own_file(code, sources)
    if problem is not None and not trust:
        raise UserError(f"{problem}; the code that the trial was made with is in {copy}: {TRUST}")
    if problem is None:
        give(Found(code, sources))
    else:
        give_own(Found(code, sources), (copy / code.place).resolve())
    return f"{code.target} is imported from {own if problem is None else copy}"


# --- code in files --------------------------------------------------------------------------------


def _kept(code: Code, folders: Sequence[Path]) -> tuple[Path, dict[str, str]]:
    """Return the kept copy of code and its texts, checked against the hash."""
    for folder in folders:
        own = _place(folder, code)
        files.refuse_link(own.parent)
        files.refuse_link(own)
        if own.is_dir():
            paths = sorted(path for path in own.rglob("*.py") if path.is_file())
            texts = {path.relative_to(own).as_posix(): _text(path) for path in paths}
            if digest(code.place, texts) == code.sha256:
                return own, texts
            raise UserError(f"{own} was changed: it is not the code that the trial was made with")
    raise UserError(
        f"the code of {code.target} is not in {folders[0] / FOLDER}; start the trial again with its"
        " command or its experiment file"
    )


def _text(path: Path) -> str:
    try:
        return files.read_bytes(path).decode()
    except (OSError, ValueError) as problem:
        raise UserError(f"{path} cannot be read: {problem}") from None


def _own_file(code: Code, sources: Mapping[str, str]) -> tuple[Path | None, str | None]:
    """Return the user's own file if it still has this code, else what the matter is."""
    problems = [f"there is no file of yours with the code of {code.target}"]
    for file in own_files(code):
        problem = _difference(code, file, sources)
        if problem is None:
            return file, None
        problems.append(problem)
    return None, problems[-1]


def _difference(code: Code, own: Path, sources: Mapping[str, str]) -> str | None:
    """Say in what the user's files differ from the code of a trial, or None if they do not."""
    depth = code.place.count("/")
    if not own.is_file() or len(own.parents) <= depth:
        return f"there is no file of yours with the code of {code.target} at {own}"
    for path, text in sources.items():
        file = own.parents[depth] / path
        if not file.is_file() or file.read_bytes().decode(errors="replace") != text:
            return f"{file} differs from the code that the trial was made with"
    return None


# --- code of installed packages -------------------------------------------------------------------


def _check_installed(asked: Asked) -> None:
    """Refuse what a stranger's folder could do harm with; nothing is imported to find out."""
    code = asked.code
    own = is_noted(code) and code.package != "python"
    if not own and not (asked.part == "model" and _is_network(code)):
        raise UserError(
            f"{code.target} is code of an installed package, which you have not used yourself and"
            f" a results folder may not have called; {TRUST}"
        )
    wanted = [name for name in DOWNLOADS if asked.options.get(name)]
    if wanted and code.place.startswith("torchvision"):
        raise UserError(
            f"{code.target} with {wanted[0]} would download, which a results folder may not have"
            f" done; {TRUST}"
        )


def _is_network(code: Code) -> bool:
    """Say whether it is a function of torchvision that makes a network and nothing else."""
    if code.package != "torchvision" or code.place != NETWORKS:
        return False
    return code.attribute in load(f"{NETWORKS}:list_models")(module=load("torchvision:models"))
