"""run and spec, as Python code and notebooks call them."""

import io
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console

import fedgps_ray
from fedgps_ray.api import notebook, running, trials
from fedgps_ray.api.settings import suited_trial as command_line_trial
from fedgps_ray.data import datasets
from fedgps_ray.data.batches import Batches, examples
from fedgps_ray.methods.fedgps import FedGPS
from fedgps_ray.methods.fedprox import FedProx
from fedgps_ray.results import files
from fedgps_ray.results.read import check, read_trial
from fedgps_ray.rounds.worker import Worker
from fedgps_ray.spec import ExecutionSpec
from tests.processes import start


def test_run_returns_the_curve_the_clients_and_where_they_are(tiny):
    result = fedgps_ray.run(**tiny)
    assert list(result.rounds["round"]) == [1, 2, 3]
    assert result.best_accuracy == result.rounds["accuracy"].max()
    assert set(result.clients["round"]) == {1, 2, 3}
    assert result.folder == Path("runs/default/trials") / result.trial_id
    assert result.status == "finished"
    assert result.partition["count"].sum() == 60
    assert repr(result) == (
        f"<Result fedavg: finished, 3/3 rounds, best accuracy {100 * result.best_accuracy:.2f} %,"
        f" {result.folder}>"
    )
    assert "<table" in result._repr_html_()
    assert "&lt;Result" not in result._repr_html_()


def test_a_summary_that_lacks_figures_has_none(tiny):
    result = fedgps_ray.run(**tiny)
    result.info["summary"] = {"rounds_done": 3}
    assert result.best_accuracy is None
    assert "3/3 rounds, best accuracy -" in repr(result)


def test_it_is_the_trial_of_the_command_line(tiny):
    settings = ["optimizer.lr=0.05", "method.name=fedprox", "partition.alpha=0.5", "clients=4"]
    made = command_line_trial({}, settings).spec
    same = fedgps_ray.spec(method="fedprox", lr=0.05, alpha=0.5, clients=4)
    assert same.trial_id == made.trial_id


@pytest.mark.parametrize(
    "settings",
    [
        {"method": {"name": "fedgps", "rho": 0.3}, "optimizer": {"lr": 0.05}},
        {"method": "fedgps", "method_rho": 0.3, "optimizer_lr": 0.05},
        {"method.rho": 0.3, "optimizer.lr": 0.05},
        {"method": FedGPS(rho=0.3), "lr": 0.05},
    ],
)
def test_settings_can_be_written_in_several_ways(settings):
    made = fedgps_ray.spec(**settings)
    assert made.method == FedGPS(rho=0.3)
    assert made.optimizer.lr == 0.05
    assert made.trial_id == fedgps_ray.spec(method=FedGPS(rho=0.3), lr=0.05).trial_id


def test_a_finished_trial_is_returned_without_training(tiny, monkeypatch):
    first = fedgps_ray.run(**tiny)
    monkeypatch.setattr(Worker, "work", lambda *_: pytest.fail("trained again"))
    assert fedgps_ray.run(**tiny).summary == first.summary


def test_restart_trains_again(tiny):
    first = fedgps_ray.run(**tiny)
    written = (first.folder / "model.safetensors").stat().st_mtime_ns
    again = fedgps_ray.run(**tiny, restart=True)
    assert (again.folder / "model.safetensors").stat().st_mtime_ns > written
    assert again.summary["weights_sha256"] == first.summary["weights_sha256"]


@pytest.mark.parametrize("changes", [{}, {"method": "fedgps", "model": "convnet"}])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_the_model_is_the_one_that_was_tested(tiny, changes, precision):
    result = fedgps_ray.run(**{**tiny, **changes, "precision": precision})
    data = datasets.load(fedgps_ray.spec(**tiny).dataset)
    to = torch.device("cpu"), getattr(torch, precision)
    test = Batches(examples(data, "test", "none", to), torch.arange(len(data.y_test)))
    (batch,) = test.plain()
    guessed = result.model(batch.x).argmax(1)
    assert not result.model.training
    assert float((guessed == batch.y).float().mean()) == pytest.approx(
        result.summary["last_accuracy"]
    )


def test_a_folder_does_not_say_where_the_data_of_its_model_is(tiny, tmp_path, monkeypatch):
    folder = fedgps_ray.run(**tiny).folder
    info = json.loads((folder / "trial.json").read_text())
    info["execution"] |= {"data_dir": "/stranger", "download": True}
    files.write_json(folder / "trial.json", info)
    used = []
    monkeypatch.setattr(trials, "final_model", lambda folder, spec, source: used.append(source))
    for where in (None, tmp_path / "mine"):
        (result,) = fedgps_ray.load(folder, where)
        result.model  # noqa: B018
    assert [(one.data_dir, one.download) for one in used] == [
        (None, False),
        (tmp_path / "mine", False),
    ]


def test_the_caller_keeps_the_number_of_its_threads(tiny):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        fedgps_ray.run(**tiny)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_ctrl_c_leaves_a_checkpoint_from_which_the_same_call_goes_on(tiny, monkeypatch, tmp_path):
    whole = fedgps_ray.run(**tiny, out=tmp_path / "whole")
    work = Worker.work

    def interrupted(self, job):
        if job.round == 2:
            raise KeyboardInterrupt
        return work(self, job)

    monkeypatch.setattr(Worker, "work", interrupted)
    with pytest.raises(KeyboardInterrupt, match=r"call run again .* or fedgps-ray resume runs/"):
        fedgps_ray.run(**tiny)
    folder = Path("runs/default/trials") / whole.trial_id
    assert json.loads((folder / "trial.json").read_text())["status"] == "interrupted"
    assert list(folder.glob("checkpoint/round-*.json"))
    done = []
    monkeypatch.setattr(Worker, "work", lambda self, job: done.append(job.round) or work(self, job))
    result = fedgps_ray.run(**tiny)
    assert result.summary["weights_sha256"] == whole.summary["weights_sha256"]
    assert 0 not in done


