"""A results folder from a stranger is data: none of its texts becomes markup or a command."""

import copy
import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

from fedgps_ray.analysis import report, text
from fedgps_ray.analysis.report.page import publish
from fedgps_ray.errors import UserError
from fedgps_ray.results import files, read
from fedgps_ray.spec import columns, trial_spec

HOSTILE = (
    "x\n```\n\n# heading\n\n<img src=x onerror=alert(1)></script><script>alert(1)</script>"
    "</pre></details>--> [a](javascript:alert(1)) ![b](http://example.org/b) www.example.org "
    "| cell | $(touch PWNED) `touch PWNED` ' \"; touch PWNED # \x1b]0;title\x07\x00\x9b31m \u202e"
    " \\input{passwd} {{ 7 * 7 }} {% raw %} &amp;\ntouch PWNED\n=1+1\n- item\n1. one\n===\n~~~\n"
)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028\u2029]")


class Page(HTMLParser):
    """Counts the tags of a page and collects attributes that could run code or load something."""

    def __init__(self, content):
        super().__init__()
        self.tags, self.suspects = {}, []
        self.feed(content)

    def handle_starttag(self, tag, attributes):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        for name, value in attributes:
            outside = name in ("src", "href") and not value.startswith(("#", "figures/"))
            if name.startswith("on") or outside:
                self.suspects.append((tag, name, value))


def texts_in(content, path=()):
    """Yield the place of each text in a JSON value."""
    if isinstance(content, str):
        yield path
    elif isinstance(content, dict):
        for name, value in content.items():
            yield from texts_in(value, (*path, name))
    elif isinstance(content, list):
        for place, value in enumerate(content[:1]):
            yield from texts_in(value, (*path, place))


def changed(content, path):
    """Return a copy whose value at this place is hostile."""
    made = copy.deepcopy(content)
    *above, last = path
    inner = made
    for name in above:
        inner = inner[name]
    inner[last] = HOSTILE
    return made


def planned():
    specs = [trial_spec(method=method, rounds=2) for method in ("fedavg", "vhl")]
    cells = [
        {**columns(spec), "label": "x", "spec": spec.model_dump(mode="json")} for spec in specs
    ]
    return {"name": "n", "title": "t", "description": "d", "file": "mine.toml", "cells": cells}


SPEC = trial_spec(method="fedgps", rounds=2).model_dump(mode="json")
FACTS = {"trial_id": "i", "status": "s", "error": "e", "diverged": "d", "partition_sha256": "p"}
TRIAL = {**FACTS, "spec": SPEC, "versions": {"torch": "1"}, "machine": {"platform": "m"}}
PLACES = [
    *(("trial.json", place) for place in texts_in(TRIAL)),
    *(("experiment.json", place) for place in texts_in(planned())),
]
GROUPS = {}  # neighbouring texts are tried together
for file, place in PLACES:
    GROUPS.setdefault((file, *place[:2]), []).append((file, place))


@pytest.fixture(scope="module")
def template(tmp_path_factory, folder_maker, trial_maker):
    made = folder_maker(tmp_path_factory.mktemp("own"), {"fedavg": 0.5, "fedgps": 0.6}, rounds=2)
    told = {"error": "an error", "diverged": "a divergence"}
    trial_maker(made, method="vhl", status="failed", rounds=2, rounds_done=1, facts=told)
    (made / "experiment.json").write_text(json.dumps(planned()))
    return made


@pytest.fixture(scope="module")
def harmless(template, tmp_path_factory):
    out = written(template, tmp_path_factory.mktemp("harmless"))
    return Page((out / "live" / "report.html").read_text())


@pytest.fixture
def folder(template, tmp_path):
    return shutil.copytree(template, tmp_path / "stranger")


def spoil(folder, file, place):
    """Make one text of one file hostile, in every trial that has it; ids stay different."""
    paths = sorted(folder.glob("trials/*/trial.json" if file == "trial.json" else file))
    for path in paths[:1] if place == ("trial_id",) else paths:
        content = json.loads(path.read_text())
        if place in set(texts_in(content)):
            files.write_json(path, changed(content, place))  # with a seal that is right


