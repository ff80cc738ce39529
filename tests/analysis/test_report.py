"""The report: what it says about results of every shape, and the files it leaves."""

import json
import re
import shlex
import subprocess
import sys
import time
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedgps_ray.analysis import published, report
from fedgps_ray.analysis.names import FORMULAS, published_name
from fedgps_ray.analysis.report import again, extras, frames
from fedgps_ray.analysis.report.blocks import Code, Picture, Points, Shown, Text
from fedgps_ray.analysis.report.comparison import reference
from fedgps_ray.analysis.report.follow import RELOAD, has_ended, keep_writing
from fedgps_ray.analysis.report.page import publish
from fedgps_ray.errors import UserError
from fedgps_ray.experiment import resolve
from fedgps_ray.methods import METHODS
from fedgps_ray.results import schema
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.spec import ExecutionSpec, columns, trial_spec
from fedgps_ray.titles import TITLES
from tests.processes import patient

CEILINGS = {"fedavg": 0.5, "fedprox": 0.6, "scaffold": 0.55, "fedgps": 0.7}


def build(folder, against=False, theory=False):
    return report.build(
        [folder], report.read([folder]), report.Options(against, theory, FORMULAS), report.silent
    )


def of_kind(made, kind):
    return [block for section in made.sections for block in section.blocks if type(block) is kind]


def words(made):
    """Return all sentences of a report in one text."""
    texts = [block.text for block in of_kind(made, Text)]
    texts += [line for block in of_kind(made, Points) for line in block.lines]
    texts += [f"{block.summary}\n{block.text}" for block in of_kind(made, Code)]
    return "\n".join([*made.lead, *texts])


def table(made, name):
    return next(block.table for block in of_kind(made, Shown) if block.name == name)


def cells(shown):
    return [[cell.text for cell in row] for row in shown.rows]


class Page(HTMLParser):
    """Collects what a page refers to, its tables, and whether its tags are closed."""

    VOID = ("meta", "img", "br")

    def __init__(self, text):
        super().__init__()
        self.open, self.sources, self.links, self.ids, self.tables = [], [], [], [], 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.sources += [found[key] for key in ("src",) if key in found]
        self.links += [found["href"]] if "href" in found else []
        self.ids += [found["id"]] if "id" in found else []
        self.tables += tag == "table"
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


# --- the files ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory, folder_maker, trial_maker):
    folder = folder_maker(tmp_path_factory.mktemp("results"), CEILINGS, rounds=6)
    told = {"error": "client 3, round 2: ValueError: <script>alert('x') & more</script>"}
    trial_maker(folder, method="vhl", status="failed", rounds=6, rounds_done=1, facts=told)
    said = []
    path = report.write([folder], folder / "report", True, True, FORMULAS, said.append)
    return path, said


def test_no_figure_misses_a_column_that_is_not_read(tmp_path, monkeypatch):
    data = {"num_classes": 3, "image_size": 8, "train_size": 60, "test_size": 15}
    for method in ("fedavg", {"name": "fedgps", "divergence_every": 1}):
        spec = trial_spec(
            dataset={"name": "synthetic", **data}, model="mlp", method=method, rounds=2, clients=3
        )
        for _ in run_trial(spec, ExecutionSpec(out=tmp_path, actors=0)):
            pass
    some = pictures(tmp_path)
    monkeypatch.setattr(frames, "FIGURES", schema.ROUNDS.names)
    assert repr([one.chart for one in some]) == repr([one.chart for one in pictures(tmp_path)])
    names = " ".join(block.name for block in some)
    wanted = ("convergence", "bytes", "diversity", "clients", "classes", "divergence")
    assert [kind for kind in wanted if kind not in names] == []


def pictures(folder):
    return of_kind(build(folder), Picture)


