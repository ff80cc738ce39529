"""The interface of a method, and the values that pass through it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeAlias, TypeGuard

import numpy as np
from pydantic import ConfigDict
from typing_extensions import TypeVar

from fedgps_ray.tensors import Layout, Params
from fedgps_ray.training.local import Client, Local, Sgd

STRICT = ConfigDict(extra="forbid")  # a misspelt hyperparameter is an error


class HasParams(Protocol):
    """A server's state that holds the global model."""

    @property
    def params(self) -> Params:
        """The global model."""
        ...


# NamedTuples that each method declares for itself. Without type arguments they are Any.
StateT = TypeVar("StateT", default=Any)
MessageT = TypeVar("MessageT", default=Any)
UploadT = TypeVar("UploadT", default=Any)
MemoryT = TypeVar("MemoryT", default=Any)
ModelStateT = TypeVar("ModelStateT", bound=HasParams, default=Any)
UploadT_co = TypeVar("UploadT_co", covariant=True, default=Any)
SentT = TypeVar("SentT", default=Any)
AnswerT = TypeVar("AnswerT", default=Any)

# What the same values are to the code that only passes them on.
State: TypeAlias = object
Message: TypeAlias = object
Upload: TypeAlias = object
Memory: TypeAlias = object

Question: TypeAlias = Callable[[Local, MemoryT | None, SentT], AnswerT]
Presets: TypeAlias = Mapping[str, Mapping[str, Mapping[str, Any]]]


class Ask(Protocol):
    """Puts a question to all clients."""

    def __call__(
        self, question: Question[MemoryT, SentT, AnswerT], sent: SentT
    ) -> Sequence[AnswerT]:
        """Return the answers in client order; sent is what the server sends along."""
        ...


class About(NamedTuple):
    """What `fedgps-ray methods` shows beside the class's docstring and options."""

    client: str = ""
    server: str = ""
    state: str = ""
    up: str = ""  # numbers a client sends in a round; M is the size of the model
    down: str = ""
    source: str = ""


class Cohort(NamedTuple):
    """All clients, how many of them take part in a round, and the layout of the model."""

    clients: tuple[Client, ...]
    per_round: int
    layout: Layout


@dataclass(frozen=True)
class Turn:
    """One round: its number, the clients drawn for it, and the server's own random stream."""

    round: int
    clients: tuple[Client, ...]
    rng: np.random.Generator


class Work(NamedTuple, Generic[UploadT, MemoryT]):
    """What a client returns: an upload for the server, its own memory, figures for the log."""

    upload: UploadT
    memory: MemoryT | None
    loss: float  # mean over the local steps
    metrics: dict[str, float] = {}  # noqa: RUF012 (values are never changed in place)


class Reply(NamedTuple, Generic[UploadT_co]):
    """What came back from a client; a method uses the first two, the round loop the rest."""

    client: Client
    upload: UploadT_co
    memory: Any = None  # what it keeps for its next job: values, or where a pool has put them
    velocity: Any = None
    loss: float = 0.0
    metrics: dict[str, float] = {}  # noqa: RUF012 (values are never changed in place)
    steps: int = 0
    gradient_evaluations: int = 0
    finite: bool = True
    bytes_up: int = 0
    update_norm: float | None = None  # of the upload's delta, if it has one
    seconds: float = 0.0
    worker: str = ""
    sums: Any = None  # what an actor has added up so far, with the last reply of a call


