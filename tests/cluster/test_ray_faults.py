"""What dies is replaced and nothing changes; what is wrong ends the trial and says so."""

import contextlib
import json
import os
import re
import signal
import time
from dataclasses import dataclass, field

import pytest
import ray
from ray.exceptions import RayActorError

from fedgps_ray.cluster import crew as crews
from fedgps_ray.data.datasets import Source
from fedgps_ray.errors import ClientFailed, Lost
from fedgps_ray.events import Started, Status
from fedgps_ray.results.read import read_trial
from fedgps_ray.results.store import TrialStore
from fedgps_ray.sweep import library
from tests.processes import patient

pytestmark = [pytest.mark.ray, pytest.mark.slow]


def trial_info(spec, execution):
    return read_trial(TrialStore(execution.out, spec).folder)


def test_killed_client_actor_is_replaced(fault, follow, undisturbed, numbers, is_alive):
    spec, marker = fault("waits")
    events = []
    for event in follow(spec, actors=2):
        events.append(event)
        if marker.exists() and not marker.with_name("go").exists():
            os.kill(int(marker.read_text()), signal.SIGKILL)
            marker.with_name("go").touch()
    assert not is_alive(int(marker.read_text()))
    assert numbers(events) == undisturbed()


@pytest.mark.parametrize("actors", [1, 5])  # 5: the client waits for its own actor to come back
def test_deaths_of_actors_are_counted(actors, fault, on_actors, undisturbed, numbers, dispatchers):
    spec, marker = fault("dies")
    assert numbers(on_actors(spec, actors)) == undisturbed()
    assert marker.exists()
    assert dispatchers[-1].restarts == 1


def test_clients_that_die_once_each_are_not_blamed_for_each_other(
    fault, on_actors, undisturbed, numbers, dispatchers
):
    three = {"clients": 3, "rounds": 3}
    spec, _ = fault("dies", {"faulty_client": None}, **three)
    assert numbers(on_actors(spec, actors=1)) == undisturbed(**three)
    assert dispatchers[-1].restarts == 3


def test_actors_that_cannot_be_set_up_are_a_loss(tiny_spec, on_actors):
    spec = tiny_spec({"name": "dies_early", "owner": os.getpid()})
    with pytest.raises(Lost, match="no actor can be set up"):
        list(on_actors(spec, actors=1, set_up_seconds=1.0))


@pytest.mark.parametrize("actors", [1, 2])
def test_actor_that_stops_while_it_is_set_up_is_replaced(
    actors, tiny_spec, on_actors, in_process, numbers, until, is_alive, tmp_path
):
    options = {"folder": str(tmp_path), "owner": os.getpid()}
    spec = tiny_spec({"name": "stops_early", **options})
    soon = {"hang_seconds": 20.0, "set_up_hang_seconds": 20.0}  # its successor has to start in it
    rows = numbers(on_actors(spec, actors, **soon, next_actor_seconds=100.0))
    assert rows == numbers(in_process(tiny_spec("fedgps_cf")))
    until(lambda: not is_alive(int((tmp_path / "stopped").read_text())))


def test_stopped_library_is_replaced(shared_cluster, is_alive):
    """It takes no connection either, so that Ray itself soon gives up asking it."""
    _, shelf = library.start(Source())
    pid = ray.get(shelf.__ray_call__.remote(lambda _: os.getpid()))
    os.kill(pid, signal.SIGSTOP)

    @ray.remote(num_cpus=0)
    def ask(shelf):  # from a process that has never been connected to it
        return crews.answer(shelf, lambda: shelf.find.remote({"name": "digits"}))

    (found,) = ray.get(ask.remote(shelf))
    assert ray.get(found).num_classes == 10
    assert not is_alive(pid)
    ray.kill(shelf)


def test_lone_actor_that_never_answers_is_a_loss(tiny_spec, on_actors, tmp_path, until):
    spec = tiny_spec({"name": "stops_early", "folder": str(tmp_path), "owner": os.getpid()})
    with pytest.raises(Lost, match="no actor was ready for") as loss:
        list(on_actors(spec, actors=1, no_actor_seconds=2.0))
    told = re.fullmatch(r"no actor was ready for (\d+) s", str(loss.value))
    assert int(told[1]) >= 2, "seconds as they are; those of a slow machine count less"
    until((tmp_path / "stopped").exists, 90)  # other tests use the actor too: it has to come back
    os.kill(int((tmp_path / "stopped").read_text()), signal.SIGKILL)


def test_client_that_always_dies_ends_the_trial(fault, follow, execution_for):
    spec, _ = fault("always_dies")
    execution = execution_for()
    events = []
    with pytest.raises(ClientFailed, match="client 2: its actor died 3 times") as failure:
        events.extend(follow(spec, actors=2, execution=execution))
    assert "client 2" in str(failure.value).splitlines()[0]
    info = trial_info(spec, execution)
    assert info["status"] == "failed"
    assert "client 2" in info["error"]
    assert info["summary"]["rounds_done"] == 1


@pytest.mark.parametrize("actors", [2, 5])  # 5: the client loses its own actor
def test_an_actor_whose_gpu_is_full_is_done_without(
    actors, fault, on_actors, undisturbed, numbers, dispatchers
):
    spec, marker = fault("fills_gpu")
    assert numbers(on_actors(spec, actors)) == undisturbed()
    assert marker.exists()
    assert [seat.is_retired for seat in dispatchers[-1].seats].count(True) == 1
    assert dispatchers[-1].restarts == 1