def test_the_folder_has_every_table_and_figure_by_itself(written):
    path, said = written
    assert path.name == "report.html"
    for name in ("setting-1-comparison", "settings", "versions", "against-the-paper", "timing"):
        for ending in ("md", "tex", "csv", "html"):
            assert (path.parent / "tables" / f"{name}.{ending}").stat().st_size > 20
    names = ("convergence", "critical-difference", "ranks", "bytes", "scores", "partitions")
    for name in names:
        for ending in ("png", "pdf"):
            assert (path.parent / "figures" / f"setting-1-{name}.{ending}").exists()
    assert "drawing setting-1-convergence" in said


def test_the_page_stands_alone(written):
    path, _ = written
    text = path.read_text()
    page = Page(text)
    assert page.open == []
    assert not re.search(r"https?://|@import|url\((?!#)", text)
    inside = {link.removeprefix("#") for link in page.links if link.startswith("#")}
    assert inside <= set(page.ids)
    beside = {*page.sources, *(link for link in page.links if not link.startswith("#"))}
    assert beside == {f"figures/{file.name}" for file in (path.parent / "figures").iterdir()}
    assert page.tables == len(list((path.parent / "tables").glob("*.html")))


def test_the_page_has_the_data_of_every_figure(written):
    path, _ = written
    text = path.read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    names = {file.stem for file in (path.parent / "figures").glob("*.png")}
    assert set(data["charts"]) == names == set(re.findall(r'data-chart="([^"]*)"', text))
    assert data["methods"] == ["FedAvg", "FedProx", "SCAFFOLD", "VHL", "FedGPS"]
    curves = data["charts"]["setting-1-convergence"]["panels"][0]["series"]
    assert [len(one["x"]) for one in curves if one["name"] == "FedGPS"] == [6]


def test_a_page_of_24_trials_is_small(tmp_path, fabricate):
    folder = fabricate.make_sweep(tmp_path / "results", 24, rounds=200)
    live = replace(build(folder), reload=5, written="now")
    page = publish(live, tmp_path / "out", report.silent)
    assert page.stat().st_size < 500_000


def test_nothing_in_the_results_becomes_markup(written):
    path, _ = written
    text = path.read_text()
    assert "&lt;script&gt;alert(" in text
    assert "<script>alert" not in text


def test_the_verdict_comes_first_then_the_comparison(written):
    path, _ = written
    parts = ("FedGPS leads with", "scenario 1 (target", "-convergence.png", "Friedman")
    for name in ("report.md", "report.html"):
        text = (path.parent / name).read_text()
        order = [text.index(word) for word in parts]
        assert order == sorted(order), name


def test_the_markdown_shows_the_figures_beside_it(written):
    path, _ = written
    links = re.findall(r"\]\((figures/[^)]*)\)", (path.parent / "report.md").read_text())
    assert len(links) >= 6
    assert all((path.parent / link).exists() for link in links)


# --- what it says ---------------------------------------------------------------------------------


def test_a_finished_comparison(tmp_path, folder_maker):
    made = build(folder_maker(tmp_path, CEILINGS, rounds=6))
    assert made.lead[0].startswith("4 methods, 2 scenarios, 1 seed. Trials: 8 finished.")
    assert "All trials finished; nothing failed" in words(made)
    assert "FedGPS against each other method" in table(made, "setting-1-pairs").title
    assert "whatever the results" in words(made)  # the caveats of two scenarios
    rows = cells(table(made, "partition-hashes"))
    assert [row[2:] for row in rows] == [["4", "the same"], ["4", "the same"]]
    settings = {row[0]: row[1:] for row in cells(table(made, "settings"))}
    assert settings["method"] == ["varied", "FedAvg, FedGPS, FedProx, SCAFFOLD"]
    assert settings["alpha"] == ["fixed", "0.1"]
    assert settings["precision"] == ["fixed", "float32"]


def test_several_settings_have_a_section_each_and_one_across(tmp_path, folder_maker):
    for rate in (0.2, 0.5):
        folder_maker(tmp_path, CEILINGS, rounds=5, sampling_rate=rate)
    made = build(tmp_path)
    titles = [section.title for section in made.sections]
    assert titles[:3] == ["Across settings", "20% of clients per round", "50% of clients per round"]
    assert [one.name for one in made.filters] == ["setting", "method"]
    assert made.verdict[0].startswith("Of 2 settings, FedGPS leads in 2.")
    names = [block.name for block in of_kind(made, Picture)]
    assert "across-sampling-rate-1" in names
    assert "divergence-1" in names
    assert len(names) == len(set(names))


