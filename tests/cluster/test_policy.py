"""What follows a loss, case by case, and that the documentation has the same numbers."""

import dataclasses
from pathlib import Path

import pytest

from fedgps_ray.cluster.policy import POLICY, Next, RetryPolicy, table
from fedgps_ray.spec import ExecutionSpec

DOCUMENT = Path(__file__).parents[2] / "docs" / "determinism.md"
SMALL = RetryPolicy(
    max_deaths=2,
    hang_seconds=6.0,
    set_up_hang_seconds=9.0,
    next_actor_seconds=3.0,
    no_actor_seconds=7.0,
    set_up_seconds=4.0,
    set_up_pause=0.5,
    max_server_losses=2,
    server_pause=3.0,
    max_launches=3,
    launch_pause=10.0,
    folder_seconds=8.0,
)


@pytest.mark.parametrize(("deaths", "again"), [(1, True), (2, False), (3, False)])
def test_death_of_an_actor(deaths, again):
    assert SMALL.after_death(deaths).again == again


@pytest.mark.parametrize(
    ("hang", "set_up_hang", "is_ready", "seconds"),
    [(6, 9, True, 6), (6, 9, False, 9), (20, 9, True, 20), (20, 9, False, 20)],
)
def test_allowed_silence(hang, set_up_hang, is_ready, seconds):
    policy = RetryPolicy(hang_seconds=hang, set_up_hang_seconds=set_up_hang)
    assert policy.allowed_silence(is_ready) == seconds


@pytest.mark.parametrize(
    ("seconds", "others_ready", "again"),
    [(0, False, True), (4, False, True), (5, False, False), (500, True, True)],
)
def test_set_up_that_fails(seconds, others_ready, again):
    assert SMALL.after_failed_set_up(seconds, others_ready) == Next(again, 0.5)


@pytest.mark.parametrize(
    ("ready", "seconds", "waits"),
    [(0, 4, True), (0, 7, True), (0, 8, False), (1, 3, True), (1, 4, False), (5, 4, False)],
)
def test_waiting_for_the_actors_of_a_new_trial(ready, seconds, waits):
    assert SMALL.keeps_waiting(ready, seconds) == waits


@pytest.mark.parametrize(
    ("losses", "follows"), [(1, Next(True, 3)), (2, Next(True, 6)), (3, Next(False, 9))]
)
def test_lost_server(losses, follows):
    assert SMALL.after_server_loss(losses) == follows


@pytest.mark.parametrize(
    ("launches", "follows"), [(1, Next(True, 10)), (2, Next(True, 20)), (3, Next(False, 30))]
)
def test_lost_trial(launches, follows):
    assert SMALL.after_trial_loss(launches) == follows


def test_lost_driver():
    assert SMALL.after_driver_loss() == Next(True, 8)


def test_a_hung_lone_actor_is_replaced_before_its_trial_is_given_up():
    silence = POLICY.allowed_silence(is_ready=False)
    assert silence + silence / 3 < POLICY.no_actor_seconds


def test_limit_for_hangs_is_the_one_of_the_execution():
    assert ExecutionSpec().hang_seconds == POLICY.hang_seconds
    assert POLICY.with_hang(5.0) == dataclasses.replace(POLICY, hang_seconds=5.0)


def test_documentation_has_the_numbers():
    assert table() in DOCUMENT.read_text()
