"""What all tests share: time limits that follow the machine's pace, and a home of their own."""

import pytest

from fedgps_ray.cluster.policy import POLICY


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Give a test longer on a busy machine, as the program itself does, before its clock starts."""
    marker = item.get_closest_marker("timeout")
    seconds = marker.args[0] if marker and marker.args else float(item.config.getini("timeout"))
    item.add_marker(pytest.mark.timeout(seconds * POLICY.pace().slowness), append=False)
    return (yield)


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
