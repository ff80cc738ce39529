"""Frames to tables: a table is plain values, which formats.py writes in any notation."""

import itertools
import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isnan, nan
from statistics import fmean, stdev
from typing import Any, Literal, NamedTuple

import pandas as pd

from fedgps_ray.analysis import metrics
from fedgps_ray.errors import UserError

Mark = Literal["", "best", "second", "partial", "missing"]
Row = Mapping[Hashable, Any]

ABSENT, DASH, RUNNING, PARTIAL = "—", "-", "…", "†"
MEAN = "mean ± std"
WEIGHTING = "method.weighting"
LEGEND = {
    ABSENT: f"{ABSENT}: no result.",
    DASH: f"{DASH}: the run diverged or failed.",
    RUNNING: f"{RUNNING}: the run has not finished.",
    PARTIAL: f"{PARTIAL}: over fewer runs than the column has, so not compared.",
}
CELL = ["label", "status", "accuracy", "target", "cost", "cost_of", "spent", "speedup"]
COSTS = {  # cost -> head of its column, divisor, digits
    "rounds": ("ROUND", 1.0, 1),
    "bytes": ("MB", 1e6, 1),
    "bytes_up": ("MB up", 1e6, 1),
    "bytes_down": ("MB down", 1e6, 1),
    "gradient_evaluations": ("gradients", 1.0, 0),
    "seconds": ("seconds", 1.0, 1),
}


class Cell(NamedTuple):
    """What is printed, what it sorts by, and whether it stands out."""

    text: str
    value: float | None = None
    mark: Mark = ""


class Head(NamedTuple):
    """A heading over one or several columns."""

    text: str
    span: int = 1


