"""sweep, load and report, as Python code calls them."""

from pathlib import Path

import pytest

import fedgps_ray
from fedgps_ray.methods.fedprox import FedProx
from fedgps_ray.rounds.worker import Worker
from fedgps_ray.sweep import ledger

FILE = """
name = "study"
[base]
model = "mlp"
rounds = 2
clients = 4
batch_size = 8
dataset = { name = "synthetic", image_size = 8, train_size = 100, test_size = 20 }
[grid]
method = ["fedavg", "fedprox"]
"""


@pytest.fixture
def base(tiny):
    return {key: value for key, value in tiny.items() if key != "method"}


def test_tables_of_settings_become_trials(base):
    results = fedgps_ray.sweep({"base": base, "grid": {"method": ["fedavg", "scaffold"]}})
    assert results.folder == Path("runs/sweep")
    assert len(results) == 2
    assert set(results.rounds["method"]) == {"fedavg", "scaffold"}
    assert set(results.clients["round"]) == {1, 2, 3}
    assert set(results.trials["status"]) == {"finished"}
    assert results.partitions["count"].sum() == 2 * 60
    assert repr(results) == "<Results of 2 trials: 2 finished, runs/sweep>"
    assert "scaffold" in results._repr_html_()


def test_a_file_is_read_and_lists_win_over_it(tiny):
    Path("study.toml").write_text(FILE)
    results = fedgps_ray.sweep("study.toml", methods=["fedavg"], seeds=[0, 1], scenarios=(1, 2))
    found = results.trials[["method", "seed", "scenario"]].itertuples(index=False, name=None)
    assert sorted(found) == [("fedavg", seed, scenario) for seed in (0, 1) for scenario in (1, 2)]
    assert results.folder == Path("runs/study")


def test_methods_may_be_objects_and_tables(base):
    methods = ["fedavg", FedProx(mu=0.5), {"name": "fedprox", "mu": 0.1}]
    results = fedgps_ray.sweep({"base": base}, methods=methods, optimizer_lr=0.05)
    options = sorted(results.trials["method_options"])
    assert [text for text in options if "0.5" in text]
    assert len(options) == 3
    assert set(results.trials["lr"]) == {0.05}


def test_what_has_ended_is_not_run_again(base, monkeypatch):
    fedgps_ray.sweep({"base": base}, methods=["fedavg"])
    trained = set()
    work = Worker.work
    monkeypatch.setattr(
        Worker, "work", lambda self, job: trained.add(self.spec.seed) or work(self, job)
    )
    results = fedgps_ray.sweep({"base": base}, methods=["fedavg"], seeds=[0, 1])
    assert trained == {1}
    assert len(results) == 2


def test_the_folder_is_that_of_a_sweep(base):
    """So status, resume and report work on it."""
    results = fedgps_ray.sweep({"base": base, "title": "Mine"}, methods=["fedavg"], out="here")
    known, facts = ledger.read(results.folder)
    assert facts["title"] == "Mine"
    assert facts["finished"] == [spec.trial_id for spec in known.specs]


def test_a_trial_is_found_by_its_id(base):
    results = fedgps_ray.sweep({"base": base}, methods=["fedavg"])
    (result,) = results
    assert results[result.trial_id].best_accuracy == result.best_accuracy
    with pytest.raises(fedgps_ray.UserError, match="unknown trial 'nope'"):
        results["nope"]


def test_a_trial_that_fails_does_not_stop_the_others(base):
    """ResNet-18 needs images of at least 8x8 pixels."""
    small = {**base["dataset"], "image_size": 4}
    tables = {"base": {**base, "dataset": small}, "grid": {"model": ["resnet18", "mlp"]}}
    results = fedgps_ray.sweep(tables, methods=["fedavg"])
    assert sorted(results.trials["status"]) == ["failed", "finished"]


def test_ctrl_c_says_how_to_go_on(base, monkeypatch):
    work = Worker.work

    def interrupted(self, job):
        if job.round == 1 and self.spec.seed == 1:
            raise KeyboardInterrupt
        return work(self, job)

    monkeypatch.setattr(Worker, "work", interrupted)
    with pytest.raises(
        KeyboardInterrupt, match="call sweep again, or fedgps-ray resume runs/sweep"
    ):
        fedgps_ray.sweep({"base": base}, methods=["fedavg"], seeds=[0, 1, 2])
    states = fedgps_ray.load("runs/sweep").trials.set_index("seed")["status"].to_dict()
    assert states == {0: "finished", 1: "interrupted"}
    monkeypatch.setattr(Worker, "work", work)
    again = fedgps_ray.sweep({"base": base}, methods=["fedavg"], seeds=[0, 1, 2])
    assert set(again.trials["status"]) == {"finished"}


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"bass": {}}, "unknown part 'bass'. Did you mean 'base'?"),
        ({"base": {"rounds": [1]}}, "base.rounds: must be one value"),
        ({"grid": {"seed": []}}, "grid.seed: the list is empty"),
        ("gone.toml", "no file gone.toml"),
    ],
)
def test_bad_tables_are_told(tables, said, tiny):
    with pytest.raises(fedgps_ray.UserError) as problem:
        fedgps_ray.sweep(tables)
    assert said in str(problem.value)


def test_a_search_that_stops_trials_needs_ray(tiny):
    search = {"samples": 2, "ranges": {"optimizer.lr": {"low": 0.01, "high": 0.1}}}
    with pytest.raises(fedgps_ray.UserError, match="give actors='auto'"):
        fedgps_ray.sweep({"search": search})


def test_load_says_what_is_wrong_with_a_folder(tmp_path):
    with pytest.raises(fedgps_ray.UserError, match="there is no folder"):
        fedgps_ray.load(tmp_path / "gone")
    with pytest.raises(fedgps_ray.UserError, match="no trials in"):
        fedgps_ray.load(tmp_path)


def test_report_writes_a_page(base):
    results = fedgps_ray.sweep({"base": base}, methods=["fedavg", "fedprox"])
    page = fedgps_ray.report(results.folder, out="page")
    assert page == Path("page/report.html")
    assert "FedProx" in page.read_text()


@pytest.mark.ray
@pytest.mark.slow
def test_with_actors_a_sweep_runs_on_ray(base):
    tables = {"base": base, "grid": {"method": ["fedavg", "fedgps"]}}
    here = fedgps_ray.sweep(tables, out="here")
    there = fedgps_ray.sweep(tables, out="there", actors=1, log="csv")
    hashes = [r.trials.set_index("trial_id")["weights_sha256"].to_dict() for r in (here, there)]
    assert hashes[0] == hashes[1]
    assert len(list(Path("there/logs/csv").iterdir())) == 2
