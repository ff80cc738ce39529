"""One table in five notations."""

import csv
import io
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from rich.console import Console

from fedgps_ray.analysis import published
from fedgps_ray.analysis.formats import to_csv, to_html, to_latex, to_markdown, to_rich
from fedgps_ray.analysis.tables import Cell, Column, Head, Table, assemble

TABLE = assemble(
    "10% & <more>",
    ["a_b [red]", "c|d"],
    [
        Column(("top", "ACC"), [Cell("1.50 ± 0.10", 1.5), Cell("2.50", 2.5)], "higher"),
        Column(("top", "ROUND"), [Cell(">500"), Cell("—", mark="missing")], "lower"),
        Column(("<i>", "x"), [Cell("1.00 †", 1.0, "partial"), Cell("…", mark="missing")]),
    ],
    ["note_1"],
)
NASTY = r"\ { } $ & # % ^ _ ~ < > | ± — … † ≤"


def test_markdown():
    assert to_markdown(TABLE).splitlines()[:6] == [
        r"### 10% &amp; &lt;more&gt;",
        "",
        r"| method | top, ACC | top, ROUND | &lt;i&gt;, x |",
        "| --- | ---: | ---: | ---: |",
        r"| a\_b \[red\] | *1.50 ± 0.10* | &gt;500 | 1.00 † |",
        r"| c\|d | **2.50** | — | … |",
    ]
    assert to_markdown(TABLE).splitlines()[7] == r"- note\_1"


def test_markdown_without_notes_ends_with_the_table():
    assert to_markdown(Table("t", ((Head("m"),),), ((Cell("x"),),))) == (
        "### t\n\n| m |\n| --- |\n| x |\n"
    )


def test_latex():
    lines = to_latex(TABLE).splitlines()
    assert r"\caption{10\% \& $<$more$>$}" in lines
    assert r"\begin{tabular}{lrrr}" in lines
    assert r" & \multicolumn{2}{c}{top} & $<$i$>$ \\" in lines
    assert r"\cmidrule(lr){2-3}" in lines
    assert r"a\_b {[}red] & \underline{1.50 $\pm$ 0.10} & $>$500 & 1.00 $^\dagger$ \\" in lines
    assert r"c$|$d & \textbf{2.50} & --- & \ldots{} \\" in lines
    assert [line for line in lines if "rule" in line and "cmid" not in line] == [
        r"\toprule",
        r"\midrule",
        r"\bottomrule",
    ]


def test_a_wide_latex_table_is_scaled_to_the_text():
    columns = [Column((str(index),), [Cell("x")]) for index in range(8)]
    assert r"\resizebox{\linewidth}{!}{%" in to_latex(assemble("", ["a"], columns))
    assert "resizebox" not in to_latex(TABLE)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="compiling needs pdflatex")
def test_latex_compiles(tmp_path):
    nasty = assemble(NASTY, [NASTY], [Column((NASTY,), [Cell(NASTY, 1.0, "best")])], [NASTY])
    tables = [nasty, TABLE, *published.tables().values()]
    packages = r"\usepackage{booktabs}\usepackage{graphicx}"
    body = "\n\\clearpage\n".join(map(to_latex, tables))
    source = f"\\documentclass{{article}}{packages}\\begin{{document}}{body}\\end{{document}}"
    (tmp_path / "all.tex").write_text(source)
    done = subprocess.run(
        ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "all.tex"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-2000:]
    assert (tmp_path / "all.pdf").read_bytes().startswith(b"%PDF")
    assert "Missing character" not in (tmp_path / "all.log").read_text(errors="replace")


class Reader(HTMLParser):
    """Collects what a browser would: tags with their attributes, and texts."""

    def __init__(self):
        super().__init__()
        self.tags, self.open, self.texts = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if data.strip():
            self.texts.append(data.strip())


def read(html):
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


def test_html_is_a_table_that_can_be_sorted():
    reader = read(to_html(TABLE))
    cells = [attrs for tag, attrs in reader.tags if tag == "td"]
    assert cells == [
        {"class": "second", "data-sort": "1.5"},
        {},
        {"class": "partial", "data-sort": "1.0"},
        {"class": "best", "data-sort": "2.5"},
        {"class": "missing"},
        {"class": "missing"},
    ]
    heads = [attrs for tag, attrs in reader.tags if tag == "th"]
    assert heads[1] == {"scope": "colgroup", "colspan": "2"}
    assert heads[-1] == {"scope": "row"}


def test_html_shows_every_text_and_lets_none_become_a_tag():
    reader = read(to_html(TABLE))
    allowed = {"figure", "table", "caption", "div", "thead", "tbody", "tr", "th", "td"}
    assert {tag for tag, _ in reader.tags} == allowed | {"strong", "u", "figcaption", "ul", "li"}
    shown = {cell.text for row in TABLE.rows for cell in row} | {TABLE.title, "<i>", "note_1"}
    assert shown <= set(reader.texts)


def test_html_without_notes_has_no_caption_below():
    assert "figcaption" not in to_html(Table("t", ((Head("m"),),), ((Cell("x"),),)))


def test_csv():
    rows = list(csv.reader(io.StringIO(to_csv(TABLE))))
    assert rows == [
        ["method", "top, ACC", "top, ROUND", "<i>, x"],
        ["a_b [red]", "1.50 ± 0.10", ">500", "1.00 †"],
        ["c|d", "2.50", "—", "…"],
    ]


def test_the_terminal_shows_texts_as_they_are():
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(to_rich(TABLE))
    shown = console.export_text()
    for text in ("10% & <more>", "a_b [red]", "1.50 ± 0.10", ">500", "ROUND", "note_1"):
        assert text in shown


def test_the_terminal_marks_best_and_second():
    console = Console(width=120, force_terminal=True, file=io.StringIO())
    console.print(to_rich(TABLE))
    printed = console.file.getvalue()
    assert "\x1b[1m2.50" in printed
    assert "\x1b[4m1.50 ± 0.10" in printed


@pytest.mark.parametrize("text", ["=1+1", "+1", "@x", "-2+3"])
def test_no_text_of_a_table_becomes_a_formula(text):
    rows = ((Cell(text), Cell("-0.5", -0.5), Cell("-"), Cell("-1")),)
    made = to_csv(Table("t", ((Head(text), Head("a"), Head("b"), Head("c")),), rows))
    head, line = csv.reader(io.StringIO(made, newline=""))
    assert head[0].startswith("'")
    assert (line[0][0], line[1:]) == ("'", ["-0.5", "-", "-1"])