def test_a_real_ctrl_c(tmp_path):
    code = (
        "import fedgps_ray\nfedgps_ray.run('fedavg', rounds=100000, model='mlp', progress=True)\n"
    )
    command, shown = [sys.executable, "-c", code], subprocess.PIPE
    with start(command, cwd=tmp_path, stderr=shown, text=True) as ran:
        for line in ran.stderr:
            if "round 5/" in line:
                ran.send_signal(signal.SIGINT)
                break
        said = ran.stderr.read()
    assert "KeyboardInterrupt: interrupted; to continue: call run again" in said
    assert list(tmp_path.glob("runs/default/trials/*/checkpoint/round-*.json"))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"rounds": 0}, "rounds: must be greater than or equal to 1, got 0"),
        ({"roundz": 3}, "unknown setting 'roundz'. Did you mean 'rounds'?"),
        ({"optimizer": {"lrx": 1}}, "unknown setting of optimizer 'lrx'. Did you mean 'lr'?"),
        ({"optimizer_lrx": 1}, "unknown setting of optimizer 'lrx'. Did you mean 'lr'?"),
        ({"method": "fedgsp"}, "unknown method 'fedgsp'. Did you mean 'fedgps'?"),
        ({"method_rhu": 1}, "unknown setting of fedgps 'rhu'. Did you mean 'rho'?"),
        ({"actors": -1}, "actors: must be 'auto' or a number from 0, got -1"),
        ({"actors": "two"}, "actors: must be 'auto' or a number from 0, got 'two'"),
        ({"log": "tb"}, "log.0: must be 'csv', 'tensorboard', 'wandb' or 'mlflow', got 'tb'"),
        ({"dataset": "gone.npz"}, "gone.npz"),
    ],
)
def test_bad_settings_are_value_errors_that_say_what_is_allowed(settings, said, tmp_path):
    with pytest.raises(ValueError) as problem:  # noqa: PT011 - the text is compared below
        fedgps_ray.run(**settings, out=tmp_path)
    assert isinstance(problem.value, fedgps_ray.UserError)
    assert said in str(problem.value)
    assert not list(tmp_path.iterdir())


def test_a_model_of_an_unfinished_trial_is_refused(tiny, monkeypatch):
    monkeypatch.setattr(Worker, "work", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        fedgps_ray.run(**tiny)
    (folder,) = Path("runs/default/trials").iterdir()
    with pytest.raises(fedgps_ray.UserError, match="has not ended yet"):
        fedgps_ray.Result(folder).model  # noqa: B018


# --- progress -------------------------------------------------------------------------------------


def test_a_script_whose_output_goes_to_a_file_is_silent(tiny, capsys):
    fedgps_ray.run(**tiny)
    assert capsys.readouterr() == ("", "")


def test_progress_can_be_asked_for(tiny, capsys):
    fedgps_ray.run(**tiny, progress=True)
    assert "fedavg  round 3/3  accuracy" in capsys.readouterr().err


def test_a_notebook_gets_one_line_that_changes(tiny, capsys, monkeypatch):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    fedgps_ray.run(**tiny)
    shown = capsys.readouterr().out
    assert "\n" not in shown
    assert "fedavg  round 3/3" in shown.split("\r")[-1]


def test_a_terminal_gets_a_bar(tiny, monkeypatch):
    screen = io.StringIO()
    terminal = Console(file=screen, force_terminal=True, width=120)
    monkeypatch.setattr(trials, "console_for", lambda progress: terminal)
    fedgps_ray.run(**tiny)
    assert "3/3" in screen.getvalue()
    assert "\x1b" in screen.getvalue()
    assert notebook.console_for(False).quiet


@pytest.mark.ray
@pytest.mark.slow
def test_actors_run_the_same_trial_on_ray(tiny, tmp_path):
    """Ray starts only because actors are given."""
    here = fedgps_ray.run(**{**tiny, "method": FedProx()}, out=tmp_path / "here")
    there = fedgps_ray.run(**{**tiny, "method": "fedprox"}, out=tmp_path / "there", actors=2)
    assert here.trial_id == there.trial_id
    assert here.summary["weights_sha256"] == there.summary["weights_sha256"]
    assert set(there.clients["worker"]) != set(here.clients["worker"])


def test_a_trial_in_this_process_is_kept_elsewhere_and_anew_if_wanted(tiny, tmp_path):
    spec = fedgps_ray.spec(**tiny)
    there = tmp_path / "bucket"

    def run(out, restart=False):
        execution = ExecutionSpec(out=tmp_path / out, actors=0, storage=there.as_uri())
        return list(running.start(spec, execution, restart))

    assert len(run("here")) == 4
    assert check(there / "trials" / spec.trial_id, full=True) == []
    assert len(run("elsewhere")) == 1, "it is taken over"
    assert len(run("elsewhere", restart=True)) == 4
    sealed = [
        read_trial(place / "trials" / spec.trial_id) for place in (there, tmp_path / "elsewhere")
    ]
    assert sealed[0] == sealed[1]