def written(folder, out):
    """Return a report that was written; figures hold no text but names, and are left out."""
    made = report.build(
        [folder], report.read([folder]), report.Options(True, False, {}), report.silent
    )
    sections = [
        replace(one, blocks=[b for b in one.blocks if b.kind != "picture"]) for one in made.sections
    ]
    publish(replace(made, sections=sections), out, report.silent)
    publish(replace(made, reload=5, written="now"), out / "live", report.silent)
    return out


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: " ".join(map(str, group)))
def test_no_text_of_a_folder_becomes_markup_or_a_command(
    folder, harmless, tmp_path, monkeypatch, group
):
    """Also if the checks of trial.json and experiment.json let everything through."""
    monkeypatch.setattr(read, "_check_cells", lambda cells: None)
    monkeypatch.setattr(read, "_check_id", lambda folder, info: None)
    monkeypatch.setattr(read, "_check_types", lambda folder, info: None)
    for file, place in GROUPS[group]:
        spoil(folder, file, place)
    out = written(folder, tmp_path / "after")
    _check_html(out, harmless)
    for path in out.rglob("*.md"):
        _check_markdown(path.read_text())
    for path in [*out.rglob("*.tex"), *out.rglob("*.csv"), *out.rglob("*.sh")]:
        content = path.read_text()
        assert not CONTROL.search(content.replace("\r\n", "\n")), path
        assert r"\input{" not in content or path.suffix != ".tex"
    _check_script(out, tmp_path)


def _check_html(out, harmless):
    for path in [out / "report.html", out / "live" / "report.html"]:
        content = path.read_text()
        found = Page(content)
        assert found.suspects == []
        assert not CONTROL.search(content)
        assert "http://" not in content.replace("http://example.org", "")
    for tag in ("script", "style", "meta", "h1"):
        assert found.tags.get(tag) == harmless.tags.get(tag), tag


def _check_markdown(content):
    assert not CONTROL.search(content)
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(content)
    inner = [child for token in tokens for child in token.children or []]
    kinds = {token.type for token in [*tokens, *inner]}
    assert not kinds & {"html_block", "html_inline", "link_open"}
    images = [child.attrs["src"] for child in inner if child.type == "image"]
    assert all(source.startswith("figures/") for source in images)
    headings = [
        tokens[place + 1].content for place, t in enumerate(tokens) if t.type == "heading_open"
    ]
    assert "heading" not in headings


def _check_script(out, tmp_path):
    """Run the script where our program only exists as a stand-in."""
    programs = tmp_path / "programs"
    programs.mkdir()
    stand_in = programs / "fedgps-ray"
    stand_in.write_text("#!/bin/sh\nexit 0\n")
    stand_in.chmod(0o755)
    environment = {"PATH": f"{programs}:/usr/bin:/bin"}
    done = subprocess.run(
        ["sh", out / "commands.sh"], cwd=tmp_path, env=environment, check=False, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "PWNED").exists()


def test_there_are_texts_to_try():
    assert len(PLACES) > 25
    assert ("trial.json", ("error",)) in PLACES
    assert ("trial.json", ("spec", "method", "name")) in PLACES
    assert ("experiment.json", ("file",)) in PLACES


def test_an_odd_trial_id_is_left_out_of_the_script(folder, tmp_path):
    spoil(folder, "trial.json", ("trial_id",))
    try:
        script = (written(folder, tmp_path / "out") / "commands.sh").read_text()
    except UserError:
        return  # such ids are refused when read
    assert "PWNED" not in script


def test_links_out_of_the_report_are_refused(folder, tmp_path):
    out, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    out.mkdir()
    elsewhere.mkdir()
    (out / "tables").symlink_to(elsewhere)
    (folder / "report").symlink_to(elsewhere)
    for place in (out, folder / "report"):
        with pytest.raises(UserError, match="is a link to another place"):
            report.write([folder], place)
    assert list(elsewhere.iterdir()) == []


# --- text -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("plain", "plain"),
        ("a_b*c", r"a\_b\*c"),
        ("<b>&", "&lt;b&gt;&amp;"),
        ("1. one", "&#49;. one"),
        ("1.50 ± 0.10", "1.50 ± 0.10"),
        ("- item", "&#45; item"),
        ("-1.5", "-1.5"),
        ("# title", "&#35; title"),
        ("two\nlines", "two lines"),
        ("http://a.b", r"http:\/\/a.b"),
        ("www.a.b", r"www\.a.b"),
        ("\x1b[31mred", r"�\[31mred"),
    ],
)
def test_markdown_text(given, expected):
    assert text.markdown(given) == expected


@pytest.mark.parametrize("given", ["", "```", "a ```` b\n```", "`"])
def test_a_fence_is_longer_than_any_in_the_text(given):
    made = text.fence(given)
    assert len(made) >= 3
    assert made not in given


@pytest.mark.parametrize(
    ("given", "expected"),
    [("0123456789ab", True), ("0123456789AB", False), ("0123456789ab\n", False), ("x", False)],
)
def test_what_a_trial_id_looks_like(given, expected):
    assert text.is_trial_id(given) is expected
