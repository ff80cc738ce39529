"""The same numbers, bit by bit, in one process and over any number of actors."""

import shutil

import pytest
import ray

from fedgps_ray.cluster.crew import run_on_ray
from fedgps_ray.events import Started, Status
from fedgps_ray.methods import METHODS

pytestmark = pytest.mark.ray

LARGE = {  # kept values of more than a megabyte are objects of their own
    "dataset": {"name": "synthetic", "image_size": 12, "train_size": 200, "test_size": 600},
    "model": "cnn",
}


@pytest.mark.parametrize("actors", [1, 2, 3, 5])  # 5: one client an actor
def test_number_of_actors_changes_no_bit(actors, tiny_spec, follow, in_process, numbers):
    spec = tiny_spec("fedgps_cf")
    rows = numbers(follow(spec, actors))
    assert len(rows) == spec.rounds
    assert rows == numbers(in_process(spec))


def test_run_on_ray_starts_its_actors_and_changes_no_bit(
    shared_cluster, tiny_spec, execution_for, in_process, numbers
):
    spec = tiny_spec("fedgps")
    events = list(run_on_ray(spec, execution_for(actors=2, client_cpus=0.5)))
    assert numbers(events) == numbers(in_process(spec))
    assert [event.rounds_done for event in events if isinstance(event, Started)] == [0]
    assert events[1] == Status("reserving room for the actors")
    assert ray.is_initialized(), "a cluster that was there before is left running"


@pytest.mark.parametrize("actors", [2, 5])
@pytest.mark.parametrize("method", ["fedgps", "fedgps_cf"])
def test_large_values_change_no_bit(method, actors, tiny_spec, on_actors, in_process, numbers):
    spec = tiny_spec(method, **LARGE)
    assert numbers(on_actors(spec, actors)) == numbers(in_process(spec))


def test_random_delays_change_no_bit(tiny_spec, on_actors, in_process, numbers):
    delayed = numbers(on_actors(tiny_spec("slow"), actors=3))
    assert delayed == numbers(in_process(tiny_spec("fedgps_cf")))


def test_local_epochs_and_rare_tests_change_no_bit(tiny_spec, on_actors, in_process, numbers):
    spec = tiny_spec("fedgps", local_epochs=2, evaluate_every=3, precision="float64")
    rows = numbers(on_actors(spec, actors=3))
    assert rows == numbers(in_process(spec))
    assert [row[2] is None for row in rows] == [True, True, False, False]  # 3 and the last


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.timeout(1200)
def test_compiled_code_changes_no_bit_from_actor_to_actor(
    tiny_spec, on_actors, in_process, numbers
):
    # of 200 images, one of the five clients has 40 or more, so a full batch of 32
    spec = tiny_spec("fedgps", compile=True, model="convnet", rounds=3, sampling_rate=1.0)
    assert numbers(on_actors(spec, actors=3)) == numbers(in_process(spec))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_gives_the_same_bits(method, tiny_spec, on_actors, in_process, numbers):
    spec = tiny_spec(method, rounds=3, evaluate_every=2)
    rows = numbers(on_actors(spec))
    assert len(rows) == spec.rounds
    assert rows == numbers(in_process(spec))


@pytest.mark.parametrize("every", [1, 2])
def test_questions_to_clients_change_no_bit(every, tiny_spec, on_actors, in_process):
    spec = tiny_spec({"name": "fedgps", "divergence_every": every})
    measured = [row["divergence"] for row in on_actors(spec, actors=3) if isinstance(row, dict)]
    alone = [row["divergence"] for row in in_process(spec) if isinstance(row, dict)]
    assert measured == alone
    assert measured[2] is not None
