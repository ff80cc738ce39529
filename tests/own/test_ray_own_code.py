"""Code of a user's own on real Ray actors: sent as text, the same bits, killed and resumed."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ray.cluster_utils import Cluster

from tests.processes import patient

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "fedgps_ray"]
PAGE = (ROOT / "docs" / "adding-a-method.md").read_text()
EXAMPLE = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)[0]
METHOD = ["--method", "fedema.py:FedEma", "--model", "mlp", "--clients", "4", "--alpha", "1"]
MOBILENET = [
    *("--model", "torchvision.models:mobilenet_v3_small", "--method", "fedavg"),
    *(
        "--dataset",
        "synthetic",
        "--set",
        "dataset.image_size=32",
        "--set",
        "dataset.train_size=160",
    ),
    *("--set", "dataset.test_size=40", "--clients", "4", "--alpha", "1", "--rounds", "2"),
    *("--checkpoint-seconds", "0"),
]

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(400)]


def start(folder, *arguments):
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(folder, *arguments):
    process = start(folder, *arguments)
    out, err = process.communicate()
    assert process.returncode == 0, err
    return out, err


def last_hash(folder, out):
    (path,) = (folder / out).glob("trials/*/trial.json")
    return json.loads(path.read_text())["summary"]["weights_sha256"]


def _has_checkpoint(out, rounds):
    found = sorted(out.glob("trials/*/checkpoint/round-*.json"))
    return bool(found) and int(found[-1].stem.removeprefix("round-")) >= rounds


def kill_after(folder, out, rounds, process):
    """Kill a run and all its processes once a checkpoint after so many rounds is there."""
    until = time.monotonic() + patient(200)
    while not _has_checkpoint(folder / out, rounds):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < until, "no checkpoint"
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_the_example_of_the_page_is_killed_and_resumed_on_actors(tmp_path):
    (tmp_path / "fedema.py").write_text(EXAMPLE)
    arguments = ["run", *METHOD, "--rounds", "120", "--checkpoint-seconds", "0"]
    run(tmp_path, *arguments, "--actors", "0", "--out", "whole")
    process = start(tmp_path, *arguments, "--actors", "2", "--out", "killed")
    kill_after(tmp_path, "killed", 2, process)
    _, err = run(tmp_path, "resume", "killed")
    assert f"fedema.py:FedEma is imported from {tmp_path / 'fedema.py'}" in err
    assert "continuing after round" in err
    assert last_hash(tmp_path, "killed") == last_hash(tmp_path, "whole")


def test_an_outside_network_is_the_same_on_actors_and_after_a_kill(tmp_path):
    run(tmp_path, "run", *MOBILENET, "--actors", "0", "--out", "none")
    run(tmp_path, "run", *MOBILENET, "--actors", "2", "--out", "two")
    process = start(tmp_path, "run", *MOBILENET, "--actors", "0", "--out", "killed")
    kill_after(tmp_path, "killed", 1, process)
    run(tmp_path, "resume", "killed")
    hashes = {last_hash(tmp_path, out) for out in ("none", "two", "killed")}
    assert len(hashes) == 1


def test_nodes_need_no_copy_of_the_file(tmp_path):
    """Two nodes; the file is gone as soon as the driver has read it, and so is the folder."""
    (tmp_path / "fedema.py").write_text(EXAMPLE)
    quick = ["--rounds", "3", "--batch-size", "64", "--actors", "0"]
    run(tmp_path, "run", *METHOD, *quick, "--out", "whole")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        cluster.add_node(num_cpus=1)
        driver = f"""
import os
from pathlib import Path
from fedgps_ray.cluster.crew import run_on_ray
from fedgps_ray.experiment import resolve
from fedgps_ray.spec import execution_spec
settings = dict(method="fedema.py:FedEma", model="mlp", clients=4, rounds=3, batch_size=64)
spec, files = resolve({{**settings, "partition": {{"alpha": 1}}}}, Path.cwd())
Path("fedema.py").unlink()
os.chdir("/")
execution = execution_spec(
    out="{tmp_path}/two", actors=2, address="{cluster.address}", files=files
)
list(run_on_ray(spec, execution))
"""
        ended = subprocess.run(
            [sys.executable, "-c", driver],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
    finally:
        cluster.shutdown()
    assert last_hash(tmp_path, "two") == last_hash(tmp_path, "whole")
