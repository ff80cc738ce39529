"""From the options about devices to a trial's settings, and what is refused before Ray starts."""

import pytest
import torch

from fedgps_ray.api import devices, sweeps
from fedgps_ray.cli.commands.run import _will_train
from fedgps_ray.cli.commands.sweep import loaded
from fedgps_ray.cli.declared import Run, Sweep
from fedgps_ray.errors import UserError
from fedgps_ray.spec import execution_spec, trial_spec
from fedgps_ray.tools import doctor, repeats


@pytest.fixture
def gpu(monkeypatch):
    """Let PyTorch say that there is a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "NVIDIA A100")


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.parametrize(
    ("options", "device"),
    [
        ({}, {}),
        ({"device": "auto"}, {}),
        ({"client_gpus": 0.25}, {"device": "cuda"}),
        ({"client_gpus": 0.0}, {}),
        ({"device": "cuda"}, {"device": "cuda"}),
        ({"device": "cpu", "client_gpus": 0.25}, {"device": "cpu"}),
    ],
)
def test_a_share_of_a_gpu_means_cuda_unless_a_device_is_named(options, device):
    assert devices.device_settings(Run(**options).wanted) == device


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize(
    ("device", "execution"),
    [
        ("cpu", {}),
        ("cuda", {"actors": 0}),
        ("cuda", {"actors": 2, "client_gpus": 0.5}),
        ("cuda", {"client_gpus": 0.5, "address": "10.0.0.1:6379"}),
    ],
)
def test_a_device_that_is_there_is_accepted(device, execution):
    devices.check_devices([trial_spec(device=device)], execution_spec(**execution))


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize(
    ("device", "execution", "told"),
    [
        ("cuda", {}, "every actor needs a share of a GPU; add --client-gpus, such as 0.25"),
        ("cuda", {"client_gpus": 0.5}, "PyTorch finds no GPU here"),
        ("cuda", {"actors": 0}, "PyTorch finds no GPU here"),
        ("cpu", {"client_gpus": 0.5}, "--client-gpus 0.5: device cpu has no use for it"),
        ("cpu", {"client_gpus": 0.5, "address": "10.0.0.1:6379"}, "device cpu has no use for it"),
    ],
)
def test_a_share_without_a_gpu_and_a_gpu_without_a_share_are_refused(device, execution, told):
    with pytest.raises(UserError, match=told):
        devices.check_devices(
            [trial_spec(), trial_spec(device=device)], execution_spec(**execution)
        )


@pytest.mark.usefixtures("no_gpu")
def test_another_machine_may_have_the_gpu():
    there = execution_spec(client_gpus=0.5, address="10.0.0.1:6379")
    devices.check_devices([trial_spec(device="cuda")], there)


def test_a_gpu_that_is_left_idle_is_told_in_one_line(gpu):
    told = devices.unused_gpu(trial_spec(), execution_spec())
    assert told == ("this machine has a GPU that is not used (NVIDIA A100): add --client-gpus 0.25")
    assert devices.unused_gpu(trial_spec(), execution_spec(actors=0)).endswith("add --device cuda")
    assert devices.unused_gpu(trial_spec(device="cuda"), execution_spec(client_gpus=0.5)) is None
    assert devices.unused_gpu(trial_spec(), execution_spec(address="10.0.0.1:6379")) is None


def test_nothing_is_told_without_a_gpu(no_gpu):
    assert devices.unused_gpu(trial_spec(), execution_spec()) is None


@pytest.mark.parametrize("given", [{"device": "cuda"}, {"client_gpus": 0.5}], ids=str)
def test_ray_does_not_start_early_for_a_gpu_that_is_not_here(given, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not _will_train(Run(folder=tmp_path, **given))
    assert _will_train(Run(folder=tmp_path, address="10.0.0.1:6379", **given))
    driver = tmp_path / "nvidia-smi"
    driver.touch(mode=0o755)
    assert _will_train(Run(folder=tmp_path, **given))


@pytest.mark.parametrize(
    ("base", "share", "given", "device"),
    [
        ("", "", {}, "cpu"),
        ("", "client_gpus = 0.5", {}, "cuda"),
        ("", "", {"client_gpus": 0.5}, "cuda"),
        ("", "client_gpus = 0.5", {"device": "cpu"}, "cpu"),
        ('device = "cpu"', "client_gpus = 0.5", {}, "cpu"),
        ('device = "cuda"', "", {}, "cuda"),
        ('device = "cuda"', "", {"settings": ["device=cpu"]}, "cpu"),
    ],
)
def test_the_device_of_an_experiment(base, share, given, device, tmp_path):
    file = tmp_path / "mine.toml"
    grid = "[grid]\nseed = [0, 1]\n"
    file.write_text(f"[base]\nrounds = 2\n{base}\n{grid}[execution]\nactors = 1\n{share}\n")
    found = loaded(file, Sweep(file=file, **given))
    assert [cell.spec.device for cell in found.cells] == [device] * 2


@pytest.mark.parametrize(
    ("base", "share", "given", "device"),
    [
        ({}, {}, {}, "cpu"),
        ({}, {"client_gpus": 0.5}, {}, "cuda"),
        ({}, {}, {"client_gpus": 0.5}, "cuda"),
        ({}, {"client_gpus": 0.5}, {"device": "cpu", "client_gpus": 0}, "cpu"),
        ({"device": "cuda"}, {}, {}, "cuda"),
        ({"device": "cuda"}, {}, {"device": "auto"}, "cuda"),
        ({"device": "cuda"}, {}, {"device": "cpu"}, "cpu"),
    ],
)
@pytest.mark.usefixtures("gpu")
def test_the_device_of_a_python_sweep(base, share, given, device, tmp_path, monkeypatch):
    plans = []
    monkeypatch.setattr(sweeps, "_run_here", lambda plan, screen: plans.append(plan))
    monkeypatch.setattr(sweeps, "Results", lambda folder: None)
    tables = {"base": {"rounds": 2, **base}, "grid": {"seed": [0, 1]}, "execution": share}
    sweeps.sweep(tables, out=tmp_path, progress=False, **given)
    assert [spec.device for spec in plans[0].ledger.specs] == [device] * 2


@pytest.mark.usefixtures("no_gpu")
def test_a_sweep_of_python_code_is_refused_without_its_gpu(tmp_path):
    with pytest.raises(UserError, match="PyTorch finds no GPU here"):
        sweeps.sweep({"base": {"device": "cuda"}}, out=tmp_path / "sweep", progress=False)
    assert not (tmp_path / "sweep").exists()


# --- doctor -------------------------------------------------------------------------------------


def test_steps_done_twice_give_the_same_bits_here():
    first, second = repeats.hashes("cpu")
    assert first == second
    assert doctor.repeats("cpu").verdict == "ok"


def test_other_bits_are_a_problem(monkeypatch):
    monkeypatch.setattr(repeats, "hashes", lambda device: ["a" * 64, "b" * 64])
    finding = doctor.repeats("cuda")
    assert (finding.verdict, finding.found) == ("problem", f"{'a' * 12}, then {'b' * 12}")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_what_cuda_raises_is_a_finding():
    assert doctor.repeats("cuda").verdict == "problem"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_steps_done_twice_give_the_same_bits_on_a_gpu():
    assert len(set(repeats.hashes("cuda", times=3))) == 1
