"""What makes a trial's identity, how settings are filled in, and how wrong ones are told."""

import copy
import dataclasses
import hashlib
import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedgps_ray.errors import UserError
from fedgps_ray.methods import METHODS
from fedgps_ray.methods.fedgps import FedGPS
from fedgps_ray.results.store import TrialStore
from fedgps_ray.spec import ExecutionSpec, TrialSpec, columns, execution_spec, trial_spec

SHA = "0123456789abcdef" * 4
PARTS = {  # one table for each kind that a part of a spec can be of
    "named": ("dataset", {"name": "digits"}),
    "synthetic": ("dataset", {"name": "synthetic"}),
    "npz": ("dataset", {"name": "npz", "file": "own.npz", "sha256": SHA}),
    "dirichlet": ("partition", {"kind": "dirichlet"}),
    "classes": ("partition", {"kind": "classes"}),
    "optimizer": ("optimizer", {}),
    "noise": ("surrogate", {"kind": "noise"}),
    "file": ("surrogate", {"kind": "file", "file": "own.npz", "sha256": SHA}),
    **{name: ("method", {"name": name}) for name in METHODS},
}
UNIVERSAL = [1, 2, 3, 0.25, 0.75, "svhn", "other.npz", "4x4", "f" * 64, True, False]


def literals(annotation):
    """Yield every plain value that a type hint lists."""
    for arg in get_args(annotation):
        yield from [arg] if isinstance(arg, str | int) else literals(arg)


def candidates(annotation, value):
    near = [] if not isinstance(value, int | float) else [value + 1, value * 0.9, value * 0.5]
    return [*literals(annotation), *near, *UNIVERSAL]


def fails_or(make, **values):
    try:
        return make(**values)
    except UserError:
        return None


def fields_of(part, table):
    value = getattr(trial_spec(**{part: table}), part)
    for field in dataclasses.fields(value):
        if field.name not in ("kind", "name") or table == {"name": "digits"}:
            yield field.name, field.type, getattr(value, field.name)


NESTED = [
    (kind, part, table, name, annotation, value)
    for kind, (part, table) in PARTS.items()
    for name, annotation, value in fields_of(part, table)
]


@pytest.mark.parametrize(
    ("part", "table", "name", "annotation", "value"),
    [row[1:] for row in NESTED],
    ids=[f"{row[0]}.{row[3]}" for row in NESTED],
)
def test_each_part_of_a_part_changes_the_id(part, table, name, annotation, value):
    base = trial_spec(**{part: table})
    others = [
        spec
        for other in candidates(annotation, value)
        if (spec := fails_or(trial_spec, **{part: {**table, name: other}})) is not None
        and getattr(getattr(spec, part), name) != value
    ]
    # a field of listed values may have all but one refused, as FedGPS-CF's first_time
    assert others or list(literals(annotation)), f"no other value of {part}.{name} was tried"
    assert base.trial_id not in {spec.trial_id for spec in others}


@pytest.mark.parametrize("name", list(TrialSpec.model_fields))
def test_each_field_changes_the_id(name):
    others_needed = {"device": "cuda"} if name == "deterministic" else {}
    base = trial_spec(**others_needed)
    field = TrialSpec.model_fields[name]
    tried = [*candidates(field.annotation, getattr(base, name)), "mlp", "synthetic", "iid", "file"]
    tried += ["fedavg", {"lr": 0.5}]
    others = [
        spec
        for other in tried
        if (spec := fails_or(trial_spec, **{**others_needed, name: other})) is not None
        and getattr(spec, name) != getattr(base, name)
    ]
    assert others
    assert base.trial_id not in {spec.trial_id for spec in others}


@pytest.mark.parametrize("name", METHODS)
def test_methods_with_the_same_hyperparameters_are_told_apart(name):
    ids = [trial_spec(method=other).trial_id for other in METHODS]
    assert ids.count(trial_spec(method=name).trial_id) == 1


def test_nothing_of_the_execution_is_in_a_trial(tmp_path):
    assert not set(ExecutionSpec.model_fields) & set(TrialSpec.model_fields)
    for name in ExecutionSpec.model_fields:
        with pytest.raises(UserError, match=f"unknown setting '{name}'"):
            trial_spec(**{name: 1})
    spec = trial_spec()
    assert TrialStore(tmp_path / "here", spec).folder.name == spec.trial_id
    assert TrialStore(tmp_path / "there", spec).folder.name == spec.trial_id


