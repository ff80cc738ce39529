"""Ids that last: what is neutral stays neutral, and a spec can grow without changing an id."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated, ClassVar, get_args

import pytest
from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic.dataclasses import dataclass as checked_dataclass

from fedgps_ray import identity
from fedgps_ray.data import datasets
from fedgps_ray.data.partition import Classes, Dirichlet, Iid
from fedgps_ray.experiment import load, paper_files
from fedgps_ray.identity import Neutral, neutral_values
from fedgps_ray.methods import METHODS
from fedgps_ray.methods.fedgps import FedGPS
from fedgps_ray.methods.fedprox import FedProx
from fedgps_ray.spec import KINDS, SURROGATES, TrialSpec, stored_spec, trial_spec
from fedgps_ray.titles import TITLES
from fedgps_ray.training.local import Sgd

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SHA = "0123456789abcdef" * 4
FILES = {**paper_files(), "quickstart": ROOT / "experiments" / "quickstart.toml"}
GOLDEN = {
    name: ids
    for name, *ids in (line.split() for line in (HERE / "ids.txt").read_text().splitlines())
}
RECORDED = json.loads((HERE / "neutral.json").read_text())
CLASSES = {
    "trial": TrialSpec,
    "optimizer": Sgd,
    **{f"dataset {kind.__name__}": kind for kind in get_args(datasets.DatasetSpec)},
    **{f"partition {name}": kind for name, kind in KINDS.items()},
    **{f"surrogate {name}": kind for name, kind in SURROGATES.items()},
    **{f"method {name}": kind for name, kind in METHODS.items()},
}
SETTINGS = [  # of trials that rely on defaults, and of trials that do not
    {},
    {"batch_size": 64},
    {"batch_size": 32},
    {"rounds": 7, "optimizer": {"lr": 0.5}},
    {"partition": {"alpha": 0.3}},
    {"partition": "classes"},
    {"dataset": "cifar10", "surrogate": {"seed": 3}},
    {"dataset": {"name": "npz", "file": "own.npz", "sha256": SHA}},
    *[{"method": name} for name in METHODS],
]


# --- golden ids -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_ids_of_printed_runs_never_change(name):
    assert [cell.trial_id for cell in load(FILES[name]).cells] == GOLDEN[name]


def test_every_experiment_of_the_paper_has_golden_ids():
    assert set(GOLDEN) == set(FILES)
    tables = [ids for name, ids in GOLDEN.items() if name != "quickstart"]
    assert sum(map(len, tables)) == 1260 + 25 + 42 + 2  # tables, ablation, convergence, divergence


# --- neutral values -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CLASSES)
def test_neutral_values_are_recorded_and_never_change(name):
    now = neutral_values(CLASSES[name])
    if name not in RECORDED and name.removeprefix("method ") in set(METHODS) - set(TITLES):
        return  # a method that is still being added has no finished trials to protect
    assert name in RECORDED, f'new settings: add to neutral.json\n"{name}": {json.dumps(now)}'
    recorded = RECORDED[name]
    for setting, value in now.items():
        assert setting in recorded, (
            f'{name}: {setting} is new; add "{setting}": {json.dumps(value)} to neutral.json'
        )
        assert identity.canonical(value) == identity.canonical(recorded[setting]), (
            f"{name}: the neutral value of {setting} was {recorded[setting]!r}, now it is"
            f" {value!r}: this would change the ids of finished trials. To change a default, write"
            f" {setting}: Annotated[..., Neutral({recorded[setting]!r})] = {value!r}"
        )


def test_no_recorded_setting_is_gone():
    gone = [
        f"{name}: {setting}"
        for name, recorded in RECORDED.items()
        for setting in recorded
        if name not in CLASSES or setting not in neutral_values(CLASSES[name])
    ]
    assert gone == [], "trials with these settings could not be continued; keep the settings"


def test_every_setting_but_those_that_must_be_given_has_a_neutral_value():
    without = {
        f"{name}: {field}"
        for name, kind in CLASSES.items()
        for field in (
            kind.model_fields
            if kind is TrialSpec
            else [field.name for field in dataclasses.fields(kind)]
        )
        if field not in neutral_values(kind)
    }
    own = ("Npz", "Arrays", "Leaf", "ImageFolder", "HuggingFace")
    content = {f"dataset {kind}: {field}" for kind in own for field in ("file", "sha256")}
    code = {"dataset Function: name", "dataset Function: code"}
    assert without == {"dataset Named: name", *content, *code}


# --- what an identity is --------------------------------------------------------------------------


def test_an_identity_has_what_is_not_neutral_and_nothing_else():
    assert trial_spec(method="fedavg").identity == {"method": {"name": "fedavg"}}
    assert trial_spec(optimizer={"max_norm": None}).identity == {}
    assert trial_spec(
        method={"name": "fedprox", "mu": 0.5},
        dataset="cifar10",
        partition={"kind": "classes", "classes_per_client": 3},
        surrogate={"seed": 4},
        rounds=7,
    ).identity == {
        "method": {"name": "fedprox", "mu": 0.5},
        "dataset": {"name": "cifar10"},
        "partition": {"kind": "classes", "classes_per_client": 3},
        "surrogate": {"seed": 4},
        "rounds": 7,
    }


def test_an_identity_survives_json():
    for values in SETTINGS:
        spec = trial_spec(**values)
        assert identity.trial_id(json.loads(json.dumps(spec.identity))) == spec.trial_id


def test_a_zero_is_a_zero_whatever_its_sign():
    plus, minus = (trial_spec(surrogate={"noise_std": zero}) for zero in (0.0, -0.0))
    assert plus.trial_id == minus.trial_id


# --- a spec that grows ----------------------------------------------------------------------------


class Grown(TrialSpec):
    """The spec with new settings of several types."""

    warmup: float = 0.5
    stages: tuple[int, ...] = (1, 2)
    note: str | None = None


@pytest.mark.parametrize("values", SETTINGS, ids=str)
def test_a_new_setting_changes_no_id(values):
    assert Grown(**values).trial_id == trial_spec(**values).trial_id


@pytest.mark.parametrize("new", [{"warmup": 0.25}, {"stages": (1, 2, 3)}, {"note": ""}])
def test_a_new_setting_with_another_value_is_another_trial(new):
    assert Grown(**new).identity == trial_spec().identity | json.loads(json.dumps(new))
    assert Grown(**new).trial_id != trial_spec().trial_id


@checked_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class GrownDirichlet(Dirichlet):
    """The partition with a new setting."""

    floor: int = 3


def parse_grown(value):
    kinds = {**KINDS, "dirichlet": GrownDirichlet}
    table = {"kind": value} if isinstance(value, str) else dict(value)
    return kinds[table.get("kind", "dirichlet")](**table)


class GrownParts(TrialSpec):
    """The spec with a new setting in one of its parts."""

    partition: Annotated[GrownDirichlet | Classes | Iid, BeforeValidator(parse_grown)] = (
        GrownDirichlet()
    )


@pytest.mark.parametrize("partition", ["dirichlet", {"alpha": 0.3}, "classes", "iid"], ids=str)
def test_a_new_setting_of_a_part_changes_no_id(partition):
    assert GrownParts(partition=partition).trial_id == trial_spec(partition=partition).trial_id
    if partition not in ("classes", "iid"):
        other = GrownParts(partition={**parse_grown(partition).__dict__, "floor": 4})
        assert other.trial_id != trial_spec(partition=partition).trial_id


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A setting that has settings."""

    steps: int = 3


