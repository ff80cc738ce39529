"""Numbers as people read them."""

import pytest

from fedgps_ray.units import duration, percent, size


@pytest.mark.parametrize(
    ("num_bytes", "told"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.6, "1 KB"),
        (1000, "1 KB"),
        (999_499, "999 KB"),
        (999_600, "1 MB"),
        (1_234_567, "1.23 MB"),
        (2.5e13, "25 TB"),
    ],
)
def test_sizes_have_three_digits_at_most(num_bytes, told):
    assert size(num_bytes) == told


@pytest.mark.parametrize(
    ("seconds", "told"), [(0, "0:00"), (59.6, "1:00"), (61, "1:01"), (3599.6, "1:00:00")]
)
def test_durations_round_to_whole_seconds(seconds, told):
    assert duration(seconds) == told


def test_percentages():
    assert (percent(0.5), percent(None)) == ("50.00 %", "-")