def test_the_id_is_the_same_in_another_process():
    program = (
        "from fedgps_ray.spec import trial_spec; from fedgps_ray.methods import METHODS\n"
        "print(*(trial_spec(method=name).trial_id for name in METHODS))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "123"}
    printed = subprocess.check_output([sys.executable, "-c", program], env=environment, text=True)
    assert printed.split() == [trial_spec(method=name).trial_id for name in METHODS]


CHOICES = [  # a part or field of a spec, and another value of it
    *[
        (part, name, candidates(annotation, value))
        for _, part, _, name, annotation, value in NESTED
    ],
    *[
        ("", name, candidates(field.annotation, getattr(trial_spec(), name)))
        for name, field in TrialSpec.model_fields.items()
        if name not in ("method", "optimizer")
    ],
]


def changed(draw, values):
    """Return settings with another value somewhere, if there can be one."""
    part, name, options = draw(st.sampled_from(CHOICES))
    value = draw(st.sampled_from(options))
    before = values.get(part)  # a name alone, as of a data set, has no other settings
    own = before if isinstance(before, dict) else {}
    table = {part: {**own, name: value}} if part else {name: value}
    valid = fails_or(trial_spec, **copy.deepcopy({**values, **table})) is not None
    return {**values, **table} if valid else values


@st.composite
def neighbours(draw):
    """Draw two specs of the same kinds, in which some settings are changed."""
    kinds = draw(st.lists(st.sampled_from(list(PARTS)), max_size=3))
    one = {PARTS[kind][0]: dict(PARTS[kind][1]) for kind in kinds}
    for _ in range(draw(st.integers(0, 3))):
        one = changed(draw, one)
    other = one
    for _ in range(draw(st.integers(0, 3))):
        other = changed(draw, other)
    return trial_spec(**one), trial_spec(**other)


@settings(max_examples=200, deadline=None)
@given(neighbours(), neighbours())
def test_different_settings_never_share_an_id_and_equal_ones_do(first, second):
    for one, other in [first, second, (first[0], second[0])]:
        assert (one == other) == (one.trial_id == other.trial_id)
        assert (one.identity == other.identity) == (one == other)


def shuffled(value, rng):
    if not isinstance(value, dict):
        return value
    keys = sorted(value)
    rng.shuffle(keys)
    return {key: shuffled(value[key], rng) for key in keys}


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(list(METHODS)))
def test_the_order_of_keys_does_not_matter(seed, method):
    spec = trial_spec(method=method, partition="classes", dataset="synthetic")
    again = TrialSpec(**shuffled(spec.model_dump(mode="json"), random.Random(seed)))
    assert again.trial_id == spec.trial_id


@pytest.mark.parametrize("kind", PARTS)
def test_json_and_back_is_the_same_trial(kind):
    part, table = PARTS[kind]
    spec = trial_spec(**{part: table})
    again = TrialSpec(**json.loads(json.dumps(spec.model_dump(mode="json"))))
    assert again == spec
    assert again.trial_id == spec.trial_id


@pytest.mark.parametrize(
    ("method", "preset"),
    [(name, preset) for name, kind in METHODS.items() for preset in kind.presets],
)
def test_a_preset_survives_json(method, preset):
    spec = trial_spec(method={"name": method, "preset": preset}, partition="classes")
    again = TrialSpec(**json.loads(json.dumps(spec.model_dump(mode="json"))))
    assert again.trial_id == spec.trial_id


def test_equal_numbers_are_one_trial_however_they_are_written():
    whole = trial_spec(partition={"alpha": 1}, method={"name": "fedgps", "rho": 1})
    assert trial_spec(partition={"alpha": 1.0}, method=FedGPS(rho=1.0)).trial_id == whole.trial_id


