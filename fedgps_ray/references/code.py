"""The values that stand for code: what identifies it, and its text."""

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fedgps_ray.errors import UserError

Kind = Literal["method", "model", "dataset"]
SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class Code:
    """Which code a reference means; nothing in it depends on where the file is."""

    name: str  # as it is shown: "my_net.py:Net", "torchvision.models:resnet18", "my_entry_point"
    target: str  # "folder/my_net.py:Net" within the sources, or "package.module:Net" if installed
    sha256: str  # of all sources, or of the module's file if it is installed
    package: str | None = None  # the distribution that must be installed; None: sources are kept
    version: str | None = None

    @property
    def table(self) -> dict[str, str]:
        """What a trial's settings say about the code, beside its name."""
        told = {"target": self.target, "sha256": self.sha256}
        if self.package is not None:
            told |= {"package": self.package, "version": str(self.version)}
        return told

    @classmethod
    def from_table(cls, name: str, table: object) -> "Code":
        """Return the code that a trial's settings name."""
        if not isinstance(table, Mapping) or not all(isinstance(v, str) for v in table.values()):
            raise UserError(f"the code of {name} must be a table of texts, got {table!r}")
        needed, more = {"target", "sha256"}, {"package", "version"}
        if set(table) not in (needed, needed | more):
            raise UserError(f"the code of {name} must have target and sha256, got {sorted(table)}")
        if not SHA256.fullmatch(table["sha256"]):
            raise UserError(f"the code of {name} must have a sha256, got {table['sha256']!r}")
        return cls(name, **table)

    @property
    def place(self) -> str:
        """The file or the module."""
        return self.target.rpartition(":")[0]

    @property
    def attribute(self) -> str:
        """The name within it."""
        return self.target.rpartition(":")[2]


class Found(NamedTuple):
    """A reference that was read: its identity, and the text of each file by its relative path."""

    code: Code
    sources: dict[str, str]


@dataclass(frozen=True)
class Bundle:
    """All code of a trial on its way to another process; Tune would look into a plain tuple."""

    found: tuple[Found, ...] = ()


def digest(entry: str, sources: Mapping[str, str]) -> str:
    """Return the hash of a file and of all that it imports from beside it."""
    text = json.dumps([entry, sorted(sources.items())])
    return hashlib.sha256(text.encode()).hexdigest()


def never_local(top: str) -> bool:
    """Say whether a module of this name is not looked for beside the user's file."""
    return top == "fedgps_ray" or top in sys.builtin_module_names
