"""The ready-made files for clusters, checked as far as one machine can."""

import subprocess
from pathlib import Path

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from fedgps_ray.cluster import session
from fedgps_ray.errors import UserError

FOLDER = Path(__file__).parents[2] / "experiments" / "cluster"


def test_ray_accepts_the_cluster():
    config = prepare_config(yaml.safe_load((FOLDER / "ray-cluster.yaml").read_text()))
    validate_config(config)
    starts = config["head_start_ray_commands"] + config["worker_start_ray_commands"]
    starts = [line for line in starts if "ray start" in line]
    assert len(starts) == 2
    assert all("RAY_AUTH_MODE=token" in line for line in starts)


def test_ray_refuses_a_cluster_with_an_unknown_key():
    config = prepare_config(yaml.safe_load((FOLDER / "ray-cluster.yaml").read_text()))
    with pytest.raises(Exception, match="surprise"):
        validate_config({**config, "surprise": 1})


def test_job_for_kubernetes_has_what_a_rayjob_needs():
    job = yaml.safe_load((FOLDER / "rayjob.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec = job["spec"]["rayClusterSpec"]
    assert spec["rayVersion"] == "2.60.0"
    assert spec["authOptions"]["mode"] == "token"
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    for group in groups:
        pod = group["template"]["spec"]
        (container,) = pod["containers"]
        assert {"name", "image", "resources", "volumeMounts"} <= set(container)
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}
        assert container["resources"]["requests"] == container["resources"]["limits"]
    assert job["spec"]["entrypoint"].startswith("fedgps-ray sweep ")


def test_slurm_script_is_a_script():
    subprocess.run(["bash", "-n", str(FOLDER / "slurm.sh")], check=True)
    text = (FOLDER / "slurm.sh").read_text()
    assert "RAY_AUTH_MODE=token" in text
    assert "trap" in text


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("127.0.0.1:1", "no Ray cluster answers at 127.0.0.1:1"),
        ("nowhere.invalid:6379", "no Ray cluster answers at nowhere.invalid:6379"),
        ("ray://127.0.0.1:10001", "only the command line hands work over"),
    ],
)
def test_address_where_there_is_no_cluster(address, told):
    with pytest.raises(UserError, match=told), session.connected(address):
        pass