def test_the_id_is_twelve_hex_digits_of_a_known_text():
    spec = trial_spec(method="fedavg", dataset="digits")
    assert len(spec.trial_id) == 12
    assert set(spec.trial_id) <= set("0123456789abcdef")
    text = '2:{"method":{"name":"fedavg"}}'
    assert spec.trial_id == hashlib.sha256(text.encode()).hexdigest()[:12]


def test_a_spec_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        trial_spec().rounds = 3


# --- what is filled in --------------------------------------------------------------------------


def test_the_official_preset():
    spec = trial_spec(method={"name": "fedgps", "preset": "official"}, partition="classes")
    assert spec.optimizer.lr == 0.00998
    assert spec.optimizer.max_norm == 10.0
    assert spec.init_seed == "partition"
    assert spec.selection == "official"
    assert spec.method.norm_epsilon == -1e-7
    assert spec.method.single_sample_weight == "feature_dim"
    assert spec.partition.extra_class_range == "official"


def test_the_paper_preset():
    spec = trial_spec(method={"name": "fedgps", "preset": "paper"})
    method = spec.method
    assert (method.direction, spec.optimizer.max_norm) == (-1, None)
    assert (method.perturb_norm, method.first_time) == ("global", "global_update")
    assert (method.align_labels, method.proto_source) == ("matched", "final_pass")
    assert (method.w_align, method.w_surrogate_supcon, method.norm_epsilon) == (0.1, 0.0, 0.0)


def test_the_default_preset_is_the_default():
    assert trial_spec(method={"name": "fedgps", "preset": "default"}) == trial_spec(method="fedgps")


def test_what_is_given_wins_over_a_preset():
    spec = trial_spec(
        method={"name": "fedgps", "preset": "official", "norm_epsilon": 0.0},
        optimizer={"lr": 0.5},
        partition={"kind": "classes", "extra_class_range": "all"},
        init_seed="train",
    )
    assert spec.method.norm_epsilon == 0.0
    assert spec.method.single_sample_weight == "feature_dim"
    assert spec.optimizer.lr == 0.5
    assert spec.partition.extra_class_range == "all"
    assert spec.init_seed == "train"
    assert spec.selection == "official"


@pytest.mark.parametrize("name", METHODS)
def test_the_optimizer_is_the_methods_own_unless_given(name):
    own = METHODS[name].optimizer
    spec = trial_spec(method=name, optimizer={"momentum": 0.123})
    assert spec.optimizer == dataclasses.replace(own, momentum=0.123)
    assert trial_spec(method=METHODS[name]()).optimizer == own


@pytest.mark.parametrize(
    ("clients", "rate", "per_round"), [(10, 0.5, 5), (100, 0.1, 10), (10, 0.01, 1), (4, 1, 4)]
)
def test_clients_per_round(clients, rate, per_round):
    assert trial_spec(clients=clients, sampling_rate=rate).per_round == per_round


def test_scenario_one_is_drawn_with_seed_zero():
    assert trial_spec(scenario=1).partition_seed == 0
    assert trial_spec(scenario=4).partition_seed == 3


def test_columns_name_what_differs_from_the_defaults():
    spec = trial_spec(
        method={"name": "fedgps", "rho": 0.25}, partition={"kind": "dirichlet", "alpha": 0.3}
    )
    row = columns(spec)
    assert json.loads(row["method_options"]) == {"rho": 0.25}
    assert (row["alpha"], row["classes_per_client"]) == (0.3, None)
    assert row["lr"] == spec.optimizer.lr
    assert columns(trial_spec(method="fedgps"))["method_options"] == "{}"
    own = trial_spec(dataset={"name": "npz", "file": "own.npz", "sha256": SHA})
    assert columns(own)["dataset"] == "own"


# --- what is wrong ------------------------------------------------------------------------------

