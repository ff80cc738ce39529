"""Ray's own files are closed to other users where we start Ray."""

import stat
import subprocess
import sys

import pytest

from tests.processes import patient

PROGRAM = """
import os, stat
from pathlib import Path
import ray
from fedgps_ray.cluster import session
with session.connected(None):
    folder = Path(ray._private.worker._global_node.get_session_dir_path())
    print(folder, oct(stat.S_IMODE(folder.stat().st_mode)))
    print(ray.get(ray.remote(num_cpus=0)(lambda: 3).remote()))
"""


@pytest.mark.ray
def test_the_session_folder_is_closed_and_ray_works_in_it(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=patient(100),
        check=True,
    )
    first, second = ended.stdout.splitlines()[-2:]
    assert first.endswith(oct(stat.S_IRWXU))
    assert second == "3"