@dataclasses.dataclass(frozen=True)
class Ramp:
    """Another one in its place."""

    steps: int = 3


@checked_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class GrownGPS(FedGPS):
    """A method as someone else may write it, with new options."""

    boost: float = 1.0
    schedule: Schedule | Ramp | None = Schedule()


def test_a_new_option_of_a_method_changes_no_id(monkeypatch):
    before = [trial_spec(method=m).trial_id for m in ("fedgps", {"name": "fedgps", "rho": 0.1})]
    monkeypatch.setitem(METHODS, "fedgps", GrownGPS)
    assert [trial_spec(method=method).trial_id for method in (GrownGPS(), GrownGPS(rho=0.1))] == (
        before
    )
    others = [
        GrownGPS(boost=2.0),
        GrownGPS(schedule=Schedule(4)),
        GrownGPS(schedule=Ramp()),
        GrownGPS(schedule=Ramp(4)),
        GrownGPS(schedule=None),
    ]
    assert len({*before, *(trial_spec(method=method).trial_id for method in others)}) == 7


@dataclasses.dataclass(frozen=True)
class Plain:
    """Settings without pydantic, one of them with a changed default."""

    size: int
    rate: Annotated[float, Neutral(0.5)] = 0.25
    names: list[str] = dataclasses.field(default_factory=lambda: ["a"])


