"""Experiment files: what they mean, in which order cells come, and how mistakes are told."""

import dataclasses
import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgps_ray.errors import UserError
from fedgps_ray.experiment import Choices, Search, Span, load, resolve
from fedgps_ray.methods import METHODS
from fedgps_ray.spec import TrialSpec, method_name, trial_spec

ROOT = Path(__file__).parents[1]


@pytest.fixture
def write(tmp_path):
    def save(text, name="study.toml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return save


def told(experiment, *keys):
    """Return the given fields of every cell, dotted ones included, in order."""
    return [tuple(field(cell.spec, key) for key in keys) for cell in experiment.cells]


def field(spec, key):
    value = spec
    for part in key.split("."):
        value = getattr(value, part)
    return method_name(value) if key == "method" else value


def problem(path, *settings):
    with pytest.raises(UserError) as caught:
        load(path, settings)
    return str(caught.value)


# --- cells ---------------------------------------------------------------------------------------


def test_base_alone_is_one_cell(write):
    experiment = load(write('[base]\nmethod = "fedavg"\nrounds = 3\noptimizer.lr = 0.5\n'))
    (cell,) = experiment.cells
    assert cell.spec == trial_spec(method="fedavg", rounds=3, optimizer={"lr": 0.5})
    assert cell.trial_id == cell.spec.trial_id
    assert experiment.name == "study"
    assert experiment.search is None


def test_texts_and_execution(write):
    text = 'name = "n"\ntitle = "t"\ndescription = """\nd\n"""\n[execution]\nactors = 3\n'
    experiment = load(write(text + "client_gpus = 0.2\n"))
    assert experiment[:3] == ("n", "t", "d")
    assert experiment.execution == {"actors": 3, "client_gpus": 0.2}


def test_a_grid_is_every_combination(write):
    path = write(
        '[grid]\nmethod = ["fedavg", { name = "fedgps", rho = 0.3 }]\n'
        'seed = [0, 1]\n"optimizer.lr" = [0.1, 0.2]\npartition.alpha = [0.5, 1.0]\n'
    )
    values = told(load(path), "method", "seed", "optimizer.lr", "partition.alpha")
    assert sorted(values) == sorted(
        itertools.product(["fedavg", "fedgps"], [0, 1], [0.1, 0.2], [0.5, 1.0])
    )
    assert {c.spec.method.rho for c in load(path).cells if hasattr(c.spec.method, "rho")} == {0.3}


def test_cases_are_merged_over_base_and_crossed_with_the_grid(write):
    path = write(
        '[base]\nmethod = "fedavg"\nclients = 10\nrounds = 7\n[grid]\nseed = [0, 1]\n'
        "[[cases]]\nclients = 20\nsampling_rate = [0.1, 0.2]\n[[cases]]\nrounds = 9\n"
    )
    values = told(load(path), "seed", "clients", "sampling_rate", "rounds")
    cases = [(20, 0.1, 7), (20, 0.2, 7), (10, 0.5, 9)]
    assert values == [(seed, *case) for seed in (0, 1) for case in cases]


def test_a_case_wins_over_the_grid_for_its_key(write):
    path = write("[grid]\nseed = [0, 1]\nscenario = [1, 2]\n[[cases]]\nseed = 5\n")
    assert told(load(path), "seed", "scenario") == [(5, 1), (5, 2)]


def test_lists_inside_a_table_are_expanded(write):
    path = write(
        '[[cases]]\nmethod = { name = "fedgps", rho = [0.1, 0.2], goal = [true, false] }\n'
    )
    values = told(load(path), "method.rho", "method.goal")
    assert values == [(0.1, True), (0.1, False), (0.2, True), (0.2, False)]


def test_a_table_with_a_kind_replaces_one_without_adds(write):
    base = '[base]\npartition = { kind = "dirichlet", alpha = 0.3, min_size = 2 }\n'
    replaced = load(write(base + '[[cases]]\npartition = { kind = "classes" }\n')).cells[0].spec
    assert replaced.partition == trial_spec(partition="classes").partition
    added = load(write(base + "[[cases]]\npartition.alpha = 0.7\n")).cells[0].spec
    assert (added.partition.alpha, added.partition.min_size) == (0.7, 2)


def test_options_of_a_method_hold_though_they_come_first(write):
    path = write('[grid]\n"method.rho" = [0.1]\nmethod = ["fedgps"]\n')
    assert told(load(path), "method.rho") == [(0.1,)]


def test_cells_come_by_seed_scenario_setting_and_then_method(write):
    path = write(
        '[grid]\nmethod = ["fedprox", "fedavg"]\nlocal_epochs = [2, 1]\n'
        "scenario = [2, 1]\nseed = [1, 0]\n"
    )
    values = told(load(path), "seed", "scenario", "local_epochs", "method")
    expected = itertools.product([0, 1], [1, 2], [2, 1], ["fedprox", "fedavg"])
    assert values == list(expected)


def test_methods_vary_fastest_when_each_is_a_case_of_its_own(write):
    path = write(
        '[grid]\nsampling_rate = [0.2, 0.4]\n[[cases]]\nmethod = "fedavg"\n'
        '[[cases]]\nmethod = "fedgps"\n'
    )
    values = told(load(path), "sampling_rate", "method")
    assert values == list(itertools.product([0.2, 0.4], ["fedavg", "fedgps"]))


def test_a_label_tells_the_method_and_what_differs(write):
    path = write(
        '[base]\nrounds = 3\n[grid]\nmethod = ["fedavg", { name = "fedgps", rho = 0.3 }]\n'
        'dataset = ["digits", { name = "synthetic", noise = 0.1 }]\npartition.alpha = [1.0, 2.0]\n'
    )
    labels = [str(cell.label) for cell in load(path).cells]
    assert labels[0] == "fedavg, dataset digits, alpha 1.0"
    assert labels[-1] == "fedgps rho=0.3, alpha 2.0, dataset synthetic, noise 0.1"
    assert len(set(labels)) == len(labels) == 8


def test_a_label_is_a_structure_in_which_no_two_settings_share_a_name(write):
    path = write(
        '[base]\nmethod = { name = "fedgps", rho = 0.3 }\n[grid]\nseed = [0, 1]\n'
        'dataset = [{ name = "synthetic", seed = 3 }, { name = "synthetic", seed = 4 }]\n'
    )
    first, *_ = (cell.label for cell in load(path).cells)
    assert first == ("fedgps rho=0.3", {"seed": "0", "dataset.seed": "3"})
    assert first.parts("seed") == ["dataset.seed 3"]


# --- [methods.NAME] ------------------------------------------------------------------------------


def test_a_method_has_settings_of_its_own(write):
    path = write(
        '[grid]\nmethod = ["fedavg", "fedgps", { name = "fedgps", rho = 0.9 }]\n'
        "[methods.fedgps]\noptimizer.lr = 0.05\nrho = 0.2\nrounds = 4\nmethod.w_proto = 0.3\n"
    )
    plain, first, second = (cell.spec for cell in load(path).cells)
    assert plain == trial_spec(method="fedavg")
    for spec, rho in ((first, 0.2), (second, 0.9)):  # what a cell says itself is nearer
        assert (spec.optimizer.lr, spec.rounds, spec.method.w_proto) == (0.05, 4, 0.3)
        assert spec.method.rho == rho
    assert first.optimizer.max_norm == METHODS["fedgps"].optimizer.max_norm


def test_no_option_of_a_method_is_called_like_a_setting_of_the_trial():
    for name, kind in METHODS.items():
        options = {field.name for field in dataclasses.fields(kind)}
        assert not set(TrialSpec.model_fields) & {"preset", *options}, name


def test_wrong_settings_of_a_method_are_told(write):
    grid = '[grid]\nmethod = ["fedgps"]\n"optimizer.lr" = [0.1, 0.2]\n[methods.fedgps]\n'
    assert "key of [methods.fedgps] 'rhoo'. Did you mean 'rho'?" in problem(
        write(grid + "rhoo = 1")
    )
    assert "methods.fedgps.optimizer.lr is also in [grid]" in problem(
        write(grid + "optimizer.lr = 1.0")
    )
    assert "methods.fedgps.rho: must be one value, got [1]" in problem(write(grid + "rho = [1]"))
    assert "unknown method 'fedgpss'. Did you mean 'fedgps'?" in problem(
        write("[methods.fedgpss]\nrho = 1")
    )


# --- --set ---------------------------------------------------------------------------------------

STUDY = (
    "[base]\nrounds = 5\n[grid]\nseed = [0, 1]\n"
    'method = ["fedavg", { name = "fedgps", rho = 0.3 }]\n'
    "[[cases]]\nclients = [4, 6]\n"
)


def test_a_setting_wins_over_base_grid_and_cases(write):
    experiment = load(write(STUDY), ["rounds=9", "seed=7", "clients=12"])
    assert told(experiment, "rounds", "seed", "clients") == [(9, 7, 12)] * 2


def test_a_list_in_a_setting_is_a_grid(write):
    experiment = load(write(STUDY), ["seed=[3,4,5]", "clients=12", "batch_size=[8,16]"])
    assert sorted(set(told(experiment, "seed", "batch_size"))) == [
        (seed, size) for seed in (3, 4, 5) for size in (8, 16)
    ]
    assert len(experiment.cells) == 12


def test_a_setting_reaches_into_tables(write):
    path = write('[grid]\nmethod = ["fedgps", { name = "fedgps_cf", rho = 0.3 }]\n')
    assert told(load(path, ["method.rho=0.7"]), "method.rho") == [(0.7,)] * 2
    path = write('[grid]\nmethod = ["fedgps", { name = "fedgps", rho = 0.3 }]\n')
    assert told(load(path, ["method.rho=0.7"]), "method.rho") == [(0.7,)]  # now the same cell


def test_a_setting_wins_over_a_methods_own(write):
    path = write('[base]\nmethod = "fedgps"\n[methods.fedgps]\noptimizer.lr = 0.1\nrho = 0.1\n')
    (values,) = told(
        load(path, ["optimizer.lr=0.3", "method.rho=0.4"]), "optimizer.lr", "method.rho"
    )
    assert values == (0.3, 0.4)


def test_settings_reach_every_part_of_the_file(write):
    path = write(STUDY)
    given = ["methods.fedgps.rho=0.6", "execution.actors=2", "grid.seed=[8]", "method=fedgps"]
    experiment = load(path, given)
    assert told(experiment, "method.rho", "seed") == [(0.6, 8)] * 2
    assert experiment.execution == {"actors": 2}


def test_a_word_that_is_no_json_is_a_text(write):
    assert told(load(write(STUDY), ["model=mlp"]), "model") == [("mlp",)] * 8


@pytest.mark.parametrize("setting", ["rounds", "=3", "a..b=1", ".=1"])
def test_a_setting_needs_key_and_value(write, setting):
    assert f"--set {setting}: expected KEY=VALUE" in problem(write(STUDY), setting)


# --- data files ----------------------------------------------------------------------------------


def save_images(path, start=0):
    x = np.arange(start, start + 8 * 64, dtype=np.uint16).astype(np.uint8).reshape(8, 8, 8)
    y = np.arange(8) % 2
    np.savez(path, x_train=x, y_train=y, x_test=x, y_test=y)
    return path


def test_a_path_in_the_file_starts_at_the_file(write, tmp_path, monkeypatch):
    monkeypatch.chdir("/")
    save_images(tmp_path / "own.npz")
    path = write('[base]\ndataset = "own.npz"\n[grid]\nseed = [0, 1]\n')
    experiment = load(path)
    digest = experiment.cells[0].spec.dataset.sha256
    assert experiment.files == {digest: str((tmp_path / "own.npz").resolve())}
    assert {cell.spec.dataset.file for cell in experiment.cells} == {"own.npz"}


def test_a_path_in_a_setting_starts_here(write, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    save_images(tmp_path / "here" / "own.npz")
    monkeypatch.chdir(tmp_path / "here")
    experiment = load(write(STUDY), ["dataset=own.npz"])
    assert list(experiment.files.values()) == [str((tmp_path / "here" / "own.npz").resolve())]


def test_a_file_may_lie_in_the_data_folder(write, tmp_path):
    (tmp_path / "data").mkdir()
    save_images(tmp_path / "data" / "own.npz")
    path = write('[base]\ndataset = "own.npz"\n')
    assert "no file" in problem(path)
    experiment = load(path, data_dir=tmp_path / "data")
    assert list(experiment.files.values()) == [str((tmp_path / "data" / "own.npz").resolve())]


def test_a_surrogate_file_is_named_by_its_content(tmp_path):
    data, noise = save_images(tmp_path / "own.npz"), tmp_path / "noise.npz"
    np.savez(noise, x=np.zeros((2, 8, 8, 1), np.uint8), y=np.arange(2))
    surrogate = {"kind": str(noise), "batch_size": 2}
    spec, files = resolve({"dataset": str(data), "surrogate": surrogate})
    assert (spec.surrogate.file, spec.surrogate.batch_size) == ("noise.npz", 2)
    assert files == {
        spec.dataset.sha256: str(data.resolve()),
        spec.surrogate.sha256: str(noise.resolve()),
    }


def test_a_changed_file_is_another_data_set(tmp_path):
    path = save_images(tmp_path / "own.npz")
    before, _ = resolve({"dataset": str(path)})
    save_images(path, start=1)
    after, _ = resolve({"dataset": str(path)})
    assert before.trial_id != after.trial_id


# --- search --------------------------------------------------------------------------------------

SEARCH = (
    '[base]\nmethod = "fedgps"\n[search]\nsamples = 30\nseed = 1\nscheduler = "median"\n'
    '[search.ranges]\n"method.rho" = { low = 0.1, high = 10.0, log = true }\n'
    "optimizer.lr = { low = 0.25, high = 0.75 }\nlocal_epochs = { low = 1, high = 3 }\n"
    'model = { choices = ["mlp", "cnn"] }\n'
)


def test_a_search_draws_its_cells_before_anything_runs(write):
    experiment = load(write(SEARCH))
    assert experiment.search == Search(
        30,
        1,
        "median",
        "accuracy",
        {
            "method.rho": Span(0.1, 10.0, True),
            "optimizer.lr": Span(0.25, 0.75),
            "local_epochs": Span(1, 3),
            "model": Choices(("mlp", "cnn")),
        },
    )
    drawn = told(experiment, "method.rho", "optimizer.lr", "local_epochs", "model")
    assert len(drawn) == 30
    assert all(0.1 <= rho <= 10 and 0.25 <= lr <= 0.75 for rho, lr, *_ in drawn)
    assert all(float(f"{rho:.4g}") == rho for rho, *_ in drawn)
    assert {epochs for _, _, epochs, _ in drawn} == {1, 2, 3}
    assert {model for *_, model in drawn} == {"mlp", "cnn"}
    below = sum(rho < 1 for rho, *_ in drawn)
    assert 8 <= below <= 22  # half of them, as the middle of the logarithm is 1


def test_a_search_draws_the_same_again_and_more_of_it(write):
    ids = [cell.trial_id for cell in load(write(SEARCH)).cells]
    assert [cell.trial_id for cell in load(write(SEARCH)).cells] == ids
    more = {cell.trial_id for cell in load(write(SEARCH), ["search.samples=40"]).cells}
    assert set(ids) < more
    other = {cell.trial_id for cell in load(write(SEARCH), ["search.seed=2"]).cells}
    assert not set(ids) & other


def test_another_range_leaves_the_draws_of_the_first(write):
    fewer = write("\n".join(line for line in SEARCH.splitlines() if "model" not in line))
    assert set(told(load(fewer), "method.rho")) == set(told(load(write(SEARCH)), "method.rho"))


def test_a_setting_takes_a_key_out_of_the_search(write):
    experiment = load(write(SEARCH), ["method.rho=0.3"])
    assert "method.rho" not in experiment.search.ranges
    assert set(told(experiment, "method.rho")) == {(0.3,)}
    settings = ["method.rho=1", "optimizer.lr=1", "local_epochs=1", "model=mlp"]
    assert "--set leaves nothing to search" in problem(write(SEARCH), *settings)


def test_a_search_is_crossed_with_the_grid(write):
    experiment = load(write(SEARCH + "[grid]\nseed = [0, 1]\n"))
    assert len(experiment.cells) == 60
    by_seed = [
        {rho for seed, rho in told(experiment, "seed", "method.rho") if seed == wanted}
        for wanted in (0, 1)
    ]
    assert by_seed[0] == by_seed[1]


def test_equal_draws_are_one_cell(write):
    path = write('[search]\n[search.ranges]\nmodel = { choices = ["mlp", "cnn"] }\n')
    assert told(load(path), "model") in ([("mlp",), ("cnn",)], [("cnn",), ("mlp",)])


@given(
    low=st.floats(1e-6, 1e6), factor=st.floats(1.0001, 1e6), log=st.booleans(), seed=st.integers(0)
)
def test_a_drawn_number_lies_in_its_range(low, factor, log, seed):
    span = Span(low, low * factor, log)
    assert span.low <= span.draw(seed, "x", 0) <= span.high


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "search.ranges: say what is searched"),
        ("samples = 0", "search.samples: must be a whole number from 1, got 0"),
        ("samples = true", "search.samples: must be a whole number from 1, got True"),
        ("seed = -1", "search.seed: must be a whole number from 0, got -1"),
        ('scheduler = "ahsa"', "unknown search.scheduler 'ahsa'. Did you mean 'asha'?"),
        ('metric = "acc"', "unknown search.metric 'acc'"),
        ("smaples = 3", "unknown key of [search] 'smaples'. Did you mean 'samples'?"),
        ("ranges.seed = 3", "search.ranges.seed: must be a table"),
        ("ranges.seed = { low = 3 }", "low and high must be numbers, got {'low': 3}"),
        ("ranges.seed = { low = 3, high = 3 }", "low must be below high, got 3 and 3"),
        ("ranges.seed = { low = 0, high = 3, log = true }", "low must be above 0, got 0"),
        ("ranges.seed = { low = 0, high = 3, log = 1 }", "log must be true or false, got 1"),
        ("ranges.seed = { low = 0, high = nan }", "low and high must be numbers"),
        ("ranges.seed = { low = 0, hihg = 3 }", "'hihg'. Did you mean 'high'?"),
        ("ranges.seed = { choices = [] }", "choices must be a list with at least one value"),
        ("ranges.seed = { choices = [1], low = 1 }", "key of search.ranges.seed 'low'"),
        ("ranges.x.seed.a.b = 1", "search.ranges.x.seed.a.b: must be a table"),
    ],
)
def test_wrong_searches_are_told(write, text, message):
    assert message in problem(write(f"[search]\n{text}\n"))


