"""The page in a real browser: filters, legends, hover and zoom, on a large screen and a phone."""

import json
import re
import shutil
import subprocess
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlencode

import pytest

from fedgps_ray.analysis import report
from fedgps_ray.analysis.report.page import publish
from tests.processes import patient

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--virtual-time-budget=4000",
)
TELL = """
let found;
try { found = look(); } catch (problem) { found = String(problem.stack); }
parent.postMessage(encodeURIComponent(JSON.stringify(found)), "*");
"""
HEAR = 'addEventListener("message", (event) => { document.body.dataset.found = event.data; });'
HELPERS = Path(__file__).with_name("visit.js")

pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs Chromium or Chrome")


@pytest.fixture(scope="module")
def page(tmp_path_factory, folder_maker):
    """Return a page on two settings of four methods, as it is while a sweep is followed."""
    folder = tmp_path_factory.mktemp("results")
    ceilings = {"fedavg": 0.5, "scaffold": 0.55, "fedgps": 0.7, "fedgps_cf": 0.69}
    for rate in (0.2, 0.5):
        folder_maker(folder, ceilings, seeds=(0, 1), rounds=20, sampling_rate=rate)
    made = report.build(
        [folder], report.read([folder]), report.Options(False, False, {}), report.silent
    )
    return publish(replace(made, reload=600, written="now"), folder / "report", report.silent)


@pytest.fixture
def visit_page(tmp_path):
    """Return a function that returns what a script finds out in a page."""

    def run(page, script, state="", width=1280):
        """Open the page in a frame of this width (windows cannot be as narrow as a phone)."""
        look = f"const look = () => {{ {HELPERS.read_text()}\n{script} }};"
        inner, outer = tmp_path / "inner.html", tmp_path / "outer.html"
        inner.write_text(
            page.read_text().replace("</body>", f"<script>{look}{TELL}</script></body>")
        )
        frame = f'<iframe src="inner.html{state}" width="{width}" height="2000"></iframe>'
        outer.write_text(f"<!doctype html><body><script>{HEAR}</script>{frame}</body>")
        profile = f"--user-data-dir={tmp_path / 'profile'}"
        command = [BROWSER, *OPTIONS, profile, "--dump-dom", outer.as_uri()]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=patient(100)
        )
        told = re.search(r'data-found="([^"]*)"', done.stdout)
        assert told, f"no answer from the page: {done.stdout[-2000:]}"
        return json.loads(unquote(told[1]))

    return run


@pytest.fixture
def visit(page, visit_page):
    return partial(visit_page, page)


def state(**values):
    return "#!" + urlencode(values, doseq=True)


OTHERS = ("fedprox", "scaffold", "vhl", "fedasam", "fedlesam", "ccvr")
ALL = ["FedAvg", "FedGPS", "FedGPS-CF", "SCAFFOLD"]


def test_every_figure_is_drawn_and_nothing_is_hidden_at_first(visit):
    found = visit("""
      const hidden = all("section[hidden], tr[hidden]").length;
      return { empty: empty().map((one) => one.dataset.chart), names: names(CHART), hidden };
    """)
    assert found == {"empty": [], "names": ALL, "hidden": 0}


def test_the_address_sets_the_filters(visit):
    chosen = state(method=["FedGPS", "FedGPS-CF"], setting="setting-1")
    found = visit(
        """
      const [on, off] = [pressed(filter("FedGPS")), pressed(filter("FedAvg"))];
      return { names: names(CHART), rows: rows(), sections: sections(), on, off };
    """,
        chosen,
    )
    assert found["names"] == ["FedGPS", "FedGPS-CF"]
    assert found["sections"] == ["setting-1"]
    assert not {"FedAvg", "SCAFFOLD"} & set(found["rows"])
    assert {"FedGPS", "FedGPS-CF"} <= set(found["rows"])
    assert (found["on"], found["off"]) == ("true", "false")


def test_a_legend_hides_a_method_in_all_figures_and_shows_it_again(visit):
    found = visit("""
      const bytes = "setting-1-bytes", one = key("FedAvg");
      one.click();
      const off = [names(CHART), names(bytes), pressed(one), location.hash];
      one.click();
      return { off, on: [names(CHART), names(bytes), pressed(one), location.hash] };
    """)
    assert found["off"] == [ALL[1:], ALL[1:], "false", "#!mute=FedAvg"]
    assert found["on"] == [ALL, ALL, "true", "#!"]


