"""Which commands are handed over to a cluster by Ray Client, and what is sent along."""

import os
import sys

import pytest
import ray
from typer.testing import CliRunner

from fedgps_ray.cli import app
from fedgps_ray.cluster import handover
from fedgps_ray.cluster.handover import Deputy
from fedgps_ray.errors import Lost

HEAD = "ray://head:10001"


@pytest.fixture
def handed_over(monkeypatch):
    """Run a command and return the address and words of each hand-over; the code there is 7."""
    calls = []

    def hand_over(address, arguments, say):
        calls.append((address, arguments))
        return 7

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["fedgps-ray", *words])
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        code = CliRunner().invoke(app, words).exit_code
        return code, calls

    monkeypatch.setattr(handover, "hand_over", hand_over)
    return run


@pytest.mark.parametrize(
    "words",
    [
        ("sweep", "x.toml", "--address", HEAD, "--out", "o"),
        ("run", f"--address={HEAD}", "--rounds", "3"),
        ("paper", "run", "table1", "--address", HEAD),
        ("resume", "a-folder-of-the-cluster", "--address", HEAD),
    ],
)
def test_a_command_with_an_address_of_ray_client_runs_on_the_cluster(words, handed_over):
    assert handed_over(*words) == (7, [(HEAD, list(words))])


@pytest.mark.parametrize(
    "words",
    [
        ("sweep", HEAD),  # not an address
        ("run", "--rounds", "three", "--address", HEAD),  # mistakes are reported here
        ("sweep", "no.toml", "--address", HEAD, "--address", "auto"),  # the last one counts
    ],
)
def test_other_commands_stay_here(words, handed_over):
    code, calls = handed_over(*words)
    assert code not in (0, 7)
    assert not calls


class Context:
    gcs_address = "head:6379"


def test_deputy_runs_the_command_with_the_files_sent_along(monkeypatch):
    show = "import os, sys; print(open(sys.argv[1]).read(), *sys.argv[2:], os.environ.get('RAY_X'))"
    monkeypatch.setattr(handover, "PROGRAM", [sys.executable, "-c", show])
    monkeypatch.setattr(ray, "get_runtime_context", lambda: Context)
    monkeypatch.setitem(os.environ, "RAY_X", "of this actor")
    deputy = Deputy()
    deputy.start(["there/x.toml", "--out", "o"], {0: ("x.toml", "name = 'x'")})
    deputy.reader.join()
    assert deputy.news(0) == (["name = 'x' --out o --address head:6379 None"], 0)
    assert deputy.news(1) == ([], 0)
    deputy.folder.cleanup()


def test_deputy_stops_the_command_gently(monkeypatch):
    wait = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(130));"
    wait += "print('on', flush=True); time.sleep(60)"
    monkeypatch.setattr(handover, "PROGRAM", [sys.executable, "-c", wait])
    monkeypatch.setattr(ray, "get_runtime_context", lambda: Context)
    deputy = Deputy()
    deputy.start([], {})
    while not deputy.lines and deputy.reader.is_alive():
        pass
    assert deputy.news(0) == (["on"], None)
    deputy.stop()
    deputy.reader.join()
    assert deputy.news(0) == (["on"], 130)
    deputy.folder.cleanup()


@pytest.mark.parametrize(
    "problem", [ray.exceptions.GetTimeoutError("late"), ConnectionError("gone"), ConnectionError()]
)
def test_a_cluster_that_answers_no_more_is_a_loss(problem, monkeypatch):
    def get(asked, timeout):
        assert timeout > 0
        raise problem

    monkeypatch.setattr(ray, "get", get)
    with pytest.raises(Lost, match="the cluster does not answer any more"):
        handover._answer(None, 1.0)