NAN, INF = math.nan, math.inf
WRONG = [  # settings, and what the message must name: field, what is allowed, value
    ({"partition": {"alpha": 0}}, ["partition.alpha", "greater than 0", "got 0"]),
    ({"partition": {"alpha": -0.5}}, ["partition.alpha", "greater than 0", "got -0.5"]),
    ({"partition": {"alpha": NAN}}, ["partition.alpha", "finite number", "got nan"]),
    ({"partition": {"alpha": "much"}}, ["partition.alpha", "valid number", "got 'much'"]),
    ({"partition": 3}, ["partition", "a name or a table", "got 3"]),
    (
        {"partition": {"kind": "classes", "classes_per_client": 0}},
        ["partition.classes_per_client", "greater than or equal to 1", "got 0"],
    ),
    ({"sampling_rate": 0}, ["sampling_rate", "greater than 0", "got 0"]),
    ({"sampling_rate": 1.5}, ["sampling_rate", "less than or equal to 1", "got 1.5"]),
    ({"sampling_rate": NAN}, ["sampling_rate", "less than or equal to 1", "got nan"]),
    ({"sampling_rate": "half"}, ["sampling_rate", "valid number", "got 'half'"]),
    ({"rounds": 0}, ["rounds", "greater than or equal to 1", "got 0"]),
    ({"rounds": 1.5}, ["rounds", "valid integer", "got 1.5"]),
    ({"rounds": "ten"}, ["rounds", "valid integer", "got 'ten'"]),
    ({"rounds": None}, ["rounds", "valid integer", "got None"]),
    ({"rounds": 2**31}, ["rounds", "less than 2147483648", "got 2147483648"]),
    ({"clients": 0}, ["clients", "greater than or equal to 1", "got 0"]),
    ({"local_epochs": 0}, ["local_epochs", "greater than or equal to 1", "got 0"]),
    ({"batch_size": -1}, ["batch_size", "greater than or equal to 1", "got -1"]),
    ({"threads": 0}, ["threads", "greater than or equal to 1", "got 0"]),
    ({"scenario": 0}, ["scenario", "greater than or equal to 1", "got 0"]),
    ({"seed": -1}, ["seed", "greater than or equal to 0", "got -1"]),
    ({"seed": 2**32}, ["seed", "less than 4294967296", "got 4294967296"]),
    (
        {"precision": "float16"},
        ["precision", "'float32', 'float64', 'bf16' or 'tf32'", "got 'float16'"],
    ),
    ({"selection": "random"}, ["selection", "'stream' or 'official'", "got 'random'"]),
    ({"eval_logits": "some"}, ["eval_logits", "'all' or 'real'", "got 'some'"]),
    ({"init_seed": "x"}, ["init_seed", "'train' or 'partition'", "got 'x'"]),
    ({"augment": "flip"}, ["augment", "'auto', 'none', 'flip_crop'", "got 'flip'"]),
    ({"optimizer": {"lr": 0}}, ["optimizer.lr", "greater than 0", "got 0"]),
    ({"optimizer": {"lr": NAN}}, ["optimizer.lr", "finite number", "got nan"]),
    ({"optimizer": {"lr": INF}}, ["optimizer.lr", "finite number", "got inf"]),
    ({"optimizer": {"momentum": 1}}, ["optimizer.momentum", "less than 1", "got 1"]),
    ({"optimizer": {"momentum": NAN}}, ["optimizer.momentum", "less than 1", "got nan"]),
    ({"optimizer": 3}, ["optimizer", "a table of settings", "got 3"]),
    ({"method": {"name": "fedgps", "rho": -1}}, ["method.rho", "greater than or equal", "got -1"]),
    ({"method": {"name": "fedgps", "rho": NAN}}, ["method.rho", "finite number", "got nan"]),
    ({"method": {"name": "fedgps", "direction": 2}}, ["method.direction", "1 or -1", "got 2"]),
    ({"method": {"name": "fedgps", "goal": "so"}}, ["method.goal", "boolean", "got 'so'"]),
    ({"method": {"rho": 1}}, ["method", "a table with a name", "got {'rho': 1}"]),
    ({"method": 3}, ["method", "a name or a table", "got 3"]),
    ({"method": None}, ["method", "a name or a table", "got None"]),
    ({"surrogate": {"per_class": 0}}, ["surrogate.per_class", "greater than or", "got 0"]),
    ({"surrogate": 3}, ["surrogate", "a name or a table", "got 3"]),
    ({"model": {"name": "cnn", "width": 3}}, ["model 'cnn' has no options", "width"]),
    ({"model": {"name": "net.py:Net"}}, ["unknown model 'net.py:Net'", "Known: mlp, cnn"]),
    ({"dataset": 3}, ["a data set is a name", "got 3"]),
    ({"dataset": {"name": "synthetic", "noise": 99}}, ["'synthetic'", "noise", "10", "got 99"]),
    ({"dataset": {"name": "npz"}}, ["'npz'", "file is missing", "sha256 is missing"]),
    ({"method": {"name": "fedgps_cf", "first_time": "global_update"}}, ["first_time", "FedGPS-CF"]),
]


