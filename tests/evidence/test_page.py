"""From results to files and from files to the page, on made-up numbers."""

import importlib.util
import itertools
import json
import re
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from fedgps_ray.analysis import load, report
from fedgps_ray.analysis.report import frames
from fedgps_ray.errors import UserError
from fedgps_ray.experiment import cells, document
from fedgps_ray.experiments.evidence import ablation, collect, compare, page, study, theory
from fedgps_ray.experiments.evidence.effects import Question
from fedgps_ray.experiments.evidence.sweeps import SWEEPS
from fedgps_ray.results.read import check

ROOT = Path(__file__).parents[2]
EVIDENCE = ROOT / "experiments" / "evidence"
SHA = "0123456789abcdef" * 4
SMALL = {
    "dataset": {"name": "npz", "file": "cifar10_16.npz", "sha256": SHA},
    "model": "convnet",
    "rounds": 12,
    "batch_size": 32,
}
TERMS = [
    *("local_surrogate", "surrogate_global", "global_surrogate", "lipschitz", "gap", "bound"),
]
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
        yield {**SMALL, **given, "surrogate": noise, "scenario": scenario, "rounds": 11}, ceiling


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Folders of two sweeps, the comparison and the ablation, each on two draws or more."""
    out, fabricate = tmp_path_factory.mktemp("sweeps"), _fabricate()
    for name, trials in (("depth", comparison_trials()), ("ablation", ablation_trials())):
        for values, ceiling in trials:
            fabricate.make_trial(out / name, ceiling, **values)
        fabricate.add_later_columns(out / name)
    return out


@pytest.fixture(scope="module")
def published(results, tmp_path_factory):
    out = tmp_path_factory.mktemp("published")
    collect.collect([results / "depth", results / "ablation"], out)
    return out


# --- collect --------------------------------------------------------------------------------------


def test_collected_trials_are_small_and_read_like_the_originals(results, published):
    folders = [path.parent for path in published.rglob("trial.json")]
    sizes = [sum(p.stat().st_size for p in folder.iterdir()) for folder in folders]
    assert sum(sizes) / len(sizes) < 5_000
    columns = ["trial_id", "status", "last_ten_accuracy", "variant"]
    before = load.trials(results / "depth", results / "ablation")[columns]
    after = load.trials(published, published / "ablation")[columns]
    by_id = [frame.set_index("trial_id").sort_index() for frame in (before, after)]
    pd.testing.assert_frame_equal(*by_id)
    assert [problem for folder in folders for problem in check(folder, full=True)] == []
    assert load.trials(published).attrs["not_sealed"] == []


def test_collected_rounds_have_the_settings_and_the_curves_of_the_originals(results, published):
    before = load.rounds(results / "depth", results / "ablation")
    keys = ["trial_id", "round"]
    pairs = [
        frame.astype({"trial_id": str}).sort_values(keys)
        for frame in (before, load.rounds(published, published / "ablation"))
    ]
    for name in ("dataset", "method_options", "alpha", "scenario", "seed", "accuracy", "bytes_up"):
        assert pairs[1][name].tolist() == pairs[0][name].tolist(), name
    rounded = [frame["update_diversity"].to_numpy() for frame in pairs]
    assert rounded[1] == pytest.approx(rounded[0], rel=1e-6)


def test_collected_files_say_nothing_of_the_machine(results, published):
    for path in published.rglob("*"):
        if path.is_file():
            assert str(results).encode() not in path.read_bytes()
    text = json.loads(next(published.rglob("trial.json")).read_text())
    assert text["execution"] == {}
    assert "machine" not in text


def test_norms_of_updates_are_means_over_the_clients_of_a_round():
    rounds = pa.table({"round": [1, 2, 3]})
    clients = pa.table({"round": [1, 1, 2], "update_norm": [1.0, 3.0, 5.0]})
    assert collect.update_norms(rounds, clients).to_pylist() == [2.0, 5.0, None]


def test_a_folder_without_finished_trials_is_refused(tmp_path):
    with pytest.raises(UserError, match="no finished trials"):
        collect.collect([tmp_path / "depth"], tmp_path / "out")


def test_a_folder_that_is_no_sweep_of_the_study_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"unknown sweep 'dept'.*depth"):
        collect.collect([tmp_path / "dept"], tmp_path / "out")


def test_a_trial_of_two_sweeps_is_refused(results, tmp_path):
    shutil.copytree(results / "depth", tmp_path / "cnn")
    with pytest.raises(UserError, match="30 trials are of two"):
        collect.collect([results / "depth", tmp_path / "cnn"], tmp_path / "out")


def test_collecting_adds_to_what_was_there(results, tmp_path):
    collect.collect([results / "ablation"], tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    (tmp_path / "theory.json").write_text("{}")
    collect.collect([results / "depth"], tmp_path)
    sweeps = list(collect.published(tmp_path).values())
    assert (sweeps.count("depth"), sweeps.count("ablation")) == (30, 32)
    assert {path: path.read_bytes() for path in before} == before
    assert (tmp_path / "theory.json").exists()


def test_sweeps_are_kept_apart(published):
    assert len(load.trials(published)) == 30  # those that decide
    assert len(load.trials(published / "ablation")) == 32
    assert study.read(published).counts()["ablation"] == 32


def test_collecting_again_changes_nothing(results, tmp_path):
    """Also the partitions: each stays with one trial of the sweep."""
    collect.collect([results / "depth"], tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    few = tmp_path.with_name("few") / "depth"
    with_partition = sorted(path.parent.name for path in before if path.stem == "partition")
    for name in with_partition[:1]:
        shutil.copytree(results / "depth" / "trials" / name, few / "trials" / name)
    collect.collect([few], tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert [problem for trial in tmp_path.glob("trials/*") for problem in check(trial)] == []


def test_a_trial_that_was_collected_for_another_sweep_is_refused(results, tmp_path):
    collect.collect([results / "depth"], tmp_path / "out")
    shutil.copytree(results / "depth", tmp_path / "cnn")
    with pytest.raises(UserError, match="30 trials are of two"):
        collect.collect([tmp_path / "cnn"], tmp_path / "out")


def test_too_much_is_refused(results, tmp_path, monkeypatch):
    monkeypatch.setattr(collect, "LIMIT_BYTES", 1000)
    with pytest.raises(UserError, match="more than the 1000"):
        collect.collect([results / "depth"], tmp_path)


def test_the_report_reads_what_was_collected(published):
    made = report.build([published], frames.read([published]), report.Options(), report.silent)
    trouble = next(section for section in made.sections if section.slug == "trouble")
    said = [block.text for block in trouble.blocks]
    assert said == ["All trials finished; nothing failed, diverged or is missing."]
    assert len(made.sections) > 4
    assert "/" not in made.files["commands.sh"].split("set -e")[1].replace("runs/again", "")


# --- page -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SWEEPS)
def test_the_number_of_trials_is_that_of_the_file(name):
    content = document.read(EVIDENCE / SWEEPS[name].file, [])
    assert len(list(cells._combinations(content))) == SWEEPS[name].trials


def test_the_ablation_file_is_the_fraction_that_the_page_expects(published):
    done = study.read(published).of("ablation")
    coded = ablation.designed(ablation.switches(done))
    assert len(coded) == 2 * 16
    assert (coded.T @ coded).to_numpy().tolist() == (32 * np.eye(7)).tolist()
    pairs = [coded[a] * coded[b] for a, b in itertools.combinations(coded.columns, 2)]
    # resolution IV: no main effect is that of two switches together
    assert all((coded[name] * pair).sum() == 0 for name in coded.columns for pair in pairs)


def test_the_page_answers_once_all_draws_are_there(published, tmp_path):
    target = tmp_path / "evidence.md"
    page.write(published, target)
    text = target.read_text()
    assert "Does aligned noise help? Yes" in text
    assert "Does FedGPS beat VHL? No" in text
    assert "VHL over FedGPS" not in text  # the paper has them the other way round
    assert "0 reproduced; 1 reversed (FedGPS over VHL); 0 not told apart." in text
    assert "| FedGPS over VHL | +1.0 | -" in text
    paragraph = text.split("\n\n")[1]
    assert "Does the path help?" in paragraph
    assert paragraph.endswith(page.DISCUSSION.read_text().split("\n\n")[0].strip())
    assert not re.search(r"\{[^}]*\}", text)  # what the discussion names has its numbers
    assert "(tmp" not in text
    assert (tmp_path / "evidence-effects.svg").stat().st_size > 1000
    again = tmp_path / "again" / "evidence.md"
    again.parent.mkdir()
    page.write(published, again)
    for path in tmp_path.glob("evidence*"):
        assert path.read_bytes() == (again.parent / path.name).read_bytes(), path.name


def test_the_page_finds_the_effect_that_was_put_in(published):
    found = ablation.effects(study.read(published).of("ablation")).set_index("switch")
    assert found["effect"].idxmax() == "align_labels"
    assert found.loc["align_labels", "low"] > 5


def test_an_unfinished_study_answers_nothing_and_says_what_is_missing(published):
    known = study.read(published)
    five = known.trials[(known.trials["seed"] == 0) | (known.trials["scenario"] < 3)]
    text = page.page(known._replace(trials=five), "")
    assert "**Not answered yet**: 5 of the 6 draws are finished. So far, aligned noise" in text
    missing = "fedadam tuning depth breadth cifar100 lengths cnn"
    assert f"Not complete: {missing.replace(' ', ', ')}." in text
    assert f"evidence.run {missing} --out" in text
    assert "| supported |" not in text
    assert "| refuted |" not in text
    assert "| so far |" in text


def test_a_few_trials_are_enough_for_a_page(results, tmp_path):
    few = tmp_path / "few" / "depth"
    for trial in sorted((results / "depth" / "trials").iterdir())[:3]:
        shutil.copytree(trial, few / "trials" / trial.name)
    collect.collect([few], tmp_path / "results")
    page.write(tmp_path / "results", tmp_path / "evidence.md")
    assert "3 of 78" in (tmp_path / "evidence.md").read_text()


def test_variants_in_words():
    row = {"method": "fedgps", "batch_size": 32, "method_options": "{}"}
    noise = json.dumps({"surrogate.batch_size": 64, "eval_logits": "real"})
    assert study.variant({**row, "settings": "{}"}) == "FedGPS"
    assert study.variant({**row, "settings": noise}) == "FedGPS, noise 64, eval_logits real"
    without = '{"align_labels": "matched", "rho": 0.0}'
    assert study.variant({**row, "settings": "{}", "method_options": without}) == study.NO_PATH
    paper = json.dumps({"proto_source": "final_pass", "direction": -1})
    assert (
        study.variant({**row, "settings": "{}", "method_options": paper}) == "FedGPS, paper preset"
    )


def test_a_diverged_trial_counts_with_the_tests_it_had():
    row = {"status": "diverged", "method": "fedavg", "batch_size": 32, "method_options": "{}"}
    rows = [
        {**row, "variant": "{}", "last_ten_accuracy": 0.25, "best_accuracy": 0.5},
        {**row, "variant": "{}", "last_ten_accuracy": None, "best_accuracy": None},
        {**row, "variant": "{}", "status": "running", "last_ten_accuracy": 0.9, "best_accuracy": 1},
    ]
    assert study.scored(pd.DataFrame(rows))["score"].tolist() == [25.0, 0.0]


def test_a_rate_is_changed_only_for_more_than_the_margin():
    scores = pd.Series([20.0, 30.0, 32.0], index=[0.1, 0.3, 0.9])
    assert compare._chosen(scores, 2.0) == "0.3"
    assert compare._chosen(scores, 1.9) == "0.9"
    assert compare._chosen(scores.head(2), 2.0) == "-"


def test_the_theory_says_which_steps_are_too_long(published):
    known = study.read(published)
    names = known.of("depth").drop_duplicates("variant").set_index("variant")["trial_id"]
    client = dict.fromkeys(TERMS, 1.0)
    curved = {"largest": 40.0, "along_gradient": 20.0, "gradient_norm": 1.0, "weights_norm": 10.0}
    each = {"clients": [{**client, "held": True}], "curvature": curved}
    measured = {"trials": {names["FedGPS"]: each, names[study.NO_PATH]: each}}
    # FedGPS: 2 % of weights of norm 10 is 0.2; times the curvature of 20: 4
    ahead = [
        [("ahead_to_weights", 0.02)] if label == "FedGPS" else [] for label in known.rounds["label"]
    ]
    rounds = known.rounds.assign(metrics=pd.Series(ahead, index=known.rounds.index, dtype=object))
    text = page.page(study.Study(known.trials, rounds, measured), "")
    assert "| FedGPS | 40 | 20 | 0.050 | 0.200 | 4.00 |" in text
    assert f"| {study.NO_PATH} | 40 | 20 | 0.050 | - | - |" in text
    assert "too long for these models: FedGPS." in text


def test_theory_is_measured_once_for_each_model(results, tmp_path, monkeypatch):
    collect.collect([results / "depth"], tmp_path)
    asked = []
    monkeypatch.setattr(theory, "measure", lambda folder: asked.append(folder.name) or {"n": 1})
    said = []
    theory.measure_models(results / "depth", tmp_path, said.append)
    told = ["VHL", "FedGPS", study.MATCHED, study.NO_PATH]
    assert said == [f"measuring {name}" for name in told]
    theory.measure_models(tmp_path / "gone", tmp_path, said.append)
    assert len(asked) == len(said) == 4
    known = study.read(tmp_path)
    measured = known.trials[known.trials["trial_id"].isin(list(known.theory["trials"]))]
    assert set(zip(measured["scenario"], measured["seed"], strict=True)) == {(1, 1)}
    assert set(measured["variant"]) == set(told)


def test_without_models_there_is_no_theory(published, tmp_path):
    with pytest.raises(UserError, match="none of the trials to measure"):
        theory.measure_models(tmp_path, published, print)


def test_without_results_nothing_is_written(tmp_path):
    with pytest.raises(UserError, match="no results in"):
        page.write(tmp_path, tmp_path / "evidence.md")
    assert not (tmp_path / "evidence.md").exists()


# --- what is published ----------------------------------------------------------------------------


def test_the_discussion_has_no_number_of_its_own():
    assert not re.search(r"\d+\.\d", re.sub(r"\{.*?\}", "", page.DISCUSSION.read_text()))


def test_differences_over_time_are_of_the_rounds_they_name(published):
    known = study.read(published)
    done, question = known.of("depth"), Question("", "VHL", "FedGPS")
    flat = known.rounds_of(done).assign(accuracy=0.5)
    ahead = done.loc[done["variant"] == "VHL", "trial_id"]
    flat.loc[flat["trial_id"].isin(ahead) & (flat["round"] == 12), "accuracy"] = 0.6
    found = compare.over_time(done, flat, [question]).iloc[0].to_dict()
    # twelve rounds: the window of 11 to 20 has two of them, one of which is ten points ahead
    assert found["rounds 11 to 20"] == "+5.0 (+5.0 to +5.0)"
    assert found["rounds 31 to 40"] == "-"


def test_the_command_makes_the_published_page_from_the_published_results(tmp_path, monkeypatch):
    target = tmp_path / "evidence.md"
    monkeypatch.setattr("sys.argv", ["page", "--out", str(target)])
    page.main()
    assert target.read_text() == page.PAGE.read_text()
    drawn, published = (
        {path.name for path in folder.glob("evidence-*.svg")}
        for folder in (tmp_path, page.PAGE.parent)
    )
    linked = set(re.findall(r"\((evidence-[\w-]+\.svg)\)", target.read_text()))
    assert drawn == published == linked


def test_the_published_results_are_small_and_whole():
    everything = [path for path in page.RESULTS.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in everything) < collect.LIMIT_BYTES
    trials = [path.parent for path in everything if path.name == "trial.json"]
    assert len(trials) == len(collect.published(page.RESULTS))
    assert [problem for trial in trials for problem in check(trial, full=True)] == []
    assert all(
        json.loads((trial / "trial.json").read_text())["execution"] == {} for trial in trials
    )


def test_lengths_are_compared_over_the_rounds_that_all_have():
    trials = [("a", "long", 20), ("b", "short", 12)]
    done = pd.DataFrame(trials, columns=["trial_id", "variant", "rounds"]).assign(method="fedgps")
    rows = [("a", number, number / 100, [("ahead_to_weights", 0.01)]) for number in range(1, 21)]
    rows += [("b", number, 0.5, None) for number in range(1, 13)]
    rounds = pd.DataFrame(rows, columns=["trial_id", "round", "accuracy", "metrics"])
    found = compare.lengths(done, rounds).set_index("method")
    # the mean of 3 to 12 is 7.5; what "a" reached later does not count
    assert found["rounds 3 to 12"].to_dict() == {"short": "50.0", "long": "7.5"}
    assert found["best of 12"].to_dict() == {"short": "50.0", "long": "12.0"}
    assert found["step / weights (%)"].to_dict() == {"short": "-", "long": "1.00"}
