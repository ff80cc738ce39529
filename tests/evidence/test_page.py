"""From results to files and from files to the page, on made-up numbers."""

import importlib.util
import itertools
import json
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedgps_ray.analysis import load
from fedgps_ray.errors import UserError
from fedgps_ray.experiments.evidence import collect, page
from fedgps_ray.spec import trial_spec

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "experiments" / "evidence"
SHA = "0123456789abcdef" * 4
SMALL = {
    "dataset": {"name": "npz", "file": "cifar10_16.npz", "sha256": SHA},
    "model": "convnet",
    "rounds": 12,
    "batch_size": 32,
}
NEEDED = [
    ({"name": "fedavg", "weighting": "uniform"}, 0.50),
    ("vhl", 0.55),
    ("fedgps", 0.52),
    ({"name": "fedgps", "align_labels": "matched"}, 0.56),
    ({"name": "fedgps", "align_labels": "matched", "rho": 0}, 0.58),
]


def _fabricate():
    path = ROOT / "tests" / "analysis" / "fabricate.py"
    spec = importlib.util.spec_from_file_location("fabricated_evidence", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def comparison_trials():
    for (method, ceiling), scenario, seed in itertools.product(NEEDED, (1, 2, 3), (0, 1)):
        noise = {"per_class": 500, "batch_size": 32}
        drawn = {"scenario": scenario, "seed": seed, "surrogate": noise}
        yield {**SMALL, **drawn, "method": method}, ceiling


def ablation_trials():
    """Yield the trials of the real file; matched labels are worth ten points."""
    document = tomllib.loads((EVIDENCE / "ablation.toml").read_text())
    for case, scenario in itertools.product(document["cases"], (1, 2)):
        noise = {**document["base"]["surrogate"], "batch_size": case["surrogate.batch_size"]}
        given = {name: case[name] for name in ("method", "eval_logits")}
        ceiling = 0.6 if case["method"]["align_labels"] == "matched" else 0.5
        yield {**SMALL, **given, "surrogate": noise, "scenario": scenario}, ceiling


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A sweep's folder with the comparison and the ablation, each on two draws or more."""
    out, fabricate = tmp_path_factory.mktemp("sweep"), _fabricate()
    for values, ceiling in [*comparison_trials(), *ablation_trials()]:
        if not (out / "trials" / trial_spec(**values).trial_id).exists():  # some are in both
            fabricate.make_trial(out, ceiling, **values)
    return out


@pytest.fixture(scope="module")
def published(results, tmp_path_factory):
    out = tmp_path_factory.mktemp("published")
    collect.collect([results], out)
    return out


def test_collected_trials_are_small_and_read_like_the_originals(results, published):
    folders = list((published / "trials").iterdir())
    sizes = [sum(p.stat().st_size for p in folder.iterdir()) for folder in folders]
    assert sum(sizes) / len(sizes) < 7_000
    columns = ["trial_id", "status", "last_ten_accuracy", "variant"]
    before, after = (load.trials(each)[columns] for each in (results, published))
    pd.testing.assert_frame_equal(before, after)
    kept, curves = load.rounds(published), load.rounds(results)
    assert kept["accuracy"].tolist() == curves["accuracy"].tolist()
    text = next(published.glob("trials/*/trial.json")).read_text()
    assert "machine" not in json.loads(text)


def test_a_folder_without_finished_trials_is_refused(tmp_path):
    with pytest.raises(UserError, match="no finished trials"):
        collect.collect([tmp_path], tmp_path / "out")


def test_too_much_is_refused(results, tmp_path, monkeypatch):
    monkeypatch.setattr(collect, "LIMIT_BYTES", 1000)
    with pytest.raises(UserError, match="more than the 1000"):
        collect.collect([results], tmp_path)


def test_the_ablation_file_is_the_fraction_that_the_page_expects(results):
    done = page.scored(load.trials(results))
    gps = done[(done["method"] == "fedgps") & (done["seed"] == 0) & done["scenario"].isin([1, 2])]
    coded = page.designed(page.switches(gps))
    assert len(coded) == 2 * 16
    assert (coded.T @ coded).to_numpy().tolist() == (32 * np.eye(7)).tolist()
    pairs = [coded[a] * coded[b] for a, b in itertools.combinations(coded.columns, 2)]
    # resolution IV: no main effect is that of two switches together
    assert all((coded[name] * pair).sum() == 0 for name in coded.columns for pair in pairs)


def test_the_page_answers_and_finds_the_effect_that_was_put_in(published, tmp_path):
    target = tmp_path / "evidence.md"
    page.write(published, target)
    text = target.read_text()
    assert "aligned noise helps: **supported**" in text
    assert "FedGPS beats VHL: **refuted**" in text
    assert (tmp_path / "evidence-effects.svg").stat().st_size > 1000
    done = page.scored(load.trials(published))
    found = page.effects(done).set_index("switch")
    assert found["effect"].idxmax() == "align_labels"
    assert found.loc["align_labels", "low"] > 5
    again = tmp_path / "again.md"
    page.write(published, again)
    assert again.read_text() == text


def test_a_trial_of_the_ablation_is_not_taken_for_one_of_the_comparison(results):
    # one run has the options of FedGPS matched, but twice the noise and real logits only
    done = page.scored(load.trials(results))
    assert len(done[done["variant"] == page.MATCHED]) == 6
    assert len(done[done["variant"] == f"{page.MATCHED} noise 64 eval_logits real"]) == 2


def test_draws_of_pilots_and_tuning_are_left_out(results):
    trials = load.trials(results)
    assert len(page.scored(trials)) == len(trials)
    assert page.scored(trials.assign(scenario=9)).empty


def test_without_results_nothing_is_written(tmp_path):
    with pytest.raises(UserError, match="no results in"):
        page.write(tmp_path, tmp_path / "evidence.md")
    assert not (tmp_path / "evidence.md").exists()
