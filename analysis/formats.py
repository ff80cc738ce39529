"""Tables as Markdown, LaTeX, HTML, CSV and for the terminal."""

import csv
import io
from collections.abc import Iterator
from html import escape as escape_html

import rich.table
from rich.markup import escape as escape_rich
from rich.text import Text

from fedgps_ray import units
from fedgps_ray.analysis import text as texts
from fedgps_ray.analysis.tables import Cell, Head, Table

LATEX = {  # what LaTeX would read as a command, or cannot print
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "[": "{[}",  # at the start of a row it would be an option of the line before
    "±": r"$\pm$",
    "—": "---",
    "…": r"\ldots{}",
    "†": r"$^\dagger$",
    "≤": r"$\le$",
}
WIDE = 8  # columns; more are scaled to the width of the text
STYLES = {"best": "bold", "second": "underline", "missing": "dim"}


def _flat_heads(table: Table, between: str = ", ") -> list[str]:
    """Return one heading per column: all that is above it."""
    levels = [[head.text for head in row for _ in range(head.span)] for row in table.header]
    return [between.join(filter(None, parts)) for parts in zip(*levels, strict=True)]


# --- Markdown -------------------------------------------------------------------------------------


def to_markdown(table: Table) -> str:
    """Return a heading, the table with best bold and second in italics, and its notes."""
    heads = _flat_heads(table)
    rows = [[texts.inline_markdown(text) for text in heads], ["---", *["---:"] * (len(heads) - 1)]]
    rows += [[_markdown(cell) for cell in row] for row in table.rows]
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    notes = [f"- {texts.markdown(note)}" for note in table.notes]
    parts = [f"### {texts.markdown(table.title)}", "\n".join(lines), "\n".join(notes)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _markdown(cell: Cell) -> str:
    text = texts.inline_markdown(cell.text)
    return {"best": f"**{text}**", "second": f"*{text}*"}.get(cell.mark, text)


# --- LaTeX ----------------------------------------------------------------------------------------


def to_latex(table: Table) -> str:
    r"""Return a floating table; needs \usepackage{booktabs} and \usepackage{graphicx}."""
    width = sum(head.span for head in table.header[0])
    body = "\n".join(
        [
            rf"\begin{{tabular}}{{l{'r' * (width - 1)}}}",
            r"\toprule",
            *_latex_header(table),
            r"\midrule",
            *(" & ".join(_latex(cell) for cell in row) + r" \\" for row in table.rows),
            r"\bottomrule",
            r"\end{tabular}",
        ]
    )
    if width > WIDE:
        body = f"\\resizebox{{\\linewidth}}{{!}}{{%\n{body}}}"
    notes = [rf"\par\smallskip{{\footnotesize {_latex_text(note)}}}" for note in table.notes]
    caption = rf"\caption{{{_latex_text(table.title)}}}"
    lines = [r"\begin{table}", r"\centering", caption, body, *notes, r"\end{table}"]
    return "\n".join(lines) + "\n"


def _latex_header(table: Table) -> Iterator[str]:
    for row in table.header:
        yield " & ".join(_latex_head(head) for head in row) + r" \\"
        yield from _rules(row)


def _latex_head(head: Head) -> str:
    text = _latex_text(head.text)
    return text if head.span == 1 else rf"\multicolumn{{{head.span}}}{{c}}{{{text}}}"


def _rules(row: tuple[Head, ...]) -> Iterator[str]:
    """Yield a line under each heading that spans columns."""
    first = 1
    for head in row:
        if head.span > 1:
            yield rf"\cmidrule(lr){{{first}-{first + head.span - 1}}}"
        first += head.span


def _latex(cell: Cell) -> str:
    text = _latex_text(cell.text)
    marked = {"best": rf"\textbf{{{text}}}", "second": rf"\underline{{{text}}}"}
    return marked.get(cell.mark, text)


def _latex_text(text: str) -> str:
    return "".join(LATEX.get(sign, sign) for sign in texts.one_line(text))


# --- HTML -----------------------------------------------------------------------------------------


def to_html(table: Table) -> str:
    """Return a <table>; cells carry their number in data-sort and their mark as class."""
    head = "\n".join(f"<tr>{''.join(_html_head(h) for h in row)}</tr>" for row in table.header)
    body = "\n".join(f"<tr>{_html_row(row)}</tr>" for row in table.rows)
    notes = "".join(f"<li>{escape(note)}</li>" for note in table.notes)
    return "\n".join(
        [
            "<figure>",
            f'<div class="scroll">\n<table>\n<caption>{escape(table.title)}</caption>',
            f"<thead>\n{head}\n</thead>\n<tbody>\n{body}\n</tbody>\n</table>\n</div>",
            f"<figcaption><ul>{notes}</ul></figcaption>" if notes else "",
            "</figure>\n",
        ]
    )


def escape(text: str) -> str:
    """Return text as HTML shows it, quotes too."""
    return escape_html(texts.clean(text))


def _html_head(head: Head) -> str:
    if head.span == 1:
        return f'<th scope="col">{escape(head.text)}</th>'
    return f'<th scope="colgroup" colspan="{head.span}">{escape(head.text)}</th>'


def _html_row(row: tuple[Cell, ...]) -> str:
    name, *cells = row
    return f'<th scope="row">{escape(name.text)}</th>' + "".join(map(_html, cells))


def _html(cell: Cell) -> str:
    sort = "" if cell.value is None else f' data-sort="{float(cell.value)!r}"'
    mark = f' class="{cell.mark}"' if cell.mark else ""
    tags = {"best": "strong", "second": "u"}
    text = escape(cell.text)
    tag = tags.get(cell.mark)
    return f"<td{mark}{sort}>{f'<{tag}>{text}</{tag}>' if tag else text}</td>"


# --- CSV and the terminal -------------------------------------------------------------------------


def to_csv(table: Table) -> str:
    """Return one line of headings and one per row, as printed."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_csv(head) for head in _flat_heads(table)])
    writer.writerows(
        [cell.text if cell.value is not None else _csv(cell.text) for cell in row]
        for row in table.rows
    )
    return text.getvalue()


def _csv(text: str) -> str:
    """Return text that a spreadsheet does not take for a formula."""
    return str(units.cell(texts.clean(text)))


def to_rich(table: Table) -> rich.table.Table:
    """Return the table for a terminal."""
    notes = Text(texts.clean("\n".join(table.notes))) if table.notes else None
    shown = rich.table.Table(
        title=Text(texts.one_line(table.title)), caption=notes, caption_justify="left"
    )
    for index, head in enumerate(_flat_heads(table, between="\n")):
        shown.add_column(escape_rich(texts.clean(head)), justify="right" if index else "left")
    for row in table.rows:
        shown.add_row(
            *(Text.assemble((texts.one_line(cell.text), STYLES.get(cell.mark, ""))) for cell in row)
        )
    return shown
