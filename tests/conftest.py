"""What all tests share: time limits that follow the machine's pace."""

import pytest

from fedgps_ray.cluster.policy import POLICY

RAY_SECONDS = 600.0  # the set-up of what tests share is counted too: a cluster and ten actors


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Give a test longer on a busy machine, as the program itself does, before its clock starts."""
    limit = seconds_for(item) * POLICY.pace().slowness
    item.add_marker(pytest.mark.timeout(limit), append=False)
    return (yield)


def seconds_for(item):
    """Return a test's own limit, or the usual one, which is longer for tests that start Ray."""
    marker = item.get_closest_marker("timeout")
    if marker and marker.args:
        return marker.args[0]
    usual = float(item.config.getini("timeout"))  # 0: none
    return max(usual, RAY_SECONDS) if usual and item.get_closest_marker("ray") else usual