def test_a_double_click_shows_one_alone_and_show_all_brings_all_back(visit):
    found = visit("""
      twice(key("FedGPS"));
      const alone = names(CHART);
      document.getElementById("show-all").click();
      return { alone, all: names(CHART) };
    """)
    assert found == {"alone": ["FedGPS"], "all": ALL}


def test_a_curve_that_is_not_shown_at_first_comes_with_a_click(tmp_path, folder_maker, visit_page):
    ceilings = {name: 0.3 + 0.05 * n for n, name in enumerate(["fedavg", *OTHERS])}
    folder = folder_maker(tmp_path / "many", ceilings, scenarios=(1, 2), rounds=3)
    made = report.build(
        [folder], report.read([folder]), report.Options(False, False, {}), report.silent
    )
    page = publish(replace(made, reload=600, written="now"), tmp_path / "out", report.silent)
    found = visit_page(
        page,
        """
      const quiet = "FedProx", before = names(CHART).includes(quiet);
      key(quiet).click();
      const ranks = names("setting-1-ranks").includes(quiet);
      return { before, ranks, after: names(CHART).includes(quiet), hash: location.hash };
    """,
    )
    assert found == {"before": False, "ranks": True, "after": True, "hash": "#!show=FedProx"}


def test_filter_buttons_work_and_are_remembered(visit):
    found = visit("""
      filter("SCAFFOLD").click();
      const one = names(CHART);
      filter("setting-2").click();
      return { one, sections: sections(), hash: location.hash, kept: kept() };
    """)
    assert found["one"] == ["SCAFFOLD"]
    assert found["sections"] == ["setting-2"]
    assert found["hash"] == "#!setting=setting-2&method=SCAFFOLD"
    assert found["kept"] == found["hash"][2:]


def test_the_pointer_shows_values_with_their_range(visit):
    found = visit("""
      mouse("pointermove", 0.5, 0.5);
      const shown = [tip.hidden, ...all("div", tip).map((line) => line.textContent)];
      mouse("pointerleave", 0.5, 0.5);
      return { shown, after: tip.hidden };
    """)
    hidden, head, *lines = found["shown"]
    assert (hidden, found["after"]) == (False, True)
    assert re.fullmatch(r"round: \d+", head)
    assert len(lines) == len(ALL)
    for line in lines:
        assert re.fullmatch(r"[\w-]+: [\d.]+ \([\d.]+ to [\d.]+\)", line)
    values = [float(line.split(": ")[1].split(" ")[0]) for line in lines]
    assert values == sorted(values, reverse=True)


def test_dragging_zooms_and_a_double_click_shows_all_again(visit):
    found = visit("""
      const before = [texts(), reset().hidden];
      mouse("pointerdown", 0.3, 0.5);
      mouse("pointermove", 0.5, 0.5);
      mouse("pointerup", 0.5, 0.5);
      const zoomed = [texts(), reset().hidden];
      twice(svg());
      return { before, zoomed, after: [texts(), reset().hidden] };
    """)
    assert found["before"][1] is True
    assert found["zoomed"][1] is False
    assert found["zoomed"][0] != found["before"][0]
    assert found["after"] == found["before"]


@pytest.mark.parametrize("width", [390, 1280])
def test_nothing_is_wider_than_the_screen(visit, width):
    found = visit(
        """
      const over = document.documentElement.scrollWidth - room;
      const shown = (one) => one.outerHTML.slice(0, 80);
      return { width: innerWidth, over, wide: wide().map(shown), cut: cut().map(shown) };
    """,
        width=width,
    )
    assert found == {"width": width, "over": 0, "wide": [], "cut": []}


@pytest.mark.parametrize("width", [390, 1280])
def test_names_of_wide_letters_are_not_cut_in_a_chart(visit_page, page, tmp_path, width):
    own = tmp_path / "report.html"
    own.write_text(page.read_text().replace("FedGPS-CF", "my_method.py:MyMethod"))
    script = "return [all('.chart svg text').length > 0, cut().map((one) => one.textContent)];"
    assert visit_page(own, script, width=width) == [True, []]


def test_a_page_that_reloads_returns_to_its_place(visit):
    found = visit("""
      scrollTo(0, 700);
      dispatchEvent(new Event("pagehide"));
      return sessionStorage.getItem(`scroll report ${location.pathname}`);
    """)
    assert found == "700"