def test_clients_classes_and_updates_are_drawn_where_they_were_recorded(tmp_path, fabricate):
    folder = fabricate.make_sweep(tmp_path, 6, rounds=3)
    recorded = {"setting-1-diversity", "setting-1-clients", "setting-1-classes"}
    assert not recorded & {block.name for block in of_kind(build(folder), Picture)}
    fabricate.add_later_columns(folder)
    assert recorded <= {block.name for block in of_kind(build(folder), Picture)}


def test_seeds_have_a_table_of_their_own(tmp_path, folder_maker):
    made = build(folder_maker(tmp_path, CEILINGS, scenarios=(1,), seeds=(0, 1), rounds=3))
    heads = [head.text for head in table(made, "setting-1-seeds").header[-1]]
    assert heads == ["method", "seed 0", "seed 1", "mean ± std", "mean ± std"]


def test_methods_that_met_unlike_partitions_are_not_to_be_compared(tmp_path, trial_maker):
    trial_maker(tmp_path, method="fedavg", rounds=2)
    trial_maker(tmp_path, method="fedgps", rounds=2, facts={"partition_sha256": "f" * 64})
    assert cells(table(build(tmp_path), "partition-hashes"))[0][3] == "NOT THE SAME: do not compare"


def test_a_single_method_in_a_single_scenario(tmp_path, folder_maker):
    made = build(folder_maker(tmp_path, {"fedgps": 0.7}, scenarios=(1,), rounds=3), against=True)
    told = words(made)
    assert "No ranking: Friedman's test needs 3 methods and 2 blocks, got 1 and 1" in told
    assert "No comparison of pairs: a comparison needs two methods" in told
    assert "setting-1-convergence" in [block.name for block in of_kind(made, Picture)]


def test_nothing_but_diverged_trials(tmp_path, trial_maker):
    for method in ("fedavg", "fedgps"):
        told = {"diverged": "the test loss is not finite in round 1"}
        trial_maker(tmp_path, method=method, status="diverged", rounds=3, rounds_done=0, facts=told)
    told = words(build(tmp_path, against=True))
    assert "Trials: 2 diverged." in told
    assert "nothing to draw: no round of these trials has a test accuracy" in told
    assert "No statistics: there are no runs to compare" in told
    assert told.count("the test loss is not finite in round 1") == 2


def test_an_unfinished_sweep_says_what_is_missing_and_how_to_go_on(tmp_path, trial_maker):
    trial_maker(tmp_path, method="fedavg", rounds=4)
    trial_maker(tmp_path, method="fedgps", rounds=4, status="running", rounds_done=2)
    methods = ("fedavg", "fedgps", "vhl")
    specs = [trial_spec(method=method, rounds=4) for method in methods]
    planned = [{**columns(spec), "spec": spec.model_dump(mode="json")} for spec in specs]
    content = {"cells": planned, "file": "experiments/mine.toml"}
    (tmp_path / "experiment.json").write_text(json.dumps(content))
    told = words(build(tmp_path))
    assert "2 of 3 planned trials have not ended." in told
    assert "running: FedGPS, scenario 1, seed 0, digits" in told
    assert "after 2 of 4 rounds" in told
    assert f"not begun: VHL, scenario 1, seed 0, digits (trial {planned[2]['trial_id']})" in told
    assert f"fedgps-ray resume {tmp_path}" in told
    assert f"fedgps-ray sweep experiments/mine.toml --out {tmp_path}" in told


def test_a_damaged_file_is_named_and_the_rest_reported(tmp_path, folder_maker):
    folder_maker(tmp_path, CEILINGS, rounds=2)
    damaged = next(tmp_path.glob("trials/*/rounds.parquet"))
    damaged.write_bytes(b"nothing")
    assert f"{damaged} is damaged" in words(build(tmp_path))
    (tmp_path / "experiment.json").write_text("{")
    with pytest.raises(UserError, match=r"experiment.json is damaged .*; start the sweep again"):
        build(tmp_path)