def test_a_searched_key_is_not_listed_too(write):
    text = "[search.ranges]\nseed = { low = 0, high = 3 }\n"
    assert "seed is in [search.ranges] and in [grid]" in problem(
        write(f"{text}[grid]\nseed = [1]\n")
    )
    assert "seed is in [search.ranges] and in [grid]" in problem(
        write(f"{text}[[cases]]\nseed = 1")
    )


# --- mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rounds 3", "not valid TOML: Expected '=' after a key in a key/value pair (at line 1"),
        ("[base]\nrounds = 1\nrounds = 2\n", "not valid TOML: Cannot overwrite a value (at line 3"),
        ("[bsae]\nrounds = 1\n", "unknown part 'bsae'. Did you mean 'base'?"),
        ("rounds = 1\n", "unknown part 'rounds'"),
        ("name = 3\n", "name: must be a text, got 3"),
        ("grid = 3\n", "grid: must be a table, written as [grid], got 3"),
        ("cases = 3\n", "cases: must be tables, each written under [[cases]], got 3"),
        ("cases = []\n", "cases: the list is empty, so there would be no cell"),
        ("[grid]\nseed = 3\n", "grid.seed: must be a list, got 3; write [3]"),
        ("[grid]\nseed = []\n", "grid.seed: the list is empty, so there would be no cell"),
        ("[[cases]]\nseed = []\n", "case 1.seed: the list is empty"),
        ("[base]\nseed = [3]\n", "base.seed: must be one value, got [3]; lists belong to [grid]"),
        ("[base]\nrouns = 3\n", "unknown setting 'rouns'. Did you mean 'rounds'?"),
        ("[base]\nrounds = 0\n", "rounds: must be greater than or equal to 1, got 0"),
        ("[grid]\nmethod = [3]\n", "unknown method '3'"),
        ("[[cases]]\nmethod = { rho = 0.3, name = {} }\n", "unknown method '{}'"),
        ("[grid]\nmethod = ['fedgpss']\n", "unknown method 'fedgpss'. Did you mean 'fedgps'?"),
        ("[grid]\n'method.rhoo' = [1]\n", "unknown setting of fedgps 'rhoo'. Did you mean 'rho'?"),
        (
            "[grid]\n'optimiser.lr' = [1]\n",
            "unknown setting 'optimiser'. Did you mean 'optimizer'?",
        ),
        ("[[cases]]\nseed = 0\n[[cases]]\nseed = -1\n", "case 2: seed: must be greater than"),
        ("[execution]\nactor = 3\n", "unknown key of [execution] 'actor'. Did you mean 'actors'?"),
        ("[execution]\nactors = -3\n", "actors"),
        ("[base]\ndataset = 'no.npz'\n", "no file"),
        ("[base]\nseed = 2020-01-01\n", "seed: "),
        ("[grid]\nseed = [0, 1, 0]\n", 'the same trial twice: {"seed": 0}; remove one'),
        ("[grid]\nclients = [10, 10.0]\n", "the same trial twice"),
        ("[grid]\nmethod = ['fedavg', []]\nseed = [[]]\n", "there would be no cell"),
    ],
)
def test_mistakes_name_file_key_and_value(write, text, message):
    path = write(text)
    text = problem(path)
    assert message in text
    assert str(path) in text


