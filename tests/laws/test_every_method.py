"""What must hold for every method, whatever it does: the laws that `fedgps-ray verify` checks."""

import ast
import dataclasses
import inspect
import os
from pathlib import Path

import numpy as np
import pytest

from fedgps_ray import methods
from fedgps_ray.methods import METHODS, about, title
from fedgps_ray.methods.base import About
from fedgps_ray.spec import trial_spec
from fedgps_ray.tensors import all_finite
from fedgps_ray.titles import TITLES
from fedgps_ray.tools.verify import laws

FASTER = {"ccvr": {"virtual_features": 20}}  # a quantity, not another way of working
FILES = sorted(Path(inspect.getfile(methods)).parent.glob("*.py"))


def tiny_spec(method, **values):
    return laws.tiny_spec({"name": method, **FASTER.get(method, {})}, **values)


# --- runs ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_the_disk():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="module", params=METHODS)
def whole(request, tmp_path_factory):
    """Run a method without a stop; leave a copy of its folder as it was after each round."""
    spec, base = tiny_spec(request.param), tmp_path_factory.mktemp(request.param)
    laws.record(spec, base)
    return spec, base


@pytest.mark.parametrize("done", range(laws.ROUNDS + 1))
def test_stopped_after_any_round_it_goes_on_as_if_it_had_not_been(whole, done):
    """Without a round done this is the law that two runs give the same weights."""
    assert laws.continued(*whole, done) == ""


def test_every_round_changes_the_weights(whole):
    found = laws.stored_hashes(whole[1] / "whole")
    assert len(set(found)) == laws.ROUNDS


@pytest.mark.parametrize("name", METHODS)
def test_any_number_of_workers_gives_the_same_weights(name):
    assert laws.any_workers(tiny_spec(name)) == ""


@pytest.mark.parametrize("law", [laws.pickles, laws.keeps_nothing])
@pytest.mark.parametrize("name", METHODS)
def test_the_method_itself(name, law):
    assert law(tiny_spec(name)) == ""


@pytest.mark.parametrize("name", METHODS)
def test_its_values_leave_the_process(name):
    spec = tiny_spec(name)
    assert [laws.packs(spec), laws.moves_device(spec), laws.counts_bytes(spec)] == ["", "", ""]


# --- values go in, values come out --------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_nothing_is_changed_in_place(name):
    game = laws.Watched(tiny_spec(name))
    for t in range(3):
        game.play(t)
    assert len(game.watched) > 3 * 4


# --- hard data ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_it_survives_single_samples_and_missing_classes(name):
    spec = tiny_spec(name)
    found = laws.on_hard_data(spec)
    assert [finished.row["round"] for finished in found] == [1, 2]
    assert all_finite(spec.method.global_params(found[-1].snapshot.state))
    assert all(np.isfinite([one.row["loss"], one.row["train_loss"]]).all() for one in found)
    steps = {row["client"]: row["steps"] for row in found[0].clients}
    if spec.clients == 4:
        assert [steps[k] for k in range(3)] == [2 * 2, 2 * 1, 2 * 3]


# --- how a method is written --------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_every_default_is_valid(name):
    kind = METHODS[name]
    defaults = dataclasses.asdict(kind())
    assert kind(**defaults) == kind()
    for preset in ("default", *kind.presets):
        spec = trial_spec(method={"name": name, "preset": preset})
        assert isinstance(spec.method, kind)


@pytest.mark.parametrize("name", METHODS)
def test_a_misspelt_hyperparameter_is_an_error(name):
    with pytest.raises(ValueError, match="no_such_option"):
        METHODS[name](no_such_option=1)


@pytest.mark.parametrize("name", METHODS)
def test_what_a_method_tells_about_itself(name):
    kind = METHODS[name]
    assert (kind.__doc__ or "").strip()
    assert "__doc__" in vars(kind)  # its own words, not its parent's
    assert isinstance(about(kind), About)


@pytest.mark.parametrize("name", TITLES)
def test_a_published_method_tells_all_and_has_its_published_name(name):
    assert all(about(METHODS[name]))
    assert title(METHODS[name]) == TITLES[name]


def tree_of(path):
    return ast.parse(path.read_text())


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_method_knows_neither_ray_nor_the_runtime(path):
    roots = {".".join(name.split(".")[:2]) for name in imported(tree_of(path))}
    rooms = {f"fedgps_ray.{room}" for room in ("rounds", "cluster", "spec", "results")}
    refused = {"ray", "random", *rooms}
    assert not refused & (roots | {root.partition(".")[0] for root in roots})


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_method_has_no_global_state(path):
    tree = tree_of(path)
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.Global)]
    mutable = [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List | ast.Dict | ast.Set)
        for target in node.targets
    ]
    assert mutable in ([], ["__all__"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_method_does_not_ask_for_a_name(path):
    names = {*METHODS, *(kind.__name__ for kind in METHODS.values())}
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Compare):
            found = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
            assert not names & {value for value in found if isinstance(value, str)}
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
            found = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            assert not names & found


DRAWS = {"rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "rand_like"}
DRAWS |= {"randn_like", "randint_like", "manual_seed", "seed", "dropout"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_method_draws_from_the_stream_it_is_given(path):
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = ast.unparse(node.func.value)
            draws = node.func.attr in DRAWS and owner in ("torch", "F", "np.random")
            given = any(keyword.arg == "generator" for keyword in node.keywords)
            assert given or not draws, f"{ast.unparse(node)} reads a global generator"
