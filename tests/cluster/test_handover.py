"""Which commands are handed over to a cluster by Ray Client, and what is sent along."""

import os
import sys

import pytest
import ray

from fedgps_ray.cluster import handover
from fedgps_ray.cluster.handover import Deputy, split

HEAD = "ray://head:10001"


@pytest.mark.parametrize(
    ("given", "address", "others"),
    [
        (
            ["sweep", "x.toml", "--address", HEAD, "--out", "o"],
            HEAD,
            ["sweep", "x.toml", "--out", "o"],
        ),
        (["run", f"--address={HEAD}", "--rounds", "3"], HEAD, ["run", "--rounds", "3"]),
        (["sweep", "x.toml", "--address", "auto"], None, ["sweep", "x.toml", "--address", "auto"]),
        (["run", "--address=h:1"], None, ["run", "--address=h:1"]),
        (["run"], None, ["run"]),
    ],
)
def test_only_addresses_of_ray_client_are_taken_out(given, address, others):
    assert split(given) == (address, others)


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
