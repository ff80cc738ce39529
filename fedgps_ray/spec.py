"""TrialSpec: every setting that can change a result. ExecutionSpec: those that must not."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationError,
    model_validator,
)

from fedgps_ray import identity
from fedgps_ray.data import datasets
from fedgps_ray.data.batches import Augment
from fedgps_ray.data.partition import Classes, Dirichlet, Iid, Natural, PartitionSpec
from fedgps_ray.data.surrogate import LabelledFile, Noise, SurrogateSpec
from fedgps_ray.errors import UserError, unknown
from fedgps_ray.identity import Neutral
from fedgps_ray.methods import METHODS, Method
from fedgps_ray.methods.base import is_method
from fedgps_ray.models import MODELS
from fedgps_ray.training.arithmetic import Precision
from fedgps_ray.training.local import Sgd

Checked = TypeVar("Checked", bound=BaseModel)

Count = Annotated[int, Field(ge=1, lt=2**31)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
KINDS = {"dirichlet": Dirichlet, "classes": Classes, "iid": Iid, "natural": Natural}
SURROGATES = {"noise": Noise, "file": LabelledFile}


def method_name(method: Method) -> str:
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


def _parse_method(value: Any) -> Method:
    """Make a method from its name or from a table with its name, a preset and options."""
    if is_method(value):
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


def _kind_and_preset(method: Any) -> tuple[type[Method], Mapping[str, Any]]:
    if is_method(method):
        return type(method), {}
    name, preset, _ = _split_method(method)
    return METHODS[name], preset


def _dump_method(method: Method) -> dict[str, Any]:
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
    method: Annotated[
        Method, PlainValidator(_parse_method), PlainSerializer(_dump_method), Neutral("fedgps")
    ]
    optimizer: Annotated[Sgd, Neutral(Sgd())]  # by default the method's own
    surrogate: Annotated[SurrogateSpec, BeforeValidator(_parse_surrogate)] = Noise()
    rounds: Count = 50
    local_epochs: Count = 1
    batch_size: Count = 64
    eval_logits: Literal["all", "real"] = "all"
    evaluate_every: Count = 1  # rounds; the last one is always tested
    seed: Seed = 0
    init_seed: Literal["train", "partition"] = "train"
    threads: Count = 1
    precision: Precision = "float32"
    device: Literal["cpu", "cuda"] = "cpu"
    deterministic: bool = True  # False: faster on a GPU, but equal trials may differ

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
        partition = values.get("partition")
        partition = _table("kind", partition) if isinstance(partition, str) else partition
        if isinstance(partition, Mapping) and partition.get("kind") == "classes":
            values["partition"] = {**preset.get("classes", {}), **partition}
        return {**preset.get("spec", {}), **values, **kind.overrides}

    @model_validator(mode="after")
    def _fits_device(self) -> Self:
        """Refuse what only a GPU can do where the CPU computes."""
        if self.device == "cpu" and self.precision == "tf32":
            raise UserError("precision: tf32 is a mode of GPUs; use float32, or device cuda")
        if self.device == "cpu" and not self.deterministic:
            raise UserError(
                "deterministic: false is for device cuda; the CPU always repeats itself"
            )
        return self

    @property
    def partition_seed(self) -> int:
        """Scenario 1 is drawn with seed 0."""
        return self.scenario - 1

    @property
    def per_round(self) -> int:
        """How many clients take part in a round."""
        return max(1, round(self.sampling_rate * self.clients))

    @property
    def identity(self) -> dict[str, Any]:
        """Return the settings that are not neutral, as JSON."""
        return identity.identity(self)

    @property
    def trial_id(self) -> str:
        """Return the name of the trial's folder, which is also the key to resume it."""
        return identity.trial_id(self.identity)


class ExecutionSpec(BaseModel):
    """How and where a trial runs; none of it changes a result."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    out: Path = Path("runs/default")
    actors: Annotated[int, Field(ge=0)] | Literal["auto"] = "auto"  # 0: in this process
    client_cpus: Annotated[float, Field(gt=0)] = 1.0
    client_gpus: Annotated[float, Field(ge=0)] = 0.0
    address: str | None = None  # of a running cluster; None: start one here
    hang_seconds: Annotated[float, Field(gt=0)] = 60.0  # an actor silent for so long is replaced
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 30.0
    data_dir: Path | None = None
    download: bool = False
    storage: str | None = None  # URI where a sweep's results are kept; out is then a copy
    files: dict[str, str] = {}  # content hash -> path of the .npz files that the spec names

    @model_validator(mode="before")
    @classmethod
    def _without_device(cls, values: Any) -> Any:
        """Leave out the device, which older folders have here: it is the trial's."""
        return {name: value for name, value in values.items() if name != "device"}

    def anywhere(self) -> dict[str, Any]:
        """Return it as JSON, with absolute paths for processes in other folders."""
        data_dir = None if self.data_dir is None else self.data_dir.absolute()
        there = self.model_copy(update={"out": self.out.absolute(), "data_dir": data_dir})
        return there.model_dump(mode="json")

    @property
    def source(self) -> datasets.Source:
        """Return where data sets are read from."""
        return datasets.Source(self.data_dir, self.download, self.files)


def trial_spec(**values: Any) -> TrialSpec:
    """Make a TrialSpec; an error names the field, the value and what is allowed."""
    return _told(TrialSpec, values)


def stored_spec(settings: Mapping[str, Any]) -> TrialSpec:
    """Make a TrialSpec from stored settings; those added since then get their neutral value."""
    spec = trial_spec(**settings)
    whole = identity.completed(spec, settings)
    return spec if whole == settings else trial_spec(**whole)


def execution_spec(**values: Any) -> ExecutionSpec:
    """Make an ExecutionSpec; an error names the field, the value and what is allowed."""
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
        if not part:
            return _unknown_setting(name, [*kind.model_fields], values)
        owner, known = _known(part[0], values[part[0]])
        return str(unknown(f"setting{owner}", name, known))
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "dataclass_type":
        return f"{where}: must be a table of settings, got {error['input']!r}"
    reason = error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return f"{where}: {reason[:1].lower()}{reason[1:]}, got {error['input']!r}"


def _unknown_setting(name: str, known: list[str], values: Mapping[str, Any]) -> str:
    """Return what to say about a setting that does not exist, unless inside one of the parts."""
    given = {part: value for part, value in values.items() if isinstance(value, Mapping)}
    tables = {"method": {"name": "fedgps"}, "partition": {}, "surrogate": {}, **given}
    parts = ("optimizer", "method", "partition", "surrogate")
    inside = [part for part in parts if name in _known(part, tables.get(part, {}))[1]]
    if not inside:
        return str(unknown("setting", name, known))
    return f"unknown setting '{name}'. Did you mean '{inside[0]}.{name}'?"


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
    """Return the columns that identify a trial; every row of its results has them."""
    settings = spec.model_dump(mode="json")
    options = identity.method_options(settings, spec.identity)
    return identity.columns(spec.trial_id, settings, options)
