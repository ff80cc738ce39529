"""From a class or function in Python to the code that defines it."""

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fedgps_ray.errors import UserError
from fedgps_ray.references.closure import collect
from fedgps_ray.references.code import Code, Found, Kind, digest
from fedgps_ray.references.installed import package_of
from fedgps_ray.references.reading import read, root_of
from fedgps_ray.references.registry import found_of, give_own

MAIN = "__main__"


def found_in(value: object, kind: Kind) -> Found:
    """Return the code of a class or function, which is read from its file or notebook."""
    known = found_of(value)
    if known is not None:
        return known
    name, module = getattr(value, "__qualname__", ""), getattr(value, "__module__", None)
    if not name or module is None or "<" in name:
        raise UserError(
            f"{name or value!r} cannot be sent to other processes as a {kind}: define it at the"
            " top level of a file or a notebook"
        )
    if module == MAIN:
        return _main(name)
    if package_of(module) is not None:
        return read(f"{module}:{name}", kind)
    return _of_file(value, module, name)


def give_object(value: object, kind: Kind) -> Code:
    """Allow the code of a class or function to be imported: who has it in Python named it."""
    return give_own(found_in(value, kind), _own_file(value))


def _own_file(value: Any) -> Path | None:
    """Return the file of the user's that defines a class or function, if one does."""
    if found_of(value) is not None or getattr(value, "__module__", MAIN) == MAIN:
        return None
    try:
        file = Path(inspect.getsourcefile(value) or "")
    except TypeError:  # a function that is not written in Python
        return None
    return file.resolve() if file.is_file() else None


def _of_file(value: Any, module: str, name: str) -> Found:
    file = Path(inspect.getsourcefile(value) or "")
    if not file.is_file():
        raise UserError(f"{module}:{name}: there is no file with its source")
    sources = collect(file, file.name, root=root_of(file, module))
    return Found(
        Code(f"{file.name}:{name}", f"{sources.entry}:{name}", digest(*sources)), sources.texts
    )


def _main(name: str) -> Found:
    """Return a definition of the running script or notebook, with what it needs of the rest.

    The whole cannot be imported again: that would run it again.
    """
    main = sys.modules[MAIN]
    file = getattr(main, "__file__", None)
    title = Path(file).name if file else "notebook.py"
    cells = [Path(file).read_text()] if file else list(vars(main).get("In", []))
    text = excerpt([tree for cell in cells for tree in _parsed(cell)], name.partition(".")[0])
    if file is not None:
        return _script(Path(file), text, name)
    return Found(
        Code(f"{title}:{name}", f"{title}:{name}", digest(title, {title: text})), {title: text}
    )


def _script(file: Path, text: str, name: str) -> Found:
    """Return the excerpt of a script with the modules beside it."""
    sources = collect(file, file.name)
    texts = {**sources.texts, sources.entry: text}
    code = Code(f"{file.name}:{name}", f"{sources.entry}:{name}", digest(sources.entry, texts))
    return Found(code, texts)


def _parsed(cell: str) -> list[ast.stmt]:
    try:
        return ast.parse(cell).body
    except SyntaxError:  # a cell with commands of the notebook, or with a mistake
        return []


def excerpt(statements: list[ast.stmt], name: str) -> str:
    """Return the statements that define a name, and those that define what it uses, in order."""
    defined: dict[str, ast.stmt] = {}
    for statement in statements:
        for bound in _bound(statement):
            defined[bound] = statement
    if name not in defined:
        raise UserError(f"the source of {name} cannot be found; put it into a file")
    needed: list[ast.stmt] = []
    todo = [name]
    while todo:
        used = defined.get(todo.pop())
        if used is not None and used not in needed:
            needed.append(used)
            todo += [node.id for node in ast.walk(used) if isinstance(node, ast.Name)]
    future = [s for s in statements if isinstance(s, ast.ImportFrom) and s.module == "__future__"]
    ordered = [s for s in statements if s in needed and s not in future]
    return "\n\n".join(ast.unparse(statement) for statement in [*future, *ordered]) + "\n"


def _bound(statement: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement defines."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in statement.names)
    elif isinstance(statement, ast.Assign | ast.AnnAssign):
        yield from (
            node.id
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        )
