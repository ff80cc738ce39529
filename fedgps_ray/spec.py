"""TrialSpec: every setting that can change a result. ExecutionSpec: those that must not."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, TypeVar

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
from fedgps_ray.errors import UserError, shown, unknown
from fedgps_ray.identity import Neutral, Settings, Table
from fedgps_ray.methods import METHODS, Method, outside
from fedgps_ray.methods.base import is_method
from fedgps_ray.models import Outside, parse_model
from fedgps_ray.references import Code, Found, found_of, give, give_object
from fedgps_ray.training.arithmetic import Precision
from fedgps_ray.training.local import Sgd

Checked = TypeVar("Checked", bound=BaseModel)

Logger = Literal["csv", "tensorboard", "wandb", "mlflow"]
Count = Annotated[int, Field(ge=1, lt=2**31)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]
KINDS = {"dirichlet": Dirichlet, "classes": Classes, "iid": Iid, "natural": Natural}
SURROGATES = {"noise": Noise, "file": LabelledFile}


def method_name(method: Method) -> str:
    """Return the name under which a method is registered, or its reference."""
    origin = found_of(type(method))
    if origin is not None:
        return origin.code.name
    return next(name for name, kind in METHODS.items() if kind is type(method))


def _parse_partition(value: object) -> object:
    return _parse_kind("partition", value, KINDS, "dirichlet")


def _parse_surrogate(value: object) -> object:
    return _parse_kind("surrogate", value, SURROGATES, "noise")


def _parse_kind(what: str, value: object, kinds: Settings, default: str) -> object:
    """Make one of several kinds from its name or from a table with its kind and options."""
    if isinstance(value, tuple(kinds.values())):
        return value
    if not isinstance(value, str | Mapping):
        raise UserError(f"{what}: must be a name or a table with a kind, got {shown(value)}")
    options = _table("kind", value)
    kind = str(options.get("kind", default))
    if kind not in kinds:
        raise unknown(what, kind, kinds)
    return kinds[kind](**options)


def _table(key: str, value: str | Settings) -> Table:
    return {key: value} if isinstance(value, str) else dict(value)


def _parse_method(value: object) -> Method:
    """Make a method from its name or from a table with its name, a preset and options."""
    if is_method(value):
        return value
    chosen = _chosen(value)
    options = {**chosen.preset.get("method", {}), **chosen.options}
    if chosen.name in METHODS:
        return chosen.kind(**options)
    return outside.make(chosen.kind, chosen.name, options)


class _Chosen(NamedTuple):
    """A method as it was named: its class, its name, the settings of a preset, its options."""

    kind: type[Method]
    name: str
    preset: Mapping[str, Any]
    options: dict[str, Any]


def _chosen(value: object) -> _Chosen:
    if isinstance(value, type):
        code = give_object(value, "method")
        value = {"name": code.name, "code": code.table}
    if not isinstance(value, str | Mapping) or "name" not in _table("name", value):
        raise UserError(f"method: must be a name or a table with a name, got {shown(value)}")
    options = _table("name", value)
    name = str(options.pop("name"))
    kind = _kind(name, options.pop("code", None))
    presets: dict[str, Mapping[str, Any]] = {"default": {}, **kind.presets}
    preset = str(options.pop("preset", "default"))
    if preset not in presets:
        raise unknown(f"preset of {name}", preset, presets)
    return _Chosen(kind, name, presets[preset], options)


def _kind(name: str, code: object) -> type[Method]:
    if code is not None:
        return outside.kind_of(Code.from_table(name, code))
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    return METHODS[name]


def _kind_and_preset(method: object) -> tuple[type[Method], Settings]:
    if is_method(method):
        return type(method), {}
    chosen = _chosen(method)
    return chosen.kind, chosen.preset


def _dump_method(method: Method) -> Table:
    return {"name": method_name(method), **_code(type(method)), **dataclasses.asdict(method)}


def _dump_model(model: str | Outside) -> str | Table:
    if isinstance(model, str):
        return model
    own = {"options": dict(model.options), "head": model.head}
    given = {key: value for key, value in own.items() if value}
    return {"name": model.name, **_code(model.make), **given}


def _code(imported: object) -> Table:
    origin = found_of(imported)
    return {} if origin is None else {"code": origin.code.table}


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
    model: Annotated[str | Outside, PlainValidator(parse_model), PlainSerializer(_dump_model)] = (
        "cnn"
    )
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
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    precision: Precision = "float32"
    device: Literal["cpu", "cuda"] = "cpu"
    deterministic: bool = True  # False: faster on a GPU, but equal trials may differ
    compile: bool = False  # True: steps on full batches run code that PyTorch has compiled

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
        """Refuse what only a GPU can do where the CPU computes, and what cannot be compiled."""
        if self.device == "cpu" and self.precision == "tf32":
            raise UserError("precision: tf32 is a mode of GPUs; use float32, or device cuda")
        if self.device == "cpu" and not self.deterministic:
            raise UserError(
                "deterministic: false is for device cuda; the CPU always repeats itself"
            )
        if self.compile and isinstance(self.model, Outside):
            raise UserError("compile: is for built-in models only; compile your own inside it")
        return self

    @property
    def code(self) -> tuple[Found, ...]:
        """Return the code from outside the package that the trial runs."""
        model = self.model.make if isinstance(self.model, Outside) else None
        candidates = [found_of(type(self.method)), found_of(model), datasets.code_of(self.dataset)]
        return tuple(one for one in candidates if one is not None)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Take the code along to other processes, as text."""
        if not self.code:
            return super().__reduce_ex__(protocol)
        return received, (self.model_dump(mode="json"), self.code)

    @property
    def partition_seed(self) -> int:
        """Scenario 1 is drawn with seed 0."""
        return self.scenario - 1

    @property
    def per_round(self) -> int:
        """How many clients take part in a round."""
        return max(1, round(self.sampling_rate * self.clients))

    @property
    def identity(self) -> Table:
        """Return the settings that are not neutral, as JSON."""
        return identity.identity(self)

    @functools.cached_property
    def trial_id(self) -> str:
        """Return the name of the trial's folder, which is also the key to resume it."""
        return identity.trial_id(self.identity)

    def model_copy(self, *, update: Settings | None = None, deep: bool = False) -> Self:
        """Return a copy, perhaps with other settings and therefore with another id."""
        copy = super().model_copy(update=update, deep=deep)
        copy.__dict__.pop("trial_id", None)
        return copy


