"""TrialSpec, all that can change a number, and ExecutionSpec, all that must not."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    model_validator,
)

from fedgps_ray.data import datasets
from fedgps_ray.data.batches import Augment
from fedgps_ray.data.partition import Classes, Dirichlet, Iid, Natural, PartitionSpec
from fedgps_ray.data.surrogate import LabelledFile, Noise, SurrogateSpec
from fedgps_ray.errors import UserError, unknown
from fedgps_ray.methods import METHODS, FedAvg
from fedgps_ray.models import MODELS
from fedgps_ray.training.local import Sgd

Checked = TypeVar("Checked", bound=BaseModel)

SCHEMA_VERSION = 1  # of the results; part of every trial id
Count = Annotated[int, Field(ge=1, lt=2**31)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
KINDS = {"dirichlet": Dirichlet, "classes": Classes, "iid": Iid, "natural": Natural}
SURROGATES = {"noise": Noise, "file": LabelledFile}


def method_name(method: FedAvg) -> str:
    """Return the name under which a method is registered."""
    return next(name for name, kind in METHODS.items() if kind is type(method))


def _known_model(name: Any) -> Any:
    if not isinstance(name, str) or name not in MODELS:
        raise unknown("model", str(name), MODELS)
    return name


def _parse_partition(value: Any) -> Any:
    return _parse_kind("partition", value, KINDS, "dirichlet")


def _parse_surrogate(value: Any) -> Any:
    return _parse_kind("surrogate", value, SURROGATES, "noise")


def _parse_kind(what: str, value: Any, kinds: Mapping[str, Any], default: str) -> Any:
    """Make one of several kinds from its name or from a table with its kind and options."""
    if isinstance(value, tuple(kinds.values())):
        return value
    if not isinstance(value, str | Mapping):
        raise UserError(f"{what}: must be a name or a table with a kind, got {value!r}")
    options = _table("kind", value)
    kind = str(options.get("kind", default))
    if kind not in kinds:
        raise unknown(what, kind, kinds)
    return kinds[kind](**options)


def _table(key: str, value: str | Mapping[str, Any]) -> dict[str, Any]:
    return {key: value} if isinstance(value, str) else dict(value)


def _parse_method(value: Any) -> FedAvg:
    """Make a method from its name or from a table with its name, a preset and options."""
    if isinstance(value, FedAvg):
        return value
    name, preset, options = _split_method(value)
    return METHODS[name](**{**preset.get("method", {}), **options})


def _split_method(value: Any) -> tuple[str, Mapping[str, Any], dict[str, Any]]:
    if not isinstance(value, str | Mapping) or "name" not in _table("name", value):
        raise UserError(f"method: must be a name or a table with a name, got {value!r}")
    options = _table("name", value)
    name = str(options.pop("name"))
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    presets: dict[str, Mapping[str, Any]] = {"default": {}, **METHODS[name].presets}
    chosen = str(options.pop("preset", "default"))
    if chosen not in presets:
        raise unknown(f"preset of {name}", chosen, presets)
    return name, presets[chosen], options


def _kind_and_preset(method: Any) -> tuple[type[FedAvg], Mapping[str, Any]]:
    if isinstance(method, FedAvg):
        return type(method), {}
    name, preset, _ = _split_method(method)
    return METHODS[name], preset


def _dump_method(method: FedAvg) -> dict[str, Any]:
    return {"name": method_name(method), **dataclasses.asdict(method)}


class TrialSpec(BaseModel):
    """One trial: equal specs give equal numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: Annotated[datasets.DatasetSpec, BeforeValidator(datasets.parse)] = datasets.Named(
        "digits"
    )
    augment: Literal["auto", Augment] = "auto"
    partition: Annotated[PartitionSpec, BeforeValidator(_parse_partition)] = Dirichlet()
    scenario: Annotated[int, Field(ge=1, lt=2**32)] = 1
    clients: Count = 10
    sampling_rate: Annotated[float, Field(gt=0, le=1)] = 0.5
    selection: Literal["stream", "official"] = "stream"
    model: Annotated[str, BeforeValidator(_known_model)] = "cnn"
    method: Annotated[FedAvg, BeforeValidator(_parse_method), PlainSerializer(_dump_method)]
    optimizer: Sgd
    surrogate: Annotated[SurrogateSpec, BeforeValidator(_parse_surrogate)] = Noise()
    rounds: Count = 50
    local_epochs: Count = 1
    batch_size: Count = 64
    eval_logits: Literal["all", "real"] = "all"
    evaluate_every: Count = 1  # rounds; the last one is always tested
    seed: Seed = 0
    init_seed: Literal["train", "partition"] = "train"
    threads: Count = 1
    precision: Literal["float32", "float64"] = "float32"

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, values: Any) -> Any:
        """Fill what the method and its preset decide, unless it is given."""
        values = {"method": "fedgps", **values}
        kind, preset = _kind_and_preset(values["method"])
        own = values.get("optimizer", {})
        if isinstance(own, Mapping):
            defaults = dataclasses.asdict(kind.optimizer)
            values["optimizer"] = {**defaults, **preset.get("optimizer", {}), **own}
        how = values.get("partition")
        how = _table("kind", how) if isinstance(how, str) else how
        if isinstance(how, Mapping) and how.get("kind") == "classes":
            values["partition"] = {**preset.get("classes", {}), **how}
        return {**preset.get("spec", {}), **values, **kind.overrides}

    @property
    def partition_seed(self) -> int:
        """Scenario 1 is drawn with seed 0."""
        return self.scenario - 1

    @property
    def per_round(self) -> int:
        """How many clients take part in a round."""
        return max(1, round(self.sampling_rate * self.clients))

    def canonical(self) -> str:
        """Return the spec as JSON with sorted keys: the same text for the same trial."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))

    @property
    def trial_id(self) -> str:
        """Return the name of the trial's folder, which is also the key to resume it."""
        text = f"{SCHEMA_VERSION}:{self.canonical()}"
        return hashlib.sha256(text.encode()).hexdigest()[:12]


