"""The walk of `run` in docs/architecture.md is the call stack of a real trial."""

import re
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray

from fedgps_ray import cli
from fedgps_ray.cluster import crew, session, stops
from fedgps_ray.cluster.host import Host
from fedgps_ray.rounds import loop
from fedgps_ray.training import local

PAGE = (Path(__file__).parents[1] / "docs" / "architecture.md").read_text()
SECTION = PAGE.partition("## The walk of `run`")[2].partition("\n## ")[0]
WALK = re.findall(r"^- → `([\w.]+)`", SECTION, flags=re.MULTILINE)
LOOP = WALK.index("rounds.loop")
TINY = "run --method fedgps --model mlp --clients 2 --sampling-rate 1 --rounds 1 --batch-size 64"
CLIENTS = 2


# --- Ray without processes ------------------------------------------------------------------------


class Reference:
    """A value in an object store that does not exist."""

    def __init__(self, value):
        self.value = value


def get(reference):
    return reference.value if isinstance(reference, Reference) else reference


class Remote:
    """A method of an actor: a call is made at once, in this process, and on this stack."""

    def __init__(self, method, num_returns=1):
        self.method, self.num_returns = method, num_returns

    def options(self, num_returns):
        return Remote(self.method, num_returns)

    def remote(self, *arguments):
        result = self.method(*map(get, arguments))
        if self.num_returns == "streaming":
            return result
        if self.num_returns == 1:
            return Reference(result)
        return [Reference(part) for part in result]


class Handle:
    """The handle of an actor."""

    def __init__(self, host):
        self.host = host

    def __getattr__(self, method):
        return Remote(getattr(self.host, method))


@contextmanager
def start(execution, clients, per_round):
    """Start the crew of a trial in this process."""
    hosts = [Handle(Host(crew.CLIENT)) for _ in range(CLIENTS)]
    yield crew.Crew(None, hosts, Handle(crew.ServerHost(crew.SERVER)))


@pytest.fixture
def no_processes(monkeypatch):
    """Put all actors of a trial into this process."""
    here = SimpleNamespace(get_node_id=lambda: "here", get_assigned_resources=dict)
    monkeypatch.setattr(ray, "put", Reference)
    monkeypatch.setattr(ray, "get", get)
    monkeypatch.setattr(ray, "wait", lambda references, **_: (references, []))
    monkeypatch.setattr(ray, "get_runtime_context", lambda: here)
    monkeypatch.setattr(ray, "get_gpu_ids", list)
    monkeypatch.setattr(session, "start_early", lambda address: None)
    monkeypatch.setattr(session, "answer_with", lambda **answers: None)
    monkeypatch.setattr(session, "connected", nullcontext)
    monkeypatch.setattr(crew, "start", start)


# --- stacks ---------------------------------------------------------------------------------------


def stack():
    """Return the package's modules on the stack, outermost first; neighbours are counted once."""
    frame, names = sys._getframe(), []
    while frame is not None:
        room, _, name = frame.f_globals["__name__"].partition(".")
        if room == "fedgps_ray" and names[-1:] != [name]:
            names.append(name)
        frame = frame.f_back
    return names[::-1]


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Run a command; return the stacks at a client's step and at the hash of the weights."""
    stacks = {"step": [], "hash": []}

    def watch(module, name, moment):
        function = getattr(module, name)

        def watched(*arguments, **options):
            own = function.__module__.removeprefix("fedgps_ray.")
            above = stack()
            stacks[moment].append(above if above[-1] == own else [*above, own])
            return function(*arguments, **options)

        monkeypatch.setattr(module, name, watched)

    def call(command):
        watch(local, "descend", "step")
        watch(loop, "sha256", "hash")
        monkeypatch.setattr(sys, "argv", ["fedgps-ray", *command.split(), "--out", str(tmp_path)])
        monkeypatch.setattr(stops.signal, "signal", lambda *_: None)
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert end.value.code == 0
        return stacks

    return call


def without_ray(walk):
    """Return the walk of a trial that runs in the command's process."""
    own = [name for name in walk if not name.startswith("cluster.")]
    after = own.index("rounds.loop") + 1
    return [*own[:after], "rounds.pool", *own[after:]]


def test_walk_to_a_clients_step(run, no_processes):
    stacks = run(f"{TINY} --actors {CLIENTS}")
    assert stacks["step"]
    assert all(stack == WALK[:-1] for stack in stacks["step"])


def test_walk_to_the_hash(run, no_processes):
    (found,) = run(f"{TINY} --actors {CLIENTS}")["hash"]
    assert found == [*WALK[: LOOP + 1], WALK[-1]]


def test_walk_in_one_process(run):
    stacks = run(f"{TINY} --actors 0")
    (hashed,) = stacks["hash"]
    own = [name for name in WALK[: LOOP + 1] if not name.startswith("cluster.")]
    assert hashed == [*own, WALK[-1]]
    assert stacks["step"]
    assert all(stack == without_ray(WALK)[:-1] for stack in stacks["step"])


def test_walk_is_short_and_enters_no_module_twice():
    assert len(WALK) == len(set(WALK)) <= 18