@pytest.mark.parametrize("name", ["", "gone"])
def test_a_folder_without_trials_is_a_message(tmp_path, name):
    with pytest.raises(UserError, match="no trials in"):
        build(tmp_path / name)
    with pytest.raises(UserError, match="name at least one results folder"):
        report.build([], report.read([]), report.Options(False, False, {}), report.silent)


def test_theory_is_told_or_how_to_measure_it(tmp_path, trial_maker):
    trial = trial_maker(tmp_path, method="fedgps", rounds=2)
    assert "measure it with `fedgps-ray report --theory`" in words(build(tmp_path, theory=True))
    client = {"local_surrogate": 3.0, "surrogate_global": 1.0, "global_surrogate": 2.0}
    client |= {"client": 0, "lipschitz": 2.0, "gap": 1.0, "bound": 12.0, "held": True}
    curved = {"largest": 9.0, "smallest": -1.0, "lambda_g": 0.5, "norm": 3.5, "held": False}
    content = {"samples": 8, "clients": [client], "curvature": curved}
    (trial.folder / "theory.json").write_text(json.dumps(content))
    made = build(tmp_path, theory=True)
    terms, curvature = table(made, "theory-terms"), table(made, "theory-curvature")
    assert cells(terms) == [["FedGPS", "3", "1", "2", "2", "1", "12", "1 of 1"]]
    assert cells(curvature) == [["FedGPS", "9", "-1", "0.5", "3.5", "0 of 1"]]


def test_the_reference_is_fedgps_as_it_comes():
    rows = [("fedavg", "{}", "fedavg"), ("fedgps", '{"rho": 0}', "fedgps (rho=0)")]
    frame = pd.DataFrame(rows, columns=["method", "method_options", "label"])
    assert reference(frame) == "fedgps (rho=0)"
    plain = pd.DataFrame([("fedgps", "{}", "fedgps (rho=0.5)")], columns=frame.columns)
    assert reference(pd.concat([frame, plain])) == "fedgps (rho=0.5)"
    assert reference(frame.head(1)) == "fedavg"


# --- commands -------------------------------------------------------------------------------------


def parsed(command):
    """Return the settings that a command gives, as the command line reads them."""
    program, verb, *rest = shlex.split(command)
    assert (program, verb) == ("fedgps-ray", "run")
    values = {}
    assert rest[:2] == ["--out", "runs/again"]
    for word in rest[2:]:
        key, _, text = word.removeprefix("--").partition("=")
        if word == "--set":
            continue
        key = key.replace("-", "_") if word.startswith("--") else key
        try:
            values[key] = json.loads(text)
        except json.JSONDecodeError:
            values[key] = text
    return values


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "fedavg"},
        {"method": {"name": "fedgps", "preset": "paper"}, "optimizer": {"max_norm": None}},
        {"dataset": {"name": "synthetic", "num_classes": 3}, "evaluate_every": 5},
        {"partition": {"kind": "classes", "classes_per_client": 3}, "seed": 7, "scenario": 4},
    ],
)
def test_a_command_makes_the_very_same_trial(settings):
    spec = trial_spec(**settings)
    command = again.command(spec.model_dump(mode="json"), {"files": {}})
    assert trial_spec(**parsed(command)).trial_id == spec.trial_id


def test_an_own_file_is_named_by_its_path():
    spec = trial_spec(dataset={"name": "npz", "file": "own.npz", "sha256": "0" * 64})
    files = {"0" * 64: "/data/my own.npz"}
    command = again.command(spec.model_dump(mode="json"), {"files": files})
    assert parsed(command)["dataset"] == "/data/my own.npz"


OWN = """
from dataclasses import dataclass

from torch import nn

from fedgps_ray.methods.fedavg import FedAvg


@dataclass(frozen=True)
class Own(FedAvg):
    size: float = 1.0


class Net(nn.Sequential):
    def __init__(self, image_shape, num_outputs, width=4):
        size = image_shape[1] * image_shape[2]
        super().__init__(nn.Flatten(), nn.Linear(size, width), nn.Linear(width, num_outputs))
"""


