"""The interface of a method: five functions and a number, and what goes through them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from pydantic import ConfigDict

from fedgps_ray.tensors import Layout, Params
from fedgps_ray.training.local import Client, Local, Sgd

STRICT = ConfigDict(extra="forbid")  # a misspelt hyperparameter is an error

# NamedTuples that each method declares for itself; to everyone else they are opaque values.
State = Any
Message = Any
Upload = Any
Memory = Any

Question = Callable[[Local, Memory | None, Any], Any]  # the last is what the server sends along
Ask = Callable[[Question, Any], list[Any]]  # puts a question to all clients, in client order


class About(NamedTuple):
    """What `fedgps-ray methods` tells, beside the class's docstring and fields."""

    client: str
    server: str
    state: str
    up: str  # numbers sent by a client in a round; M is the size of the model
    down: str
    source: str


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


class Work(NamedTuple):
    """What a client returns: for the server, for its later self, for the log."""

    upload: Upload
    memory: Memory | None
    loss: float  # mean over the local steps
    metrics: dict[str, float] = {}  # noqa: RUF012 (values are never changed in place)


class Reply(NamedTuple):
    """What came back from a client; a method uses the first two, the round loop the rest."""

    client: Client
    upload: Upload
    memory: Any = None  # what it keeps for its next job: values, or where a pool has put them
    velocity: Any = None
    loss: float = 0.0
    metrics: dict[str, float] = {}  # noqa: RUF012 (values are never changed in place)
    steps: int = 0
    gradient_evaluations: int = 0
    finite: bool = True
    seconds: float = 0.0
    worker: str = ""


class Method(Protocol):
    """Both sides of a federated method. Values go in, values come out; nothing changes in place."""

    about: ClassVar[About]
    optimizer: ClassVar[Sgd]  # the settings of the paper, where a spec gives none
    presets: ClassVar[Mapping[str, Mapping[str, Any]]]
    overrides: ClassVar[Mapping[str, Any]]  # settings of the spec that the method leaves no choice

    @property
    def needs_surrogate(self) -> bool:
        """Whether clients draw from the shared noise set."""
        ...

    def num_outputs(self, num_classes: int) -> int:
        """Return the width of the head."""
        ...

    def init(self, params: Params, cohort: Cohort) -> State:
        """Return the server's state before round 0."""
        ...

    def send(self, state: State, turn: Turn) -> Sequence[Message]:
        """Return one message for each client of the turn."""
        ...

    def work(self, local: Local, message: Message, memory: Memory | None) -> Work:
        """Train on one client."""
        ...

    def merge(self, state: State, replies: Sequence[Reply]) -> State:
        """Return the next state from the replies, which come in the order sent."""
        ...

    def deploy(self, state: State, turn: Turn, ask: Ask) -> Params:
        """Return the model that is tested; what is asked for here is counted as communication."""
        ...

    def global_params(self, state: State) -> Params:
        """Return the aggregated model, whose hash identifies the round."""
        ...

    def measure(self, state: State, turn: Turn, ask: Ask) -> dict[str, float]:
        """Return extra columns of the round; state is the one that was sent, before the merge."""
        ...

    def fade(self, memory: Memory) -> Memory:
        """Return what is still of use once a client sits out a round (asked once, then kept)."""
        ...
