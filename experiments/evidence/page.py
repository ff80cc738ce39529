"""Writes docs/evidence.md and its figures from the published results.

    python -m fedgps_ray.experiments.evidence.page

The same files always give the same page. What is missing is said on it; conclusions that no rule
can draw are in discussion.md, which the page includes.
"""

import argparse
import itertools
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from fedgps_ray.analysis import figures
from fedgps_ray.analysis.figures.chart import Chart
from fedgps_ray.errors import UserError
from fedgps_ray.experiments.evidence import compare, draw, measured, study, verdict
from fedgps_ray.experiments.evidence.ablation import SWITCHES, effects
from fedgps_ray.experiments.evidence.effects import Difference, Question
from fedgps_ray.experiments.evidence.study import Study
from fedgps_ray.experiments.evidence.sweeps import SWEEPS

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
DISCUSSION = HERE / "discussion.md"
PAGE = HERE.parents[1] / "docs" / "evidence.md"
TIMED = ("noise in VHL", "matched labels", "FedGPS over FedAvg")
ELSEWHERE = (
    Question("aligned noise", study.NO_PATH, "FedAvg"),
    Question("noise in VHL", "VHL", "FedAvg"),
    Question("uniform shares", study.UNIFORM, "FedAvg"),
    Question("path of 0.5", study.MATCHED, study.NO_PATH),
    Question("path of 0.15 % of the weights", study.RELATIVE, study.NO_PATH),
    Question("matched labels", study.MATCHED, "FedGPS"),
    Question("FedGPS over FedAvg", "FedGPS", "FedAvg"),
    Question("FedGPS over VHL", "FedGPS", "VHL"),
    Question("FedGPS matched over VHL", study.MATCHED, "VHL"),
    Question("FedGPS matched, 0.15 %, over VHL", study.RELATIVE, "VHL"),
    Question("FedLESAM, sum over global", "FedLESAM, sum of norms", "FedLESAM"),
)
OVER_TIME = (*verdict.QUESTIONS, *(each for each in ELSEWHERE if each.claim in TIMED))
PLACES = {
    "depth": "CIFAR-10 small, `convnet`",
    "cnn": "CIFAR-10 small, `cnn`",
    "cifar100": "CIFAR-100 small, `convnet`",
    "breadth": "digits, `cnn`",
}
DRAWN = (
    *("FedAvg", "SCAFFOLD", "VHL", "FedLESAM", "FedGPS"),
    *(study.MATCHED, study.NO_PATH, study.RELATIVE),
)
DRAWN_SWEEPS = ("depth", "breadth")
ABOUT = {
    "curves": "accuracy by round",
    "bytes": "accuracy against bytes",
    "drift": "update diversity by round",
    "clients": "worst, 10th-percentile and median client at the end",
}
UNKNOWN = "not measured yet"
MARGIN = 2.0  # points by which another learning rate must be better
TEXTS = {
    "intro": (
        "The design, the questions and the rules were written down before the runs"
        " ([README](../experiments/evidence/README.md)). This page is made from"
        " `experiments/evidence/results` by `python -m fedgps_ray.experiments.evidence.page`; all"
        " numbers are in percent or points of test accuracy, intervals are of 95 % (Student's t),"
        " differences are paired over draws (a partition and a training seed)."
    ),
    "time": (
        "The same on CIFAR-10 small, `convnet`, at four times of the training, means of ten rounds."
        " This table was decided on after the first draws had been seen, and decides nothing."
    ),
    "accuracy": (
        "Mean over the draws; p-values of paired t-tests, corrected by Holm for the column. Seeds"
        " of one partition are not independent, so intervals are rather too short."
    ),
    "behaviour": (
        "Means over the draws and the last ten rounds. The worst client's accuracy is that of the"
        " test set weighted by its classes. Update diversity is the mean squared norm of the"
        " clients' updates over the squared norm of their mean: 1 if all go the same way."
    ),
    "differs": (
        "The paper: 32x32 images, 50,000 of them, ResNet-18 (ResNet-50 for CIFAR-100), 500 rounds,"
        " noise images of the authors' generator, best test of a run, mean of five partitions."
        " Here: 16x16 images, 10,000 of them, a network of 95,000 weights, 80 rounds, drawn noise"
        " images. Absolute numbers cannot be compared; orders can. For this the best test is"
        " taken, as in the paper."
    ),
    "orderings": (
        "Every pair of methods in the order of the paper's CIFAR-10 table. Here: the last ten"
        " tests, intervals of 95 % without correction, so that one pair in twenty is told apart by"
        " chance; seeds of one partition are not independent."
    ),
    "effects": (
        "Sixteen combinations of seven switches on two partitions, 40 rounds: the mean at the"
        " second value less that at the first, with the partition as block. Interactions of two"
        " switches are confounded with each other and not shown."
    ),
    "lengths": (
        "One draw (scenario 1, seed 0), so a description only. The step is how far ahead the"
        " gradient is taken, as a share of the norm of the weights and of the client's update of"
        " the round; means over the rounds that all trials have."
    ),
    "rates": (
        "Mean of the last ten tests (learning rate) on a draw that no other sweep uses, 40 rounds."
        " A method keeps the published rate unless another is better by more than two points."
    ),
}


