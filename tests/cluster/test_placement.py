"""Which actor does which work, case by case."""

import pytest

from fedgps_ray.cluster.placement import place

NOBODY = None


@pytest.mark.parametrize(
    ("costs", "owners", "loads", "calls", "waiting"),
    [
        # nothing to do, nobody to do it
        ([], [], {0: 0.0}, {}, []),
        ([1.0], [NOBODY], {}, {}, [0]),
        # the longest first, each to whoever has least to do: 5 | 4, then 3 to the second, 1 to 0
        ([1.0, 3.0, 5.0, 4.0], [NOBODY] * 4, {0: 0.0, 1: 0.0}, {0: [2, 0], 1: [3, 1]}, []),
        # equal costs keep their order, equal loads go to the lower number
        ([1.0, 1.0, 1.0], [NOBODY] * 3, {1: 0.0, 0: 0.0}, {0: [0, 2], 1: [1]}, []),
        # what an actor has to do already counts
        ([1.0, 1.0], [NOBODY] * 2, {0: 5.0, 1: 3.5}, {1: [0, 1]}, []),
        ([1.0, 1.0], [NOBODY] * 2, {0: 5.0, 1: 4.5}, {1: [0], 0: [1]}, []),
        # an owner does its own work however busy it is, and only while it is ready
        ([1.0, 2.0], [1, 1], {0: 0.0, 1: 9.0}, {1: [1, 0]}, []),
        ([1.0, 2.0, 3.0], [1, 2, NOBODY], {0: 0.0, 1: 0.0}, {0: [2], 1: [0]}, [1]),
        # work of an owner counts when the rest is placed
        ([2.0, 1.0], [0, NOBODY], {0: 0.0, 1: 0.0}, {0: [0], 1: [1]}, []),
        # what waits does so longest first too
        ([1.0, 2.0], [3, 4], {0: 0.0}, {}, [1, 0]),
    ],
)
def test_placement(costs, owners, loads, calls, waiting):
    assert place(costs, owners, loads) == (calls, waiting)


def test_what_goes_in_is_not_changed():
    loads = {0: 0.0}
    place([1.0], [NOBODY], loads)
    assert loads == {0: 0.0}
