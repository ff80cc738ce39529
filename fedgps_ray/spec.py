"""TrialSpec, all that can change a number, and ExecutionSpec, all that must not."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

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
from fedgps_ray.data.partition import Classes, Dirichlet, How, Iid
from fedgps_ray.data.surrogate import Noise, SurrogateSpec
from fedgps_ray.errors import UserError, nearest, unknown
from fedgps_ray.methods import METHODS, FedAvg
from fedgps_ray.models import MODELS
from fedgps_ray.training.local import Sgd

SCHEMA_VERSION = 1  # of the results; part of every trial id
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
KINDS = {"dirichlet": Dirichlet, "classes": Classes, "iid": Iid}


def method_name(method: FedAvg) -> str:
    """Return the name under which a method is registered."""
    return next(name for name, kind in METHODS.items() if kind is type(method))


def _known_model(name: Any) -> Any:
    if name not in MODELS:
        raise unknown("model", str(name), MODELS)
    return name


def _parse_partition(value: Any) -> Any:
    if not isinstance(value, str | Mapping):
        return value
    options = {"kind": value} if isinstance(value, str) else dict(value)
    kind = str(options.get("kind", "dirichlet"))
    if kind not in KINDS:
        raise unknown("partition", kind, KINDS)
    return KINDS[kind](**options)


def _parse_method(value: Any) -> FedAvg:
    """Make a method from its name or from a table with its name, a preset and options."""
    if isinstance(value, FedAvg):
        return value
    name, preset, options = _split_method(value)
    return METHODS[name](**{**preset.get("method", {}), **options})


def _split_method(value: Any) -> tuple[str, Mapping[str, Any], dict[str, Any]]:
    options = {"name": value} if isinstance(value, str) else dict(value)
    name = str(options.pop("name", ""))
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    presets: dict[str, Mapping[str, Any]] = {"default": {}, **METHODS[name].presets}
    chosen = str(options.pop("preset", "default"))
    if chosen not in presets:
        raise unknown(f"preset of {name}", chosen, presets)
    return name, presets[chosen], options


def _dump_method(method: FedAvg) -> dict[str, Any]:
    return {"name": method_name(method), **dataclasses.asdict(method)}


class TrialSpec(BaseModel):
    """One trial: equal specs give equal numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: Annotated[datasets.DatasetSpec, BeforeValidator(datasets.parse)] = datasets.Named(
        "digits"
    )
    augment: Augment | Literal["auto"] = "auto"
    partition: Annotated[How, BeforeValidator(_parse_partition)] = Dirichlet()
    scenario: Annotated[int, Field(ge=1, lt=2**32)] = 1
    clients: Count = 10
    sampling_rate: Annotated[float, Field(gt=0, le=1)] = 0.5
    selection: Literal["stream", "official"] = "stream"
    model: Annotated[str, BeforeValidator(_known_model)] = "cnn"
    method: Annotated[FedAvg, BeforeValidator(_parse_method), PlainSerializer(_dump_method)]
    optimizer: Sgd
    surrogate: SurrogateSpec = Field(default=Noise(), discriminator="kind")
    rounds: Count = 50
    local_epochs: Count = 1
    batch_size: Count = 64
    eval_logits: Literal["all", "real"] = "all"
    seed: Seed = 0
    init_seed: Literal["train", "partition"] = "train"
    threads: Count = 1
    precision: Literal["float32", "float64"] = "float32"

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, values: Any) -> Any:
        """Fill what the method and its preset decide, unless it is given."""
        values = dict(values)
        given = values.get("method", "fedgps")
        values["method"] = method = _parse_method(given)
        preset = {} if isinstance(given, FedAvg) else _split_method(given)[1]
        own = values.get("optimizer", {})
        if isinstance(own, Mapping):
            defaults = dataclasses.asdict(type(method).optimizer)
            values["optimizer"] = {**defaults, **preset.get("optimizer", {}), **own}
        how = values.get("partition")
        if isinstance(how, Mapping) and how.get("kind") == "classes":
            values["partition"] = {**preset.get("classes", {}), **how}
        return {**preset.get("spec", {}), **values, **type(method).overrides}

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
    actors: Annotated[int, Field(ge=0)] = 0
    device: str = "cpu"
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 30.0
    data_dir: Path | None = None
    download: bool = False
    files: dict[str, str] = {}  # content hash -> path of the .npz files that the spec names

    @property
    def source(self) -> datasets.Source:
        """Return where data sets are read from."""
        return datasets.Source(self.data_dir, self.download, self.files)


def trial_spec(**values: Any) -> TrialSpec:
    """Make a TrialSpec; what is wrong is told by field, value and what is allowed."""
    try:
        return TrialSpec(**values)
    except ValidationError as problem:
        raise UserError("\n".join(_told(problem, values))) from None


def _told(problem: ValidationError, values: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line for each thing that is wrong."""
    for error in problem.errors():
        inner = error.get("ctx", {}).get("error")
        if isinstance(inner, ValidationError):
            yield from _told(inner, values)
        elif isinstance(inner, UserError):
            yield str(inner)
        else:
            yield _line(error, values)


def _line(error: Any, values: Mapping[str, Any]) -> str:
    where = ".".join(str(part) for part in error["loc"] if part not in KINDS)
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"unknown setting '{where}'.{nearest(where.split('.')[-1], _settings(values))}"
    prefix = f"{where}: " if where else ""
    return f"{prefix}{error['msg'][:1].lower()}{error['msg'][1:]}, got {error['input']!r}"


def _settings(values: Mapping[str, Any]) -> list[str]:
    """Return every name that can be set, for suggestions."""
    method = _parse_method_kind(values.get("method", "fedgps"))
    parts: list[Any] = [method, Sgd, Noise, *KINDS.values()]
    return [*TrialSpec.model_fields, *(f.name for p in parts for f in dataclasses.fields(p))]


def _parse_method_kind(value: Any) -> type[FedAvg]:
    name = value if isinstance(value, str) else dict(value).get("name")
    return METHODS.get(str(name), FedAvg)


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
