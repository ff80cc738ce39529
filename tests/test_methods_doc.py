"""docs/methods.md says what the code does: every method, option, default and preset."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from fedgps_ray.methods import METHODS
from fedgps_ray.spec import trial_spec
from fedgps_ray.titles import TITLES

TEXT = (Path(__file__).parents[1] / "docs" / "methods.md").read_text()
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", TEXT, flags=re.MULTILINE | re.DOTALL))
OPTIMIZER = ("lr", "momentum", "weight_decay", "max_norm", "lr_decay", "client_momentum")


def value(text):
    """Return what a table's cell stands for."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None if text == "none" else text


def rows(text):
    """Return the cells of all tables, without the quotes of code."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip().strip("`") for cell in line[1:-1].split("|")] for line in lines]


def table(text, *header):
    """Return the rows of the table with this header."""
    found = rows(text)
    begin = found.index(list(header)) + 1
    ends = [n for n, row in enumerate(found[begin:]) if len(row) != len(header)]
    end = begin + (ends[0] if ends else len(found))
    return found[begin:end]


def test_the_sections_are_the_published_methods_in_their_order():
    assert [*SECTIONS] == [*TITLES]


@pytest.mark.parametrize("name", SECTIONS)
def test_every_section_begins_with_the_published_name(name):
    (shown,) = re.findall(r"\A\n\*\*(.+?)\*\*", SECTIONS[name])
    assert shown.removesuffix(" training") == TITLES[name]


@pytest.mark.parametrize("name", SECTIONS)
def test_every_option_stands_there_with_its_default(name):
    cells = table(SECTIONS[name], "option", "default", "meaning")
    found = {row[0]: row[1] for row in cells}
    expected = dataclasses.asdict(METHODS[name]())
    shown = {key: value(text) for key, text in found.items() if key in expected}
    none_is_a_word = {key: "none" for key, text in found.items() if text == "none"}
    assert shown | none_is_a_word == expected


@pytest.mark.parametrize("name", SECTIONS)
def test_every_section_has_formula_state_cost_and_comparison(name):
    section = SECTIONS[name]
    assert re.search(r"^    \S", section, flags=re.MULTILINE)
    assert "State: " in section
    assert "Up " in section
    assert "gradient" in section
    assert re.search(r"^\| point \|.* here \| to change it \|$", section, flags=re.MULTILINE)


def test_the_optimizers_are_those_of_the_methods():
    shown = {row[0]: [*map(value, row[1:])] for row in table(TEXT, "method", *OPTIMIZER)}
    published = {name: METHODS[name].optimizer for name in SECTIONS}
    assert shown == {
        name: [getattr(sgd, key) for key in OPTIMIZER] for name, sgd in published.items()
    }
    assert not any(sgd.nesterov for sgd in published.values())


# --- FedGPS -------------------------------------------------------------------------------------


def flat(spec):
    """Return the settings of a spec by the names of the presets' table."""
    whole = spec.model_dump()
    inner = {f"{part}.{k}": v for part in ("method", "optimizer") for k, v in whole[part].items()}
    return whole | inner | {"partition.extra_class_range": spec.partition.extra_class_range}


def test_the_presets_set_what_the_table_says_and_nothing_else():
    names = ("default", "official", "paper")
    found = {row[0]: row[1:] for row in table(SECTIONS["fedgps"], "option", *names)}
    settings = [
        flat(trial_spec(method={"name": "fedgps", "preset": name}, partition="classes"))
        for name in names
    ]
    differing = {key for key in settings[0] if len({str(each[key]) for each in settings}) > 1}
    assert differing - {"method", "optimizer", "partition"} == set(found)
    for key, cells in found.items():
        for cell, each in zip(cells, settings, strict=True):
            assert cell == each[key] or value(cell) == each[key]


# --- options that are named ---------------------------------------------------------------------


def named():
    """Return every `method.option` or `optimizer.option=value` that a section names."""
    found = re.findall(r"`(method|optimizer)\.(\w+)(?:=([^`]+))?`", TEXT)
    where = [m.start() for m in re.finditer(r"`(?:method|optimizer)\.\w+(?:=[^`]+)?`", TEXT)]
    return [(section_at(place), *each) for place, each in zip(where, found, strict=True)]


def section_at(place):
    """Return the method whose section a place lies in; FedAvg for what is said of all."""
    heads = [m for m in re.finditer(r"^## (\w+)$", TEXT, flags=re.MULTILINE) if m.start() < place]
    return heads[-1].group(1) if heads else "fedavg"


@pytest.mark.parametrize(("name", "part", "option", "given"), named())
def test_an_option_that_is_named_can_be_set(name, part, option, given):
    method = {"name": name} | ({option: value(given)} if given and part == "method" else {})
    optimizer = {option: value(given)} if given and part == "optimizer" else {}
    spec = trial_spec(method=method, optimizer=optimizer)
    assert hasattr(getattr(spec, part), option)