@pytest.mark.parametrize(("values", "words"), WRONG, ids=[str(row[0]) for row in WRONG])
def test_a_wrong_value_is_told_by_field_value_and_what_is_allowed(values, words):
    with pytest.raises(UserError) as caught:
        trial_spec(**copy.deepcopy(values))
    assert [word for word in words if word not in str(caught.value)] == []
    assert len(str(caught.value).splitlines()) == 1


MISSPELT = [  # settings, what is unknown, the nearest name there is
    ({"method": "fedgsp"}, "unknown method 'fedgsp'", "fedgps"),
    ({"model": "cnnn"}, "unknown model 'cnnn'", "cnn"),
    ({"dataset": "digit"}, "unknown data set 'digit'", "digits"),
    ({"partition": "dirichlt"}, "unknown partition 'dirichlt'", "dirichlet"),
    ({"surrogate": {"kind": "noize"}}, "unknown surrogate 'noize'", "noise"),
    ({"roundz": 3}, "unknown setting 'roundz'", "rounds"),
    ({"optimizer": {"lrr": 1}}, "unknown setting of optimizer 'lrr'", "lr"),
    ({"method": {"name": "fedgps", "roh": 1}}, "unknown setting of fedgps 'roh'", "rho"),
    (
        {"method": {"name": "fedgps", "preset": "oficial"}},
        "unknown preset of fedgps 'oficial'",
        "official",
    ),
    ({"partition": {"alfa": 1}}, "unknown setting of partition dirichlet 'alfa'", "alpha"),
    ({"surrogate": {"per_clas": 3}}, "unknown setting of surrogate noise 'per_clas'", "per_class"),
    ({"dataset": {"name": "synthetic", "nois": 1}}, "unknown synthetic setting 'nois'", "noise"),
]


@pytest.mark.parametrize(("values", "what", "nearest"), MISSPELT, ids=[r[1] for r in MISSPELT])
def test_a_misspelt_name_is_answered_with_the_nearest_and_with_all(values, what, nearest):
    with pytest.raises(UserError) as caught:
        trial_spec(**values)
    assert str(caught.value).startswith(f"{what}. Did you mean '{nearest}'? Known: ")
    assert nearest in str(caught.value).partition("Known: ")[2].split(", ")


def test_a_setting_of_another_kind_of_partition_is_refused():
    with pytest.raises(UserError) as caught:
        trial_spec(partition={"kind": "classes", "alpha": 0.1})
    known = "Known: kind, classes_per_client, extra_class_range"
    assert str(caught.value) == f"unknown setting of partition classes 'alpha'. {known}"


def test_a_misspelt_setting_beside_a_method_object_is_told():
    with pytest.raises(UserError, match=r"unknown setting 'round'. Did you mean 'rounds'"):
        trial_spec(method=FedGPS(), round=3)


def test_everything_wrong_is_told_at_once():
    with pytest.raises(UserError) as caught:
        trial_spec(rounds=0, clients=0, optimizer={"lr": -1})
    lines = str(caught.value).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["clients", "optimizer.lr", "rounds"]


def test_wrong_execution_settings_are_told_too():
    with pytest.raises(UserError, match=r"checkpoint_seconds: must be greater.* got -1"):
        execution_spec(checkpoint_seconds=-1)
    with pytest.raises(UserError, match=r"unknown setting 'actor'. Did you mean 'actors'"):
        execution_spec(actor=1)
    assert execution_spec(out="here") == ExecutionSpec(out=Path("here"))


def test_paths_for_other_processes_are_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    there = ExecutionSpec(out="runs/x", data_dir="data").anywhere()
    assert (there["out"], there["data_dir"]) == (str(tmp_path / "runs/x"), str(tmp_path / "data"))
    assert ExecutionSpec().anywhere()["data_dir"] is None
