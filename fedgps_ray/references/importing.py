"""Imports the user's code from its text, under the same module name in every process."""

import builtins
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import linecache
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

from fedgps_ray.errors import UserError, nearest
from fedgps_ray.references.code import Code, digest, never_local
from fedgps_ray.references.failures import PREFIX, failed
from fedgps_ray.references.installed import file_digest, locate, package_of


def load(code: Code, sources: Mapping[str, str]) -> Any:
    """Import what a reference means; this runs the user's code."""
    module = _installed(code) if code.package is not None else _kept(code, sources)
    return _callable(_attribute(module, code), code)


def _kept(code: Code, sources: Mapping[str, str]) -> ModuleType:
    if code.place not in sources or digest(code.place, sources) != code.sha256:
        raise UserError(f"the code of {code.name} is not the code that this trial was made with")
    importer = Importer(code, sources)
    if not any(isinstance(f, Importer) and f.package == importer.package for f in sys.meta_path):
        sys.meta_path.append(importer)
    return _imported(importer.module_name(code.place), code)


def _installed(code: Code) -> ModuleType:
    file, package = locate(code.place), package_of(code.place)
    needed = f"{code.name} needs the package {code.package} {code.version}"
    if file is None or package is None:
        raise UserError(f"{needed}, which is not installed here")
    if package != (code.package, code.version) or file_digest(file) != code.sha256:
        here = " ".join(package)
        raise UserError(f"{needed} as it was when the trial was made; here is {here}")
    return _imported(code.place, code)


def _imported(module: str, code: Code) -> ModuleType:
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as problem:  # the user's code can raise anything
        raise failed(f"{code.name} cannot be imported", problem) from None


def _attribute(module: ModuleType, code: Code) -> object:
    value: Any = module
    for part in code.attribute.split("."):
        if not hasattr(value, part):
            names = [name for name in dir(value) if not name.startswith("_")]
            own = [
                n for n in names if getattr(getattr(value, n), "__module__", "") == module.__name__
            ]
            listed = f" It defines: {', '.join(own)}" if own and code.package is None else ""
            where = code.name.rpartition(":")[0] or code.place
            raise UserError(f"{where} has no '{part}'.{nearest(part, names)}{listed}")
        value = getattr(value, part)
    return value


def _callable(value: object, code: Code) -> object:
    if not callable(value):
        kind = type(value).__name__
        raise UserError(f"{code.name} is neither a class nor a function, but a value ({kind})")
    return value


class Importer(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds and runs the modules of one set of sources; nothing is written to disk.

    The sources form a package that is named by their hash, so that classes have the same name in
    every process. `import helper` in one of them means the helper.py among them.
    """

    def __init__(self, code: Code, sources: Mapping[str, str]) -> None:
        self.package = f"{PREFIX}{code.sha256[:12]}"
        self.sources = dict(sources)
        self.home = code.place.rpartition("/")[0]
        self.builtins = {**vars(builtins), "__import__": self._import}

    def module_name(self, path: str) -> str:
        """Return the name of the module that a file is imported as."""
        parts = path.removesuffix(".py").removesuffix("__init__").strip("/").split("/")
        return ".".join([self.package, *(part for part in parts if part)])

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Answer Python's question for a module."""
        if fullname.partition(".")[0] != self.package or not self._exists(fullname):
            return None
        spec = importlib.util.spec_from_loader(fullname, self, is_package=self.is_package(fullname))
        if spec is not None:
            spec.origin, spec.has_location = self.get_filename(fullname), True
        return spec

    def _path(self, fullname: str) -> str:
        return fullname.removeprefix(self.package).strip(".").replace(".", "/")

    def _exists(self, fullname: str) -> bool:
        return f"{self._path(fullname)}.py" in self.sources or self.is_package(fullname)

    def is_package(self, fullname: str) -> bool:
        """Say whether a module is a folder."""
        folder = f"{self._path(fullname)}/".lstrip("/")
        return any(path.startswith(folder) for path in self.sources) and (
            f"{folder}__init__.py" in self.sources
            or f"{self._path(fullname)}.py" not in self.sources
        )

    def _file(self, fullname: str) -> str:
        path = self._path(fullname)
        return f"{path}/__init__.py".lstrip("/") if self.is_package(fullname) else f"{path}.py"

    def get_filename(self, fullname: str) -> str:
        """Return the file as tracebacks show it."""
        return f"{self.package}/{self._file(fullname)}"

    def get_source(self, fullname: str) -> str:
        """Return the text of a module; that of a folder without __init__.py is empty."""
        return self.sources.get(self._file(fullname), "")

    def exec_module(self, module: ModuleType) -> None:
        """Run the user's module."""
        text, filename = self.get_source(module.__name__), self.get_filename(module.__name__)
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        vars(module)["__builtins__"] = self.builtins
        exec(compile(text, filename, "exec", dont_inherit=True), vars(module))

    def _import(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Stand in for Python's own __import__ in the user's modules."""
        folder = None if level else self._folder_of(name.partition(".")[0])
        if folder is None:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        module = importlib.import_module(f"{folder}.{name}")
        if fromlist:
            return builtins.__import__(module.__name__, globals, locals, fromlist, 0)
        return sys.modules[f"{folder}.{name.partition('.')[0]}"]

    def _folder_of(self, top: str) -> str | None:
        """Return the package in which a module lies that is imported by its plain name."""
        if never_local(top):
            return None
        folders = [self.module_name(self.home), self.package]
        return next((folder for folder in folders if self._exists(f"{folder}.{top}")), None)