class Method(Protocol[StateT, MessageT, UploadT, MemoryT]):
    """Both sides of a federated method. Values go in, values come out; nothing changes in place.

    A method is a frozen dataclass with these members; its fields are its options, each with a
    default. It needs no particular parent. `init`, `send`, `work` and `merge` must be written; all
    other members have a default in `BaseMethod`. Not part of the interface: `name`, by which a
    class in this folder is registered, `title`, its published name, and `about`.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]  # the options
    optimizer: ClassVar[Sgd]  # used where a spec sets none
    presets: ClassVar[Presets]  # name -> method, optimizer, spec or classes -> settings
    overrides: ClassVar[Mapping[str, Any]]  # settings of the spec that the method dictates

    def __hash__(self) -> int: ...

    @property
    def needs_surrogate(self) -> bool:
        """Whether clients draw from the shared noise set."""
        ...

    def num_outputs(self, num_classes: int) -> int:
        """Return the width of the head."""
        ...

    def init(self, params: Params, cohort: Cohort) -> StateT:
        """Return the server's state before round 0."""
        ...

    def send(self, state: StateT, turn: Turn) -> Sequence[MessageT]:
        """Return one message for each client of the turn."""
        ...

    def work(
        self, local: Local, message: MessageT, memory: MemoryT | None
    ) -> Work[UploadT, MemoryT]:
        """Train on one client; memory is what its last participation returned, or None."""
        ...

    def merge(self, state: StateT, replies: Sequence[Reply[UploadT]]) -> StateT:
        """Return the next state from the replies, which come in the order sent."""
        ...

    def deploy(self, state: StateT, turn: Turn, ask: Ask) -> Params:
        """Return the model that is tested; what is asked for here is counted as communication."""
        ...

    def global_params(self, state: StateT) -> Params:
        """Return the aggregated model, whose hash identifies the round."""
        ...

    def measure(self, state: StateT, turn: Turn, ask: Ask) -> dict[str, float]:
        """Return extra columns of the round; state is the one that was sent, before the merge."""
        ...

    def fade(self, memory: MemoryT) -> MemoryT:
        """Return the memory to keep once a client sits out a round (called once, then kept)."""
        ...


class BaseMethod(ABC, Generic[ModelStateT, MessageT, UploadT, MemoryT]):
    """A method's default members, for a state that holds the global model as `params`."""

    about: ClassVar[About] = About()
    optimizer: ClassVar[Sgd] = Sgd()
    presets: ClassVar[Presets] = {}
    overrides: ClassVar[Mapping[str, Any]] = {}

    @property
    def needs_surrogate(self) -> bool:
        """Clients see their own data only."""
        return False

    def num_outputs(self, num_classes: int) -> int:
        """Give every class one output."""
        return num_classes

    @abstractmethod
    def init(self, params: Params, cohort: Cohort) -> ModelStateT:
        """Return the server's state before round 0."""

    @abstractmethod
    def send(self, state: ModelStateT, turn: Turn) -> Sequence[MessageT]:
        """Return one message for each client of the turn."""

    @abstractmethod
    def work(
        self, local: Local, message: MessageT, memory: MemoryT | None
    ) -> Work[UploadT, MemoryT]:
        """Train on one client; memory is what its last participation returned, or None."""

    @abstractmethod
    def merge(self, state: ModelStateT, replies: Sequence[Reply[UploadT]]) -> ModelStateT:
        """Return the next state from the replies, which come in the order sent."""

    def deploy(self, state: ModelStateT, turn: Turn, ask: Ask) -> Params:
        """Test the global model itself."""
        return self.global_params(state)

    def global_params(self, state: ModelStateT) -> Params:
        """Return the global model."""
        return state.params

    def measure(self, state: ModelStateT, turn: Turn, ask: Ask) -> dict[str, float]:
        """Report nothing beyond the common columns."""
        return {}

    def fade(self, memory: MemoryT) -> MemoryT:
        """Keep everything."""
        return memory


def missing(candidate: object) -> list[str]:
    """Return the members of the interface that a class or an object does not have."""
    functions = [name for name in vars(Method) if not name.startswith("_")]
    members = [*Method.__annotations__, *functions]
    return [name for name in members if not hasattr(candidate, name)]


def is_method(candidate: object) -> TypeGuard[Method]:
    """Say whether an object, not a class, has all members of the interface."""
    return not isinstance(candidate, type) and not missing(candidate)