class ExecutionSpec(BaseModel):
    """How and where a trial is carried out; none of it changes a number."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    out: Path = Path("runs/default")
    actors: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"  # 0: in this process
    client_cpus: Annotated[float, Field(gt=0)] = 1.0
    client_gpus: Annotated[float, Field(ge=0)] = 0.0
    address: str | None = None  # of a running cluster; None: start one here
    device: Literal["auto", "cpu", "cuda"] = "auto"
    hang_seconds: Annotated[float, Field(gt=0)] = 60.0  # an actor silent for so long is replaced
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 30.0
    data_dir: Path | None = None
    download: bool = False
    storage: str | None = None  # URI where a sweep's results are kept; out is then a copy
    files: dict[str, str] = {}  # content hash -> path of the .npz files that the spec names

    @property
    def server_device(self) -> str:
        """The server works on the CPU, unless it does the clients' work too."""
        return "cuda" if self.actors == 0 and self.device == "cuda" else "cpu"

    def anywhere(self) -> dict[str, Any]:
        """Return it as JSON for other processes, whose current folder may be another."""
        data_dir = None if self.data_dir is None else self.data_dir.absolute()
        there = self.model_copy(update={"out": self.out.absolute(), "data_dir": data_dir})
        return there.model_dump(mode="json")

    @property
    def source(self) -> datasets.Source:
        """Return where data sets are read from."""
        return datasets.Source(self.data_dir, self.download, self.files)


def trial_spec(**values: Any) -> TrialSpec:
    """Make a TrialSpec; what is wrong is told by field, value and what is allowed."""
    return _told(TrialSpec, values)


def execution_spec(**values: Any) -> ExecutionSpec:
    """Make an ExecutionSpec; what is wrong is told by field, value and what is allowed."""
    return _told(ExecutionSpec, values)


def _told(kind: type[Checked], values: Mapping[str, Any]) -> Checked:
    try:
        return kind(**values)
    except ValidationError as problem:
        lines = [_line(error, kind, values) for error in problem.errors()]
        raise UserError("\n".join(lines)) from None


def _line(error: Any, kind: type[BaseModel], values: Mapping[str, Any]) -> str:
    """Return what is wrong with one setting."""
    inner = error.get("ctx", {}).get("error")
    if isinstance(inner, UserError):
        return str(inner)
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        *part, name = error["loc"]
        owner, known = _known(part[0], values[part[0]]) if part else ("", [*kind.model_fields])
        return str(unknown(f"setting{owner}", name, known))
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "dataclass_type":
        return f"{where}: must be a table of settings, got {error['input']!r}"
    reason = error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return f"{where}: {reason[:1].lower()}{reason[1:]}, got {error['input']!r}"


def _known(part: str, given: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return whose settings were given, and which there are."""
    if part == "method":
        return f" of {given['name']}", ["preset", *_names(METHODS[given["name"]])]
    if part == "optimizer":
        return " of optimizer", _names(Sgd)
    kinds, default = (KINDS, "dirichlet") if part == "partition" else (SURROGATES, "noise")
    kind = given.get("kind", default)
    return f" of {part} {kind}", _names(kinds[kind])


def _names(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def columns(spec: TrialSpec) -> dict[str, Any]:
    """Return the columns by which trials are told apart; they stand in every row of the results."""
    how, method = spec.partition, spec.method
    defaults = dataclasses.asdict(type(method)())
    options = {k: v for k, v in _dump_method(method).items() if v != defaults.get(k, v)}
    return {
        "trial_id": spec.trial_id,
        "dataset": getattr(spec.dataset, "file", "").removesuffix(".npz") or spec.dataset.name,
        "model": spec.model,
        "method": method_name(method),
        "method_options": json.dumps(options, sort_keys=True),
        "partition": how.kind,
        "alpha": getattr(how, "alpha", None),
        "classes_per_client": getattr(how, "classes_per_client", None),
        "scenario": spec.scenario,
        "seed": spec.seed,
        "clients": spec.clients,
        "sampling_rate": spec.sampling_rate,
        "rounds": spec.rounds,
        "local_epochs": spec.local_epochs,
        "batch_size": spec.batch_size,
        "lr": spec.optimizer.lr,
        "weighting": method.weighting,
        "client_momentum": spec.optimizer.client_momentum,
    }