def test_what_fills_every_gpu_ends_the_trial_and_says_what_to_change(fault, follow, execution_for):
    spec, _ = fault("always_fills_gpu")
    execution = execution_for()
    with pytest.raises(ClientFailed, match="out of GPU memory") as failure:
        list(follow(spec, actors=2, execution=execution))
    told = str(failure.value)
    assert "share is 0.2 of a GPU" in told
    assert f"a batch has {spec.batch_size} examples" in told
    assert "--client-gpus" in told
    assert "Tried to allocate 2.00 GiB" in told
    assert trial_info(spec, execution)["status"] == "failed"


def test_exception_of_a_client_surfaces_at_once(fault, follow, execution_for):
    spec, _ = fault("raises")
    execution = execution_for()
    trial = follow(spec, actors=2, execution=execution)
    assert isinstance(next(event for event in trial if not isinstance(event, Status)), Started)
    began = time.monotonic()
    with pytest.raises(ClientFailed, match="client 2 failed in round 2") as failure:
        list(trial)
    assert time.monotonic() - began < patient(30), "half of what a silent actor is given"
    assert "the dog ate the gradient" in str(failure.value)
    assert "faulty.py" in str(failure.value), "the traceback names the line that raised"
    info = trial_info(spec, execution)
    assert (info["status"], info["summary"]["rounds_done"]) == ("failed", 1)
    assert "client 2 failed in round 2" in info["error"]
    assert "the dog ate the gradient" in info["error"]


def test_client_without_numbers_is_a_result(fault, follow, undisturbed, numbers, execution_for):
    spec, _ = fault("not_a_number")
    execution = execution_for()
    rows = numbers(follow(spec, actors=2, execution=execution))
    assert rows[:1] == undisturbed()[:1]
    assert rows[1:] == [(2, *[None] * 6)]
    info = trial_info(spec, execution)
    assert (info["status"], info["summary"]["rounds_done"]) == ("diverged", 1)
    assert info["diverged"] == "the update of client 2 is not finite in round 2"


def test_hung_client_actor_is_replaced(
    fault, on_actors, undisturbed, numbers, dispatchers, until, is_alive
):
    spec, marker = fault("hangs")
    assert numbers(on_actors(spec, hang_seconds=3.0)) == undisturbed()
    assert dispatchers[-1].restarts >= 1
    until(lambda: not is_alive(int(marker.read_text())))


@dataclass
class Watched(crews.Crew):
    """A crew that tells the process ids of its servers."""

    servers: list[int] = field(default_factory=list)

    def start_server(self):
        server = super().start_server()
        self.servers.append(ray.get(server.control.remote("facts"))[0]["pid"])
        return server


def test_killed_server_is_followed_by_another(
    fault, crew, on_crew, execution_for, undisturbed, numbers, until, is_alive
):
    spec, marker = fault("waits", rounds=6)
    go = marker.with_name("go")
    watched = Watched(crew(2).server_room, crew(2).clients)
    execution = execution_for(checkpoint_seconds=0)
    checkpoints = TrialStore(execution.out, spec).checkpoints
    events = []
    for event in on_crew(watched, spec, execution):
        events.append(event)
        if marker.exists() and numbers(events) and not go.exists():
            kept = json.loads((checkpoints / "round-000001.json").read_text())
            assert kept["rounds_done"] == 1
            os.kill(watched.servers[0], signal.SIGKILL)
            until(lambda: not is_alive(watched.servers[0]))
            go.touch()
    assert len(watched.servers) == 2
    assert [event.rounds_done for event in events if isinstance(event, Started)] == [0, 1]
    assert numbers(events) == undisturbed(rounds=6)
    info = trial_info(spec, execution)
    assert (info["status"], info["summary"]["rounds_done"]) == ("finished", 6)


@dataclass
class Located(crews.Crew):
    """A crew that tells where its servers are."""

    nodes: list[str] = field(default_factory=list)

    def start_server(self):
        server = super().start_server()
        place = server.__ray_call__.remote(lambda self: ray.get_runtime_context().get_node_id())
        with contextlib.suppress(RayActorError):  # it was sent to a node that is not there any more
            self.nodes.append(ray.get(place))
        return server


LARGE = {  # kept values are objects of their own, which are lost with the node where they lie
    "dataset": {"name": "synthetic", "image_size": 12, "train_size": 200, "test_size": 600},
    "model": "cnn",
    "clients": 2,  # with an actor each, no actor has fetched what another one's client keeps
}


@pytest.mark.parametrize("lost", ["a client and its memories", "a client and the server"])
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of Ray, about the processes of a node
def test_lost_node(lost, nodes, fault, on_crew, execution_for, undisturbed, numbers):
    spec, marker = fault("waits", {"faulty_client": 1}, **LARGE)
    marker = marker.with_name("client-1")
    with_server = lost.endswith("server")
    execution = execution_for(actors=2, checkpoint_seconds=0 if with_server else 1000)
    events, go = [], marker.with_name("go")
    with (
        nodes(2) as two,
        crews.start(execution, spec.clients, spec.per_round) as started,
    ):
        crew = Located(started.server_room, started.clients)
        for event in on_crew(crew, spec, execution):
            events.append(event)
            if marker.exists() and numbers(events) and not go.exists():
                (two.lose if with_server else two.replace_other)(crew.nodes[0])
                go.touch()
    begins = [event.rounds_done for event in events if isinstance(event, Started)]
    assert begins == ([0, 1] if with_server else [0, 0])
    assert numbers(events)[-spec.rounds :] == undisturbed(**LARGE)
    assert trial_info(spec, execution)["status"] == "finished"
