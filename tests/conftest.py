"""What all tests share: time limits that follow the machine's pace."""

import pytest

from fedgps_ray.cluster.policy import POLICY


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Give a test longer on a busy machine, as the program itself does, before its clock starts."""
    marker = item.get_closest_marker("timeout")
    seconds = marker.args[0] if marker and marker.args else float(item.config.getini("timeout"))
    item.add_marker(pytest.mark.timeout(seconds * POLICY.pace().slowness), append=False)
    return (yield)
