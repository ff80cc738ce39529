"""The text of a file and of the modules beside it that it imports, found without running them."""

import ast
import importlib.util
import os
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from fedgps_ray.errors import UserError
from fedgps_ray.references.code import never_local
from fedgps_ray.references.failures import failed

INIT = "__init__.py"


class Sources(NamedTuple):
    """The path of a file within its sources, and all of them."""

    entry: str
    texts: dict[str, str]


class Import(NamedTuple):
    """One import statement: the module, the names taken from it, and the number of leading dots."""

    parts: tuple[str, ...]
    names: tuple[str, ...]
    level: int


def collect(file: Path, shown: str, root: Path | None = None) -> Sources:
    """Return a file and what it imports from its own folder, its package or root."""
    closure = _Closure(file.resolve(), root)
    closure.add(file.resolve(), shown)
    base = Path(os.path.commonpath(closure.folders))
    texts = {path.relative_to(base).as_posix(): text for path, text in closure.texts.items()}
    return Sources(file.resolve().relative_to(base).as_posix(), texts)


def read_text(file: Path, shown: str) -> str:
    """Return a Python file as text, in the encoding that it declares."""
    try:
        with tokenize.open(file) as stream:
            return stream.read()
    except (OSError, SyntaxError, UnicodeDecodeError) as problem:
        raise UserError(f"{shown} cannot be read: {problem}") from None


def parse(text: str, shown: str) -> ast.Module:
    """Return the syntax tree; a syntax error is shown as Python shows it."""
    try:
        return ast.parse(text, shown)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as problem:
        # ValueError: a null byte; the last two: nested too deeply for Python
        raise failed(f"{shown} is not valid Python", problem) from None


class _Closure:
    def __init__(self, entry: Path, root: Path | None) -> None:
        self.home = entry.parent
        self.root = root.resolve() if root else None
        self.folders = {self.home}
        self.texts: dict[Path, str] = {}

    def add(self, file: Path, shown: str) -> None:
        """Take in a file and, after it, what it imports."""
        if file in self.texts:
            return
        self.texts[file] = read_text(file, shown)
        for wanted in _imports(parse(self.texts[file], shown)):
            for path in self._absolute(wanted) if not wanted.level else self._near(file, wanted):
                self.folders.add(path.parent)
                self.add(path, path.name)

    def _absolute(self, wanted: Import) -> list[Path]:
        top = wanted.parts[0]
        if never_local(top):
            return []
        folder = next((path for path in self._search(top) if _has(path, top)), None)
        return [] if folder is None else self._reach(folder, _files(folder, wanted))

    def _search(self, top: str) -> list[Path]:
        """Return where a plain name is looked for: as Python does for a script or a package."""
        if self.root is not None:
            return [self.root]
        packages = [p for p in (self.home, *self.home.parents) if (p / INIT).is_file()]
        return [self.home, *(p.parent for p in packages if p.name == top)]

    def _near(self, file: Path, wanted: Import) -> list[Path]:
        """Resolve a relative import."""
        if wanted.level > len(file.parents):
            return []
        folder = file.parents[wanted.level - 1]
        own = [folder / INIT] if (folder / INIT).is_file() else []
        return self._reach(folder, [*own, *_files(folder, wanted)])

    def _reach(self, folder: Path, files: list[Path]) -> list[Path]:
        """Let modules be named from this folder on; add the packages down to the first file."""
        if not files:
            return []
        self.folders.add(folder)
        between = [p for p in (self.home, *self.home.parents) if folder in p.parents]
        return [*(p / INIT for p in between if (p / INIT).is_file()), *files]


def _imports(tree: ast.Module) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(tuple(alias.name.split(".")), (), 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = tuple(node.module.split(".")) if node.module else ()
            yield Import(parts, tuple(alias.name for alias in node.names), node.level)


def _has(folder: Path, top: str) -> bool:
    """Say whether `import top` means something in this folder.

    As for Python itself, a folder without __init__.py yields to an installed package of that name.
    """
    if (folder / f"{top}.py").is_file() or (folder / top / INIT).is_file():
        return True
    return (folder / top).is_dir() and not _is_installed(top)


def _is_installed(top: str) -> bool:
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # a module that was put together by hand, such as __main__
        return True
    return spec is not None and spec.origin is not None


def _files(folder: Path, wanted: Import) -> list[Path]:
    """Return the files of a dotted module below a folder, and of the modules taken from it."""
    files: list[Path] = []
    for part in wanted.parts:
        files += _module(folder, part)
        folder = folder / part
    for name in wanted.names:
        files += _module(folder, name)
    return files


def _module(folder: Path, name: str) -> Sequence[Path]:
    """Return the file of one module; a package wins over a file, as for Python itself."""
    candidates = (folder / name / INIT, folder / f"{name}.py")
    return [path for path in candidates if path.is_file()][:1]
