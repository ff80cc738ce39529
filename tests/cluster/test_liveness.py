"""When an actor is pinged and when it is replaced: a clock, answers, and what follows."""

import pytest

from fedgps_ray.cluster.liveness import Liveness, Pace

LIMIT = 30.0  # so that a ping is due after 10 s without a sign of life
REST = None
YES, NO = True, False


@pytest.mark.parametrize(
    "story",
    [
        # (time, has the open ping been answered, limit, what follows)
        pytest.param(
            [(0, NO, LIMIT, "wait"), (10, NO, LIMIT, "wait"), (11, NO, LIMIT, "ping")],
            id="a ping is due after a third of the limit",
        ),
        pytest.param(
            [
                (0, NO, LIMIT, "wait"),
                (11, NO, LIMIT, "ping"),
                (41, NO, LIMIT, "wait"),
                (42, NO, LIMIT, "replace"),
            ],
            id="silence of the whole limit after a ping means hung",
        ),
        pytest.param(
            [
                (0, NO, LIMIT, "wait"),
                (11, NO, LIMIT, "ping"),
                (40, YES, LIMIT, "wait"),
                (50, NO, LIMIT, "wait"),
                (51, NO, LIMIT, "ping"),
                (80, NO, LIMIT, "wait"),
            ],
            id="an answer starts the clock again",
        ),
        pytest.param(
            [(0, NO, LIMIT, "wait"), (11, NO, LIMIT, "ping"), (500, YES, LIMIT, "wait")],
            id="a late look at an answer is no silence",
        ),
        pytest.param(
            [
                (0, NO, LIMIT, "wait"),
                (11, NO, LIMIT, "ping"),
                (20, NO, REST, "wait"),
                (99, NO, REST, "wait"),
                (100, NO, LIMIT, "wait"),
                (111, NO, LIMIT, "ping"),
                (112, NO, LIMIT, "wait"),
            ],
            id="an actor at rest is not watched, and an old ping is forgotten",
        ),
        pytest.param(
            [
                (0, NO, LIMIT, "wait"),
                (11, NO, LIMIT, "ping"),
                (42, NO, LIMIT, "replace"),
                (43, NO, LIMIT, "wait"),
                (53, NO, LIMIT, "ping"),
                (83, NO, LIMIT, "wait"),
                (84, NO, LIMIT, "replace"),
            ],
            id="its replacement is watched from the start",
        ),
        pytest.param(
            [
                (0, NO, 120.0, "wait"),
                (41, NO, 120.0, "ping"),
                (100, NO, 120.0, "wait"),
                (100, NO, LIMIT, "replace"),
            ],
            id="the limit is that of what it does now",
        ),
    ],
)
def test_liveness(story):
    liveness = Liveness()
    assert [liveness.look(now, answered, limit) for now, answered, limit, _ in story] == [
        step for *_, step in story
    ]


@pytest.mark.parametrize(
    ("load", "set_up", "slowness"),
    [(0.1, 2, 1), (4, 2, 2), (10, 2, 5), (100, 2, 8), (0, 30, 3), (4, 30, 3), (0, 900, 8)],
)
def test_pace_of_a_machine_with_two_cpus(load, set_up, slowness):
    pace = Pace(usual_set_up=10.0, slowest=8.0, load=lambda: (load, 0.0, 0.0), cpus=2)
    pace.learn(set_up)
    assert pace.slowness == slowness
