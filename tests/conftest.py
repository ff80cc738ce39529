"""What all tests share: time limits that follow the machine's pace, and a home of their own."""

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


@pytest.fixture(autouse=True, scope="session")
def no_real_state(tmp_path_factory):
    """Let no fixture of a module write to the user's own record of code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDGPS_RAY_STATE", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory, monkeypatch):
    """Give each test an empty record of its own."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("FEDGPS_RAY_STATE", str(folder))
    return folder