class Outside(BaseModel):
    """A spec of another package."""

    part: Plain = Plain(1)


def test_plain_dataclasses_have_neutral_values_too():
    assert neutral_values(Plain) == {"rate": 0.5, "names": ["a"]}
    assert identity.identity(Outside()) == {"part": {"size": 1, "rate": 0.25}}
    other = Outside(part=Plain(2, 0.5, ["b"]))
    assert identity.identity(other) == {"part": {"size": 2, "names": ["b"]}}


# --- defaults that change -------------------------------------------------------------------------


class Changed(TrialSpec):
    """The spec with another default, which says what it was."""

    batch_size: Annotated[int, Neutral(64)] = 32


@pytest.mark.parametrize("values", SETTINGS, ids=str)
def test_a_changed_default_changes_the_ids_that_relied_on_it(values):
    relied = "batch_size" not in values
    assert (Changed(**values).trial_id != trial_spec(**values).trial_id) == relied
    explicit = {"batch_size": 32, **values}
    assert Changed(**values).trial_id == trial_spec(**explicit).trial_id


@checked_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class ChangedProx(FedProx):
    """A method with another default and another optimizer."""

    mu: Annotated[float, Neutral(0.125)] = 0.5
    optimizer: ClassVar[Sgd] = dataclasses.replace(FedProx.optimizer, momentum=0.5)


def test_a_changed_default_of_a_method_changes_the_ids_that_relied_on_it(monkeypatch):
    given = {
        "both": ({"name": "fedprox", "mu": 0.125}, {"momentum": 0.9}),
        "mu": ({"name": "fedprox", "mu": 0.125}, {}),
        "momentum": ({"name": "fedprox"}, {"momentum": 0.9}),
        "other method": ({"name": "fedavg"}, {}),
    }

    def ids():
        return {k: trial_spec(method=m, optimizer=o).trial_id for k, (m, o) in given.items()}

    before = ids()
    monkeypatch.setitem(METHODS, "fedprox", ChangedProx)
    changed = {key for key, trial_id in ids().items() if trial_id != before[key]}
    assert changed == {"mu", "momentum"}


def test_a_stored_trial_without_a_setting_has_its_neutral_value(monkeypatch):
    old = trial_spec(method="fedprox").model_dump(mode="json")
    del old["method"]["mu"]  # as if it had been written before there was such an option
    monkeypatch.setitem(METHODS, "fedprox", ChangedProx)
    assert trial_spec(**old).method.mu == 0.5
    assert stored_spec(old).method.mu == 0.125
    assert stored_spec(old).identity == {"method": {"name": "fedprox"}}


class Loose(BaseModel):
    """A setting that may be a number or a switch."""

    clip: bool | int | list[bool | int] = 1


def test_true_is_not_one():
    values = [1, True, [1], [True]]
    ids = [identity.trial_id(identity.identity(Loose(clip=value))) for value in values]
    assert len(set(ids)) == 4
    assert identity.identity(Loose(clip=1)) == {}


class SameProx(FedProx):
    """A method that adds no settings and so is not decorated itself."""


def test_settings_that_are_inherited_are_neutral_too(monkeypatch):
    monkeypatch.setitem(METHODS, "same", SameProx)
    assert trial_spec(method="same").identity == {"method": {"name": "same"}}
    chosen = trial_spec(method={"name": "same", "mu": 0.25})
    assert chosen.identity == {"method": {"name": "same", "mu": 0.25}}