# --- text -----------------------------------------------------------------------------------------


def table(frame: pd.DataFrame) -> str:
    """Return a frame as Markdown."""
    lines = [list(map(str, frame.columns)), ["---"] * len(frame.columns)]
    lines += [[str(value) for value in row] for row in frame.itertuples(index=False)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def what_was_run(known: Study) -> str:
    """Return the sweeps, and how many of their trials there are."""
    done = known.counts()
    diverged = known.trials[known.trials["status"] == "diverged"]["sweep"].value_counts()
    rows = [
        {
            "sweep": f"[{sweep.file}](../experiments/evidence/{sweep.file})",
            "what": sweep.about,
            "trials": f"{done[name]} of {sweep.trials}",
            "diverged": str(int(diverged.get(name, 0))),
        }
        for name, sweep in SWEEPS.items()
    ]
    return f"{table(pd.DataFrame(rows))}\n\n{_missing(known)}"


def _missing(known: Study) -> str:
    """Return which sweeps are not complete, and what runs the rest."""
    missing = [name for name in SWEEPS if not known.is_complete(name)]
    if not missing:
        return "All trials are finished."
    return (
        f"Not complete: {', '.join(missing)}. What is missing is run by `python -m"
        f" fedgps_ray.experiments.evidence.run {' '.join(missing)} --out runs/evidence`"
        " ([how](../experiments/evidence/README.md#files-and-cost))."
    )


def questions(known: Study) -> str:
    """Return the table of the questions that decide, as far as there are draws."""
    try:
        found = verdict.answered(known)
    except UserError as problem:
        return f"Not yet: {problem}."
    is_decided = verdict.is_decided(found)
    rows = [
        {
            "claim": row["claim"],
            "difference": f"{row['first']} minus {row['second']}",
            "points": f"{row['mean']:+.2f} ({row['low']:+.2f} to {row['high']:+.2f})",
            "p": compare.p_text(row["p"]),
            "p, Holm": compare.p_text(row["holm_p"]),
            "draws": row["draws"],
            "answer": row["answer"] if is_decided else "so far",
        }
        for row in found.to_dict("records")
    ]
    return table(pd.DataFrame(rows))


def elsewhere(known: Study) -> str:
    """Return further differences in all places, which decide nothing."""
    rows = []
    for question in ELSEWHERE:
        row = {"": question.claim, "difference": f"{question.first} minus {question.second}"}
        for sweep, place in PLACES.items():
            found = compare.against(known.of(sweep), question.first, question.second)
            row[place] = "-" if found is None else _with_draws(found)
        rows.append(row)
    return table(pd.DataFrame(rows))


def _with_draws(found: Difference) -> str:
    return f"{compare.difference_text(found)}, n {found.draws}"


def over_time(known: Study) -> Iterator[str]:
    """Yield whether the differences grow or shrink during the training."""
    done = known.of("depth")
    if done.empty:
        return
    yield TEXTS["time"]
    yield table(compare.over_time(done, known.rounds_of(done), OVER_TIME))


def _filled(discussion: str, known: Study) -> str:
    """Put the differences in for their names in braces: no number is written by hand.

    A name is that of a sweep and of a difference, as in {breadth: path of 0.5}, or that of a switch
    of the ablation, as in {ablation: w_align}.
    """
    measured_effects = _effects(known)
    for switch in SWITCHES:
        text = measured_effects.get(switch, UNKNOWN)
        discussion = discussion.replace(f"{{ablation: {switch}}}", text)
    for sweep, question in itertools.product(PLACES, ELSEWHERE):
        name = f"{{{sweep}: {question.claim}}}"
        if name in discussion:
            found = compare.against(known.of(sweep), question.first, question.second)
            text = UNKNOWN if found is None else compare.difference_text(found)
            discussion = discussion.replace(name, text)
    return discussion


def _effects(known: Study) -> dict[str, str]:
    """Return the effect of each switch in words, or none if they cannot be told apart yet."""
    try:
        rows = effects(known.of("ablation")).to_dict("records")
    except UserError:
        return {}
    return {
        str(row["switch"]): f"{row['effect']:+.1f} ({row['low']:+.1f} to {row['high']:+.1f})"
        for row in rows
    }


def places(known: Study) -> Iterator[str]:
    """Yield the tables and figures of each data set and network."""
    for sweep, place in PLACES.items():
        done = known.of(sweep)
        yield f"## {place}"
        if done.empty:
            yield "No trial has finished."
            continue
        yield table(compare.accuracies(done))
        yield table(compare.behaviour(done, known.rounds_of(done)))
        if sweep in DRAWN_SWEEPS:
            yield from (f"![{about}](evidence-{sweep}-{name}.svg)" for name, about in ABOUT.items())
            yield from ranks_text(known, sweep)


def ranks_text(known: Study, sweep: str) -> Iterator[str]:
    """Yield the critical-difference diagram, and the ranks in words with what they cannot tell."""
    try:
        found = compare.ranks(known.of(sweep))
    except UserError as problem:
        yield f"No ranks yet: {problem}."
        return
    yield f"![critical-difference diagram](evidence-{sweep}-ranks.svg)"
    order = ", ".join(f"{name} {rank:.1f}" for name, rank in found.average_ranks.items())
    told = [
        f"**Ranks** of {found.num_methods} methods over {found.num_blocks} draws: {order}.",
        f"Friedman's test: p {compare.p_text(found.p_value)}; critical distance"
        f" {found.critical_distance:.2f}.",
        *found.caveats,
        "Seeds of one partition are not independent, as the test assumes.",
        _by_partition(known, sweep),
    ]
    yield " ".join(told)


def _by_partition(known: Study, sweep: str) -> str:
    """Return the critical distance with seeds averaged first."""
    try:
        found = compare.ranks(known.of(sweep), ["scenario"])
    except UserError:
        return ""
    return (
        f"With seeds averaged there are {found.num_blocks} blocks, and the critical distance is"
        f" {found.critical_distance:.2f}."
    )


def ablation(known: Study) -> Iterator[str]:
    """Yield the main effects."""
    yield "## Which switch matters"
    try:
        found = effects(known.of("ablation"))
    except UserError as problem:
        yield f"Not yet: {problem}."
        return
    done = known.counts()["ablation"]
    yield TEXTS["effects"] + (
        "" if done == SWEEPS["ablation"].trials else f" So far {done} trials."
    )
    rows = [
        {
            "switch": row["switch"],
            "from": SWITCHES[row["switch"]][0],
            "to": SWITCHES[row["switch"]][1],
            "effect (points)": f"{row['effect']:+.2f} ({row['low']:+.2f} to {row['high']:+.2f})",
        }
        for row in found.to_dict("records")
    ]
    yield table(pd.DataFrame(rows))
    yield "![main effects](evidence-effects.svg)"


def lengths(known: Study) -> Iterator[str]:
    """Yield how far ahead each variant looked on one draw."""
    yield "## How far ahead"
    done = known.of("depth", "lengths")
    done = done[(done["scenario"] == 1) & (done["seed"] == 0)]
    if done.empty:
        yield "No trial has finished."
        return
    yield TEXTS["lengths"]
    yield table(compare.lengths(done, known.rounds_of(done)))


def rates(known: Study) -> Iterator[str]:
    """Yield the search for learning rates, FedAdam's, and the similarity of NUCFL."""
    yield "## Learning rates and other choices"
    tuning = known.of("tuning")
    if len(tuning):
        used = known.of("depth", "cnn", "cifar100", "ablation", "lengths")
        yield TEXTS["rates"]
        yield table(compare.rates(tuning, used, MARGIN))
    fedadam = known.of("fedadam")
    if len(fedadam):
        means = fedadam.groupby("variant")["score"].mean()
        listed = ", ".join(f"{name} {value:.1f}" for name, value in means.items())
        yield f"FedAdam's server rate on two other draws of the digits, last ten tests: {listed}."
    yield from _similarity(known)


def _similarity(known: Study) -> Iterator[str]:
    nucfl = known.of("breadth")
    values = compare.metric(known.rounds_of(nucfl[nucfl["method"] == "nucfl"]), "similarity")
    if len(values):
        yield (
            f"NUCFL's mean similarity on the digits is {values.mean():.3f} (trials from"
            f" {values.min():.3f} to {values.max():.3f})."
        )


def orderings(known: Study) -> str:
    """Return all pairs of methods in the paper's order, with the difference here."""
    found = compare.orderings(known.of("depth"))
    if found.empty:
        return "Not compared yet: too few draws are finished."
    number, methods = compare.correlation(known.of("depth"))
    return (
        f"{TEXTS['orderings']} Spearman's correlation of the printed means with our best tests is"
        f" {number:+.2f} ({methods} methods).\n\n{table(found)}"
    )


def paper(known: Study) -> Iterator[str]:
    """Yield the printed numbers beside ours."""
    yield "## The paper's numbers"
    yield TEXTS["differs"]
    for sweep, name in (("depth", "CIFAR10_10_5_1"), ("cifar100", "CIFAR100_10_5_1")):
        done = known.of(sweep)
        if len(done):
            yield f"{PLACES[sweep]}, best test, beside table {name}:"
            yield table(compare.beside(done, name))
    digits = known.of("breadth")
    if len(digits):
        number, methods = compare.correlation(digits)
        yield (
            "Spearman's correlation of the paper's CIFAR-10 means with our best tests on the digits"
            f" is {number:+.2f} ({methods} methods)."
        )


def page(known: Study, discussion: str) -> str:
    """Return the page as Markdown; the first paragraph of the discussion ends that of the page."""
    brief, _, details = _filled(discussion, known).strip().partition("\n\n")
    parts = [
        "# Does FedGPS win? The evidence",
        f"{verdict.first_paragraph(known)} {brief}".strip(),
        TEXTS["intro"],
        details,
        "## What was run",
        what_was_run(known),
        "## The three questions",
        questions(known),
        "Other differences, which decide nothing:",
        elsewhere(known),
        *over_time(known),
        "## The paper's orderings",
        orderings(known),
        TEXTS["accuracy"],
        TEXTS["behaviour"],
        *places(known),
        *ablation(known),
        *lengths(known),
        *rates(known),
        *measured.section(known, table),
        *paper(known),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


# --- files ----------------------------------------------------------------------------------------


def drawings(known: Study) -> Iterator[tuple[str, Chart | Figure]]:
    """Yield the name of each figure that can be drawn."""
    for sweep in DRAWN_SWEEPS:
        done = known.of(sweep)
        rounds = known.rounds_of(done)
        if done.empty:
            continue
        chosen = rounds[rounds["label"].isin(DRAWN)]
        chosen = rounds if chosen.empty else chosen
        yield f"{sweep}-curves", draw.curves(chosen)
        yield f"{sweep}-bytes", draw.bytes_spent(chosen)
        yield f"{sweep}-drift", draw.drift(chosen)
        yield f"{sweep}-clients", figures.client_accuracy(rounds)
        with suppress(UserError):  # the page says what is missing
            yield f"{sweep}-ranks", figures.critical_difference({"": compare.ranks(done)})
    with suppress(UserError):
        yield "effects", draw.effects(effects(known.of("ablation")))


def write(results: Path, target: Path, discussion: Path = DISCUSSION) -> None:
    """Write the page and its figures."""
    known = study.read(results)
    text = page(known, discussion.read_text())
    for old in target.parent.glob(f"{target.stem}-*.svg"):
        old.unlink()
    for name, drawing in drawings(known):
        draw.save(drawing, target.with_name(f"{target.stem}-{name}.svg"))
    target.write_text(text)


def main() -> None:
    """Write the page from the published results."""
    parser = argparse.ArgumentParser(description="Write docs/evidence.md from the results.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=PAGE)
    asked = parser.parse_args()
    try:
        write(asked.results, asked.out)
    except UserError as problem:
        parser.exit(2, f"error: {problem}\n")


if __name__ == "__main__":
    main()