SCALARS = st.one_of(
    st.booleans(),
    st.integers(-3, 2**40),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["fedgps", "classes", "digits", "x.npz", "", "asha"]),
)
NAMES = st.sampled_from(
    [
        "name",
        "kind",
        "method",
        "rho",
        "optimizer",
        "lr",
        "partition",
        "alpha",
        "dataset",
        "seed",
        "scenario",
        "rounds",
        "low",
        "high",
        "choices",
        "samples",
        "ranges",
        "actors",
        "fedgps",
        "fedavg",
        "preset",
        "surrogate",
        "x",
    ]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
PARTS = st.sampled_from(["base", "grid", "cases", "methods", "execution", "search", "title"])


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def outcome(path):
    try:
        return load(path)
    except UserError as error:
        return str(error)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(PARTS, VALUES | st.dictionaries(NAMES, VALUES, max_size=4), max_size=4))
def test_whatever_stands_in_a_file_it_loads_or_is_told(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("fuzz") / "study.toml"
    path.write_text("\n".join(f"{key} = {toml(value)}" for key, value in content.items()))
    result = outcome(path)
    assert str(path) in result if isinstance(result, str) else result.cells


def test_too_many_cells_are_refused_before_they_are_made(write):
    numbers = list(range(1, 301))
    path = write(f"[grid]\nseed = {numbers}\nscenario = {numbers}\n")
    assert "there would be 90,000 cells, at most 20,000 are possible" in problem(path)


def test_a_missing_file_is_told_with_what_there_is(write):
    path = write("", "study.toml")
    text = problem(path.with_name("sutdy.toml"))
    assert "no file" in text
    assert "Did you mean 'study.toml'? Files in" in text


def test_what_cannot_be_read_is_told(tmp_path):
    assert "cannot read" in problem(tmp_path)
    (tmp_path / "x.toml").write_bytes(b"\xff\xfe\x00")
    assert "not a text file" in problem(tmp_path / "x.toml")


def test_the_same_cell_in_two_cases_is_one(write):
    path = write("[[cases]]\nseed = [0, 1]\n[[cases]]\nseed = [1, 2]\n")
    assert told(load(path), "seed") == [(0,), (1,), (2,)]


# --- the files that come along, and the documentation --------------------------------------------


def test_quickstart_compares_three_methods_in_two_scenarios():
    values = told(
        load(ROOT / "experiments" / "quickstart.toml"), "scenario", "method", "dataset.name"
    )
    methods = ("fedavg", "fedgps", "fedgps_cf")
    assert values == [(scenario, method, "digits") for scenario in (1, 2) for method in methods]


def test_smoke_has_every_method():
    experiment = load(ROOT / "experiments" / "smoke.toml")
    assert set(told(experiment, "method")) == {(name,) for name in METHODS}
    assert all(cell.spec.rounds == 2 for cell in experiment.cells)


def test_the_example_of_a_search_has_its_samples():
    experiment = load(ROOT / "experiments" / "search.toml")
    assert len(experiment.cells) == experiment.search.samples == 12


DOCUMENTED = re.findall(
    r"```toml\n(.*?)```", (ROOT / "docs" / "experiments.md").read_text(), flags=re.DOTALL
)


@pytest.mark.parametrize("text", DOCUMENTED, ids=range(len(DOCUMENTED)))
def test_documented_files_have_the_cells_that_are_told(write, tmp_path, text):
    save_images(tmp_path / "my_images.npz")
    (expected,) = re.findall(r"# (\d+) trials?", text)
    assert len(load(write(text)).cells) == int(expected)