def test_own_files_and_code_make_the_very_same_trial(tmp_path):
    arrays = {"x_train": np.zeros((20, 8, 8)), "y_train": np.arange(20) % 2}
    arrays |= {"x_test": np.zeros((4, 8, 8)), "y_test": np.arange(4) % 2}
    np.savez(tmp_path / "own.npz", **arrays)
    noise = {"x": np.zeros((4, 8, 8, 1), np.uint8), "y": np.arange(4) % 2}
    np.savez(tmp_path / "noise.npz", **noise)
    (tmp_path / "own.py").write_text(OWN)
    settings = {
        "dataset": {"name": str(tmp_path / "own.npz"), "layout": "hw", "standardise": False},
        "surrogate": {"kind": str(tmp_path / "noise.npz"), "batch_size": 3},
        "method": {"name": f"{tmp_path / 'own.py'}:Own", "size": 0.5},
        "model": {"name": f"{tmp_path / 'own.py'}:Net", "options": {"width": 3}},
    }
    spec, files = resolve(settings)
    command = again.command(spec.model_dump(mode="json"), {"files": files})
    assert resolve(parsed(command))[0].trial_id == spec.trial_id


def test_a_trial_of_a_gpu_gets_its_share_again():
    settings = trial_spec(device="cuda").model_dump(mode="json")
    assert again.command(settings, {"client_gpus": 0.25}).endswith("--client-gpus=0.25")
    assert again.command(settings, {"client_gpus": 0.0}).endswith("--actors=0")


def test_the_script_is_one_a_shell_can_read(written):
    path, _ = written
    script = path.parent / "commands.sh"
    assert subprocess.run(["sh", "-n", script], check=False).returncode == 0
    assert script.read_text().count("fedgps-ray run ") == 9


# --- the paper ------------------------------------------------------------------------------------


def test_the_paper_in_its_own_numbers():
    made = extras.published_report()
    titles = [section.title for section in made.sections]
    assert titles[1:-1] == [f"Table {name}" for name in published.names()]
    assert (titles[0], titles[-1]) == ("Figure 1", "Known slips")
    assert len(table(made, "slips").rows) == len(published.slips()) > 0
    main = {row[0]: row for row in cells(table(made, "CIFAR10_10_5_1"))}
    assert main["FedAvg"][1:3] == ["84.21", "340"]
    assert len(of_kind(made, Picture)) == 1
    assert "SVHN. Nemenyi at 0.05: 9 of 91 pairs are told apart: FedGPS from " in words(made)
    assert "CIFAR-10. With 14 methods and 5 blocks the critical distance is 8.873" in words(made)


# --- names ----------------------------------------------------------------------------------------


def test_what_is_known_of_the_methods_is_what_their_classes_say():
    about = {name: METHODS[name].about for name in TITLES}
    assert {name: (one.up, one.down) for name, one in about.items()} == FORMULAS


def test_methods_have_their_published_names():
    documented = (Path(__file__).parents[2] / "docs" / "methods.md").read_text()
    for name, title in TITLES.items():
        assert f"**{title}" in documented
        assert title.lower().replace("-", "_") == name
    assert published_name("outside") == "outside"


def test_no_internal_name_is_shown(written):
    path, _ = written
    shown = re.sub(r"<(script|style|pre).*?</\1>", "", path.read_text(), flags=re.DOTALL)
    assert not re.search(r"fedgps_cf|\bfedavg\b|\bscaffold\b|\bfedgps\b(?!-ray)", shown)


# --- following a sweep ----------------------------------------------------------------------------


