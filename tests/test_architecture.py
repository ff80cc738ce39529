"""docs/architecture.md describes the code that is there."""

import ast
import functools
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL))
WALKS = {title: text for title, text in SECTIONS.items() if title.startswith("The walk of")}


def rooms():
    """Return the folders and modules of the package."""
    entries = (ROOT / "fedgps_ray").iterdir()
    names = [p.name for p in entries if p.suffix == ".py" or (p / "__init__.py").exists()]
    return sorted(name for name in names if not name.startswith("__"))


def modules(walk):
    """Return the modules that a walk enters, in order."""
    return re.findall(r"^- → `([\w.]+)`", walk, flags=re.MULTILINE)


@pytest.mark.parametrize("room", rooms())
def test_every_room_has_its_paragraph(room):
    paragraphs = re.findall(
        r"^\*\*`([\w.]+)`\*\* (.*?)(?:\n\n|\Z)", SECTIONS["Room by room"], re.M | re.S
    )
    assert len(dict(paragraphs).get(room, "")) > 40


def test_no_paragraph_describes_a_room_that_is_gone():
    assert set(re.findall(r"^\*\*`([\w.]+)`\*\*", SECTIONS["Room by room"], re.M)) == set(rooms())


def test_the_picture_is_the_contract_that_is_checked():
    lines = [line.strip() for line in SECTIONS["The rooms"].splitlines() if line.startswith("    ")]
    drawn = [re.split(r"\s{2,}", line)[0] for line in lines]
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers, ray, *_ = config["tool"]["importlinter"]["contracts"]
    assert drawn == layers["layers"]
    marked = [name for name, line in zip(drawn, lines, strict=True) if "may import Ray" in line]
    assert {f"fedgps_ray.{name}" for name in marked} == set(ray["allowed_importers"])


@functools.cache
def trees():
    """Return the syntax trees of the package, without the folders linked into it."""
    paths = (ROOT / "fedgps_ray").rglob("*.py")
    linked = ROOT / "fedgps_ray" / "analysis"
    return [ast.parse(path.read_text()) for path in paths if not path.is_relative_to(linked)]


def nodes(kind):
    """Return the syntax nodes of a kind in the package."""
    return [node for tree in trees() for node in ast.walk(tree) if isinstance(node, kind)]


def annotations(function):
    given = [node.annotation for node in ast.walk(function.args) if isinstance(node, ast.arg)]
    return [each for each in (*given, function.returns) if each is not None]


def test_few_signatures_say_any():
    names = [
        node.id
        for function in nodes(ast.FunctionDef)
        for annotation in annotations(function)
        for node in ast.walk(annotation)
        if isinstance(node, ast.Name)
    ]
    assert names.count("int") > 100
    assert names.count("Any") < 120


@pytest.mark.parametrize("name", ["Client", "GridCell", "Job", "Unit", "Local", "Work", "Reply"])
def test_what_a_client_does_has_names_that_nothing_else_has(name):
    assert [node.name for node in nodes(ast.ClassDef)].count(name) == 1


def test_there_are_two_walks():
    assert [len(modules(walk)) > 10 for walk in WALKS.values()] == [True, True]


@pytest.mark.parametrize("name", [name for walk in WALKS.values() for name in modules(walk)])
def test_every_module_of_a_walk_exists(name):
    path = (ROOT / "fedgps_ray").joinpath(*name.split("."))
    assert path.with_suffix(".py").exists() or (path / "__init__.py").exists()


@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
def test_a_walk_is_short_and_enters_no_module_twice(walk):
    names = modules(walk)
    assert len(names) == len(set(names)) <= 18


@pytest.mark.parametrize("path", re.findall(r"`([\w/]+(?:\.py|/))`", PAGE))
def test_every_file_that_is_named_exists(path):
    assert (ROOT / "fedgps_ray" / path).exists()