@dataclass(frozen=True)
class Table:
    """Rows of cells under rows of headings; the first column names the row."""

    title: str
    header: tuple[tuple[Head, ...], ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


class Column(NamedTuple):
    """One column to be: its headings from the top down, its cells, and which value is better."""

    heads: tuple[str, ...]
    cells: Sequence[Cell]
    better: Literal["higher", "lower", ""] = ""


def assemble(
    title: str, names: Sequence[str], columns: Sequence[Column], notes: Sequence[str] = ()
) -> Table:
    """Return the table of these columns: best marked, headings joined, signs told."""
    marked = [_marked(column) for column in columns]
    body = [
        (Cell(name), *cells)
        for name, *cells in zip(names, *(column.cells for column in marked), strict=True)
    ]
    depth = max((len(column.heads) for column in columns), default=1)
    header = [_heads([column.heads for column in columns], level, depth) for level in range(depth)]
    signs = {sign for row in body for cell in row[1:] for sign in LEGEND if _has(cell, sign)}
    legend = [line for sign, line in LEGEND.items() if sign in signs]
    return Table(title, tuple(header), tuple(body), (*notes, *legend))


def _has(cell: Cell, sign: str) -> bool:
    return cell.text == sign or (sign == PARTIAL and cell.text.endswith(PARTIAL))


def _marked(column: Column) -> Column:
    """Mark the best and the second best, unless there is nothing to compare."""
    values = {cell.value for cell in column.cells if cell.mark == "" and cell.value is not None}
    if not column.better or len(values) < 2:
        return column
    best, second, *_ = sorted(values, reverse=column.better == "higher")
    marks: dict[float | None, Mark] = {best: "best", second: "second"}
    cells = [cell._replace(mark=cell.mark or marks.get(cell.value, "")) for cell in column.cells]
    return column._replace(cells=cells)


def _heads(paths: Sequence[tuple[str, ...]], level: int, depth: int) -> tuple[Head, ...]:
    """Return one row of headings; neighbours under the same headings share one."""
    padded = [path + ("",) * (depth - len(path)) for path in paths]
    last = level == depth - 1
    keys = [(*path[: level + 1], index if last else 0) for index, path in enumerate(padded)]
    spans = [(key[level], len(list(same))) for key, same in groupby(keys)]
    corner = "method" if last else ""
    return (Head(corner), *(Head(str(text), span) for text, span in spans))


# --- cells ----------------------------------------------------------------------------------------


def _score(rows: Sequence[Row], of: int) -> Cell:
    """Return the accuracy of some runs: the value of one, mean and deviation of several."""
    values = _known(rows, "accuracy")
    if not values:
        return _absent(rows)
    cell = mean_cell(fmean(values), stdev(values) if len(values) > 1 else nan)
    if len(values) < of:
        return Cell(f"{cell.text} {PARTIAL}", cell.value, "partial")
    return cell


def mean_cell(mean: float, std: float) -> Cell:
    """Return mean ± std with two digits; without an std the mean alone, without a mean a dash."""
    if isnan(mean):
        return Cell(ABSENT, mark="missing")
    return Cell(f"{mean:.2f}" if isnan(std) else f"{mean:.2f} ± {std:.2f}", round(mean, 2))


def _known(rows: Sequence[Row], name: str) -> list[float]:
    return [row[name] for row in rows if not isnan(row[name])]


def _absent(rows: Sequence[Row]) -> Cell:
    statuses = {row["status"] for row in rows}
    if statuses & {*metrics.FAILED}:
        return Cell(DASH, mark="missing")
    return Cell(ABSENT if statuses <= {"finished"} else RUNNING, mark="missing")


def _cost(rows: Sequence[Row], of: int) -> Cell:
    """Return the cost to the target: of one run, or the mean of those that reach it."""
    judged = [row for row in rows if not isnan(row["accuracy"]) and not isnan(row["target"])]
    if not judged:
        return _absent([row for row in rows if isnan(row["accuracy"])])
    kind, reached = judged[0]["cost_of"], _known(judged, "cost")
    if not reached:
        return Cell(f">{_amount(max(row['spent'] for row in judged), kind).text}")
    cell = _amount(fmean(reached), kind)
    if len(reached) < of:
        return Cell(f"{cell.text} ({len(reached)} of {of})", cell.value, "partial")
    return cell


def _amount(cost: float, kind: str) -> Cell:
    _, divisor, digits = COSTS[kind]
    whole = kind == "rounds" and cost == int(cost)
    return _fixed(cost / divisor, 0 if whole else digits)


def _fixed(value: float, digits: int) -> Cell:
    return Cell(f"{value:.{digits}f}", round(value, digits))


def _speed(rows: Sequence[Row], of: int) -> Cell:
    """Return the speed-up over FedAvg: of one run, or the mean of those that reach the target."""
    cost, speedups = _cost(rows, of), _known(rows, "speedup")
    if cost.mark == "missing":
        return cost
    if not speedups:
        return Cell("none")
    text, value, _ = _fixed(fmean(speedups), 1)
    return Cell(f"{text}x", value, cost.mark)


# --- methods by scenarios, seeds, settings --------------------------------------------------------


def by_scenario(runs: pd.DataFrame) -> Table:
    """Return methods by scenarios: accuracy, cost to target, speed-up; then mean and deviation."""
    title, names = _one_setting(runs), metrics.order(runs)
    scenarios = sorted(runs["scenario"].unique())
    columns = [
        column
        for scenario in scenarios
        for column in _scenario(runs[runs["scenario"] == scenario], names)
    ]
    if len(scenarios) > 1:
        averages = metrics.average_seeds(runs)
        heads = ("all scenarios", MEAN)
        columns.append(_scores(heads, averages, names, len(scenarios)))
    return assemble(title, names, columns, _seed_notes(runs))


def overview(runs: pd.DataFrame) -> Table:
    """Return what fits a terminal: methods, and their accuracies over all scenarios and seeds."""
    title, names = _one_setting(runs), metrics.order(runs)
    heads = {"accuracy": "best", "last": "last", "last_ten": "mean of last ten"}
    cases = len(runs[["scenario", "seed"]].drop_duplicates())
    columns = [
        _scores((head,), runs.assign(accuracy=runs[name]), names, cases)
        for name, head in heads.items()
    ]
    note = f"Accuracy in percent: {MEAN} over {cases} scenarios and seeds." if cases > 1 else ""
    return assemble(title, names, columns, [note] if note else [])


def _one_setting(runs: pd.DataFrame) -> str:
    settings = [setting for setting, _ in metrics.settings(runs)]
    if len(settings) != 1:
        raise UserError(f"one table shows one setting, got {len(settings)}: {'; '.join(settings)}")
    return settings[0]


def _seed_notes(runs: pd.DataFrame) -> list[str]:
    count = runs["seed"].nunique()
    return [f"Cells are means over {count} seeds."] if count > 1 else []


def _scenario(runs: pd.DataFrame, names: Sequence[str]) -> list[Column]:
    title, of = f"scenario {runs['scenario'].iloc[0]}", runs["seed"].nunique()
    if not runs["target"].notna().any():
        return [_scores((title, "ACC"), runs, names, of)]
    title += f" (target {_range(runs['target'])}%)"
    rows = _of_names(runs, names)
    cost, _, _ = COSTS[runs["cost_of"].iloc[0]]
    return [
        _scores((title, "ACC"), runs, names, of),
        Column((title, cost), [_cost(part, of) for part in rows], "lower"),
        Column((title, "SpeedUp"), [_speed(part, of) for part in rows], "higher"),
    ]


def _range(values: "pd.Series[float]") -> str:
    low, high = f"{values.min():.4g}", f"{values.max():.4g}"
    return low if low == high else f"{low} to {high}"


def _scores(heads: tuple[str, ...], runs: pd.DataFrame, names: Sequence[str], of: int) -> Column:
    return _scores_of(heads, _records(runs), names, of)


def _scores_of(
    heads: tuple[str, ...], rows: Sequence[Row], names: Sequence[str], of: int
) -> Column:
    cells = [_score(part, of) for part in _by_names(rows, names)]
    return Column(heads, cells, "higher")


def _of_names(runs: pd.DataFrame, names: Sequence[str]) -> list[list[Row]]:
    """Return the runs of each name; a name may have none."""
    return _by_names(_records(runs), names)


def _records(runs: pd.DataFrame, *more: str) -> Sequence[Row]:
    """Return what a cell is made from, run by run."""
    return runs[[name for name in (*CELL, *more) if name in runs]].to_dict("records")


def _by_names(rows: Sequence[Row], names: Sequence[str]) -> list[list[Row]]:
    by_name: dict[str, list[Row]] = {name: [] for name in names}
    for row in rows:
        by_name[str(row["label"])].append(row)
    return list(by_name.values())


def by_seed(runs: pd.DataFrame) -> Table:
    """Return methods by scenarios and seeds, with mean and deviation over seeds and over all."""
    title, names = _one_setting(runs), metrics.order(runs)
    cases: dict[int, dict[int, list[Row]]] = {}  # taken apart once: there may be many seeds
    for row in _records(runs, "scenario", "seed"):
        cases.setdefault(row["scenario"], {}).setdefault(row["seed"], []).append(row)
    columns = []
    for scenario, seeds in sorted(cases.items()):
        head, every = f"scenario {scenario}", list(itertools.chain(*seeds.values()))
        for seed, part in sorted(seeds.items()):
            columns.append(_scores_of((head, f"seed {seed}"), part, names, 1))
        columns.append(_scores_of((head, MEAN), every, names, len(seeds)))
    columns.append(_scores(("all", MEAN), runs, names, sum(map(len, cases.values()))))
    return assemble(title, names, columns)


def by_setting(runs: pd.DataFrame, columns: Sequence[str]) -> Table:
    """Return methods by the values of some columns of the setting, such as ["clients"]."""
    names = metrics.order(runs)
    made = [
        _setting_column(columns, value, rows, names)
        for value, rows in runs.groupby(list(columns), dropna=False)
    ]
    return assemble(f"by {', '.join(_words(columns))}", names, made, [_shared(runs)])


def _words(columns: Sequence[str]) -> list[str]:
    return [column.replace("_", " ") for column in columns]


def _shared(runs: pd.DataFrame) -> str:
    """Return in words what all runs have in common."""
    same = {name: runs[name].iloc[0] for name in metrics.SETTING if _same(runs[name])}
    return f"All: {metrics.describe({**dict.fromkeys(metrics.SETTING), **same})}."


def _same(values: "pd.Series[Any]") -> bool:
    return values.nunique(dropna=False) == 1


def _no_mixture(columns: Sequence[str], value: Any, rows: pd.DataFrame) -> None:
    mixed = [name for name in metrics.SETTING if not _same(rows[name])]
    if mixed:
        raise UserError(
            f"the runs with {', '.join(_words(columns))} = {', '.join(map(str, value))} also"
            f" differ in {', '.join(mixed)}; add that to the columns, or filter the runs"
        )


def _setting_column(
    columns: Sequence[str], value: tuple[Any, ...], rows: pd.DataFrame, names: Sequence[str]
) -> Column:
    _no_mixture(columns, value, rows)
    heads = tuple(
        metrics.text(column, one) if pd.notna(one) else f"no {column}"
        for column, one in zip(columns, value, strict=True)
    )
    cases = len(rows[["scenario", "seed"]].drop_duplicates())
    return _scores(heads, rows, names, cases)


# --- what methods send, and what they ran with ----------------------------------------------------


def communication(trials: pd.DataFrame, formulas: Mapping[str, tuple[str, str]]) -> Table:
    """Return measured bytes per client and round, in models M, beside each method's formulas.

    M is the size of the trial's own model file: its weights and BatchNorm statistics.
    """
    frame = _measured(trials)
    names, sent = metrics.order(frame), frame.groupby("label", observed=True)
    up, down = (sent[name].mean() for name in ("up", "down"))
    size, method = sent["model_bytes"].mean(), sent["method"].first()
    texts = [formulas.get(str(method[name]), ("unknown", "unknown")) for name in names]
    columns = [
        Column(("", "M in MB"), [_fixed(size[name] / 1e6, 3) for name in names]),
        *_direction("up", [(up[n], size[n], t[0]) for n, t in zip(names, texts, strict=True)]),
        *_direction("down", [(down[n], size[n], t[1]) for n, t in zip(names, texts, strict=True)]),
    ]
    note = "Means over all rounds of a client's share, counted from what was really sent."
    return assemble("bytes per client and round", names, columns, [note])


def _measured(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the trials that ended: bytes per client and round, labels by method and model."""
    frame = trials[trials["model_bytes"].notna() & (trials["rounds_done"] > 0)].copy()
    if frame.empty:
        raise UserError("no trial has ended, so there are no bytes to compare; let one finish")
    frame["label"] = metrics.labels(frame)
    if len(frame[["dataset", "model"]].drop_duplicates()) > 1:
        frame["label"] += ", " + frame["dataset"] + " " + frame["model"]
    per_round = (frame["sampling_rate"] * frame["clients"]).round().clip(lower=1)
    for name in ("up", "down"):
        frame[name] = frame[f"bytes_{name}"] / (frame["rounds_done"] * per_round)
    return frame


def _direction(name: str, sent: Sequence[tuple[float, float, str]]) -> list[Column]:
    return [
        Column((name, "MB"), [_fixed(amount / 1e6, 3) for amount, _, _ in sent], "lower"),
        Column((name, "in M"), [_fixed(amount / model, 3) for amount, model, _ in sent]),
        Column((name, "formula"), [Cell(text) for _, _, text in sent]),
    ]


def hyperparameters(trials: pd.DataFrame) -> Table:
    """Return what each method ran with: optimizer, weighting, and its own hyperparameters."""
    frame = trials.assign(variant=trials["variant"].map(_of_method))
    frame = frame.assign(label=metrics.labels(frame, within=[])).drop_duplicates("label")
    names = metrics.order(frame)
    variants = {row["label"]: json.loads(row["variant"]) for _, row in frame.iterrows()}
    shared = [name for variant in variants.values() for name in variant if "optimizer." in name]
    columns = [
        Column((_last(key),), [Cell(_plain(variants[name].get(key))) for name in names])
        for key in [*dict.fromkeys(shared), WEIGHTING]
    ]
    own = Column(("of the method",), [Cell(_own(variants[name])) for name in names])
    return assemble("hyperparameters", names, [*columns, own])


def _of_method(variant: str) -> str:
    settings = json.loads(variant)
    return json.dumps(
        {n: v for n, v in settings.items() if n.startswith(("method.", "optimizer."))}
    )


def _last(name: str) -> str:
    return name.rpartition(".")[2].replace("_", " ")


def _plain(value: Any) -> str:
    texts = {None: "none", True: "yes", False: "no"}
    return texts[value] if isinstance(value, bool | None) else str(value)


def _own(variant: Mapping[str, Any]) -> str:
    own = {
        name: value
        for name, value in variant.items()
        if name.startswith("method.") and name != WEIGHTING
    }
    return ", ".join(f"{_last(name)} {_plain(value)}" for name, value in own.items()) or "none"