def test_a_page_is_rewritten_while_results_change_and_whole_at_the_end(tmp_path, trial_maker):
    trial_maker(tmp_path, method="fedavg", rounds=2)
    live, out, seen, pauses = tmp_path / "live.json", tmp_path / "report", [], iter(range(9))
    live.write_text(json.dumps({"ended": None}))

    def write(reload):
        made = replace(build(tmp_path), reload=reload, written="now")
        page = publish(made, out, report.silent)
        seen.append((reload, page.read_text()))
        return page

    def pause(_):
        """Let another trial end at the second look, and the sweep at the fourth."""
        turn = next(pauses)
        if turn == 1:
            trial_maker(tmp_path, method="fedgps", rounds=2)
        if turn == 3:
            live.write_text(json.dumps({"ended": 1.0}))

    page = keep_writing([tmp_path], write, report.silent, pause)
    assert [reload for reload, _ in seen] == [RELOAD, RELOAD, 0]  # not where nothing changed
    first, second, last = (text for _, text in seen)
    assert 'http-equiv="refresh" content="5"' in first
    assert "Only FedAvg can be judged" in first
    assert "FedGPS" in second
    assert "http-equiv" not in last
    assert page == out / "report.html"
    assert (out / "figures" / "setting-1-convergence.pdf").exists()


def test_ctrl_c_ends_with_the_whole_report(tmp_path):
    (tmp_path / "live.json").write_text(json.dumps({"ended": None}))
    reloads = []

    def write(reload):
        reloads.append(reload)
        return tmp_path

    def interrupt(_):
        raise KeyboardInterrupt

    assert keep_writing([tmp_path], write, report.silent, interrupt) == tmp_path
    assert reloads == [RELOAD, 0]


def test_a_folder_that_has_no_trials_yet_is_waited_for(tmp_path):
    told, turns = [], iter(range(9))
    (tmp_path / "live.json").write_text(json.dumps({"ended": None}))

    def write(reload):
        if reload:
            raise UserError("no trials in there")
        return tmp_path

    def pause(_):
        if next(turns) == 1:
            (tmp_path / "live.json").write_text(json.dumps({"ended": 1.0}))

    keep_writing([tmp_path], write, told.append, pause)
    assert told == ["waiting: no trials in there"]


def test_the_command_follows_a_sweep_to_its_end(tmp_path, trial_maker):
    trial_maker(tmp_path, method="fedavg", rounds=2)
    live, page = tmp_path / "live.json", tmp_path / "report" / "report.html"
    live.write_text(json.dumps({"ended": None}))
    command = [Path(sys.executable).with_name("fedgps-ray"), "report", tmp_path, "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        waited_for(lambda: page.exists() and "Only FedAvg" in page.read_text())
        assert "http-equiv" in page.read_text()
        trial_maker(tmp_path, 0.9, method="fedgps", rounds=2)
        live.write_text(json.dumps({"ended": 1.0}))
        told, _ = process.communicate(timeout=patient(60))
    assert process.returncode == 0
    assert f"open in a browser: {page}" in told.replace("\n", "")
    assert "FedGPS leads" in page.read_text()
    assert "http-equiv" not in page.read_text()


def waited_for(condition, seconds=60):
    deadline = time.monotonic() + patient(seconds)
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, False),
        ({"live.json": {"ended": None}}, False),
        ({"live.json": {"ended": 5.0}}, True),
        ({"live.json": {"ended": 5.0}, "b/live.json": {"ended": None}}, False),
        ({"trials/a/trial.json": {"status": "running"}}, False),
        ({"trials/a/trial.json": {"status": "finished"}}, True),
        ({"trials/a/trial.json": {"status": "interrupted"}}, True),
        ({"trial.json": {"status": "new"}}, False),
        ({"live.json": [1]}, False),
    ],
)
def test_when_a_folder_has_ended(tmp_path, files, expected):
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content))
    assert has_ended(tmp_path) is expected


def test_the_page_of_many_trials_holds_only_the_start_of_the_script(
    tmp_path, fabricate, monkeypatch
):
    monkeypatch.setattr(again, "MOST_SHOWN", 2)
    folder = fabricate.make_sweep(tmp_path / "results", 3, rounds=2)
    path = report.write([folder], tmp_path / "out")
    page, script = path.read_text(), (path.parent / "commands.sh").read_text()
    assert script.count("fedgps-ray run") == 3
    assert page.count("fedgps-ray run") == 2
    assert "3 trials; here the first 2" in page