def _number_of_actors(value: object) -> object:
    """Return the number of client actors; 0: all work is done in this process."""
    if value != "auto" and not (isinstance(value, int) and value >= 0):
        raise UserError(f"actors: must be 'auto' or a number from 0, got {shown(value)}")
    return value


class ExecutionSpec(BaseModel):
    """How and where a trial runs; none of it changes a result."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    out: Path = Path("runs/default")
    actors: Annotated[int | Literal["auto"], BeforeValidator(_number_of_actors)] = "auto"
    client_cpus: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    client_gpus: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    address: str | None = None  # of a running cluster; None: start one here
    # an actor silent for this long is replaced
    hang_seconds: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60.0
    checkpoint_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 30.0
    data_dir: Path | None = None
    download: bool = False
    storage: str | None = None  # URI where a sweep's results are kept; out is then a copy
    log: tuple[Logger, ...] = ()  # where else the rounds go
    files: dict[str, str] = {}  # content hash -> path of the data and code that the spec names

    @model_validator(mode="before")
    @classmethod
    def _without_device(cls, values: Any) -> Any:
        """Leave out the device, which older folders have here: it is the trial's."""
        return {name: value for name, value in values.items() if name != "device"}

    def anywhere(self) -> Table:
        """Return it as JSON, with absolute paths for processes in other folders."""
        data_dir = None if self.data_dir is None else self.data_dir.absolute()
        there = self.model_copy(update={"out": self.out.absolute(), "data_dir": data_dir})
        return there.model_dump(mode="json")

    @property
    def source(self) -> datasets.Source:
        """Return where data sets are read from."""
        return datasets.Source(self.data_dir, self.download, self.files)


def trial_spec(**values: object) -> TrialSpec:
    """Make a TrialSpec; an error names the field, the value and what is allowed."""
    return _told(TrialSpec, values)


def stored_spec(settings: Settings) -> TrialSpec:
    """Make a TrialSpec from stored settings; those added since then get their neutral value."""
    spec = trial_spec(**settings)
    whole = identity.completed(spec, settings)
    return spec if whole == settings else trial_spec(**whole)


def received(settings: Settings, code: Iterable[Found]) -> TrialSpec:
    """Make a TrialSpec in another process than the user's, from the code that came with it."""
    for origin in code:
        give(origin)
    return trial_spec(**settings)


def execution_spec(**values: object) -> ExecutionSpec:
    """Make an ExecutionSpec; an error names the field, the value and what is allowed."""
    return _told(ExecutionSpec, values)


def _told(kind: type[Checked], values: Settings) -> Checked:
    try:
        return kind(**values)
    except ValidationError as problem:
        lines = [_line(error, kind, values) for error in problem.errors()]
        raise UserError("\n".join(lines)) from None
    except UnicodeError:
        raise UserError("a text among the settings is not valid Unicode") from None


def _line(error: Any, kind: type[BaseModel], values: Settings) -> str:
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
        return f"{where}: must be a table of settings, got {shown(error['input'])}"
    reason = error["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return f"{where}: {reason[:1].lower()}{reason[1:]}, got {shown(error['input'])}"


def _unknown_setting(name: str, known: list[str], values: Settings) -> str:
    """Return what to say about a setting that does not exist, unless inside one of the parts."""
    given = {part: value for part, value in values.items() if isinstance(value, Mapping)}
    tables = {"method": {"name": "fedgps"}, "partition": {}, "surrogate": {}, **given}
    parts = ("optimizer", "method", "partition", "surrogate")
    inside = [part for part in parts if name in _known(part, tables.get(part, {}))[1]]
    if not inside:
        return str(unknown("setting", name, known))
    return f"unknown setting '{name}'. Did you mean '{inside[0]}.{name}'?"


def _known(part: str, given: Settings) -> tuple[str, list[str]]:
    """Return whose settings were given, and which there are."""
    if part == "method":
        kind = _kind(str(given["name"]), given.get("code"))
        return f" of {given['name']}", ["preset", *_names(kind)]
    if part == "optimizer":
        return " of optimizer", _names(Sgd)
    kinds, default = (KINDS, "dirichlet") if part == "partition" else (SURROGATES, "noise")
    kind = given.get("kind", default)
    return f" of {part} {kind}", _names(kinds[kind])


def _names(kind: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


def columns(spec: TrialSpec) -> Table:
    """Return the columns that identify a trial; every row of its results has them."""
    settings = spec.model_dump(mode="json")
    options = identity.method_options(settings, spec.identity)
    return identity.columns(spec.trial_id, settings, options)
