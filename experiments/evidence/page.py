"""Writes docs/evidence.md and its figures from the published results.

    python -m fedgps_ray.experiments.evidence.page

The same files always give the same page. Nothing is written while results are missing.
"""

import argparse
import json
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from fedgps_ray.analysis import load
from fedgps_ray.errors import UserError
from fedgps_ray.experiments.evidence.effects import Question, answers, levels, main_effects

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PAGE = HERE.parents[1] / "docs" / "evidence.md"
PART = ["dataset", "model"]
MAIN = ("cifar10_16", "convnet")
MATCHED = 'fedgps {"align_labels": "matched"}'
NO_PATH = 'fedgps {"align_labels": "matched", "rho": 0.0}'
QUESTIONS = (
    Question("aligned noise helps", NO_PATH, 'fedavg {"weighting": "uniform"}'),
    Question("the path helps", MATCHED, NO_PATH),
    Question("FedGPS beats VHL", "fedgps", "vhl"),
)
SWITCHES: dict[str, tuple[object, object]] = {
    "align_labels": ("distinct", "matched"),
    "w_align": (1.0, 0.1),
    "noise images per step": (32, 64),
    "look-ahead": ("rho 0.5", "rho_relative 0.0015"),
    "weighting": ("uniform", "samples"),
    "eval_logits": ("all", "real"),
    "bn_statistics": ("joint", "real"),
}
WITH_NOISE = ("vhl", "fedgps", "fedgps_cf")
LAST_SCENARIO = 5  # later ones are for pilots and tuning
GENERATORS = {"weighting": (0, 1, 2), "eval_logits": (1, 2, 3), "bn_statistics": (0, 2, 3)}


def scored(trials: pd.DataFrame) -> pd.DataFrame:
    """Return the study's finished trials, their variant in words and their score in points."""
    ended = trials["status"].isin(["finished", "diverged"])
    done = trials[ended & (trials["scenario"] <= LAST_SCENARIO)].copy()
    done["settings"] = done["variant"]
    done["variant"] = [_named(row) for row in done.to_dict("records")]
    done["score"] = 100 * done["last_ten_accuracy"].astype(float).fillna(0.0)
    done["best"] = 100 * done["best_accuracy"].astype(float).fillna(0.0)
    return done


def _named(row: Mapping[Hashable, Any]) -> str:
    """Return the method and all in which a trial departs from the study's setting."""
    settings, parts = json.loads(row["settings"]), [row["method"]]
    if row["method_options"] != "{}":
        parts.append(row["method_options"])
    noise = settings.get("surrogate.batch_size", row["batch_size"])
    if row["method"] in WITH_NOISE and noise != row["batch_size"]:
        parts.append(f"noise {noise}")
    if settings.get("eval_logits", "all") != "all":
        parts.append(f"eval_logits {settings['eval_logits']}")
    return " ".join(parts)


def switches(done: pd.DataFrame) -> pd.DataFrame:
    """Return the seven switches of the ablation for each trial of FedGPS on the main setting."""
    return pd.DataFrame([_switches(text) for text in done["settings"]], index=done.index)


def _switches(text: str) -> dict[str, object]:
    settings = json.loads(text)
    share = settings.get("method.rho_relative")
    ahead = f"rho {settings.get('method.rho')}" if share is None else f"rho_relative {share}"
    named = {name: settings.get(f"method.{name}") for name in SWITCHES}
    return {
        **named,
        "noise images per step": settings.get("surrogate.batch_size"),
        "look-ahead": ahead,
        "eval_logits": settings.get("eval_logits"),
    }


def designed(values: pd.DataFrame) -> pd.DataFrame:
    """Return the coded levels of the trials that belong to the fraction of the factorial."""
    known = pd.DataFrame({name: values[name].isin(pair) for name, pair in SWITCHES.items()})
    coded = levels(values[known.all(axis=1)], SWITCHES)
    kept = pd.Series(True, index=coded.index)
    for name, places in GENERATORS.items():
        kept &= coded[name] == coded.iloc[:, list(places)].prod(axis=1)
    return coded[kept]


def effects(done: pd.DataFrame) -> pd.DataFrame:
    """Return the main effects of the seven switches, with the partition as block."""
    here = done[(done["method"] == "fedgps") & (done["seed"] == 0) & done["scenario"].isin([1, 2])]
    coded = designed(switches(here))
    return main_effects(coded, here.loc[coded.index, "score"], here.loc[coded.index, "scenario"])


# --- text -----------------------------------------------------------------------------------------


def table(frame: pd.DataFrame) -> str:
    """Return a frame as Markdown, numbers with two digits."""
    cells = [[_cell(value) for value in row] for row in frame.itertuples(index=False)]
    lines = [[str(name) for name in frame.columns], ["---"] * len(frame.columns), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def comparison(done: pd.DataFrame) -> pd.DataFrame:
    """Return mean and spread of both measures for each variant, best first."""
    grouped = done.groupby("variant")
    found = pd.DataFrame(
        {
            "trials": grouped.size(),
            "last ten": grouped["score"].mean(),
            "std": grouped["score"].std(ddof=1),
            "best": grouped["best"].mean(),
        }
    )
    return found.sort_values("last ten", ascending=False).reset_index()


def sentence(found: pd.DataFrame) -> str:
    """Return the answers in one paragraph."""
    parts = [
        f"{row.claim}: **{row.answer}** ({row.mean:+.1f} points,"
        f" 95 % interval {row.low:+.1f} to {row.high:+.1f}, {row.draws} draws)"
        for row in found.itertuples()
    ]
    return "; ".join(parts) + "."


def page(trials: pd.DataFrame) -> str:
    """Return the page as Markdown."""
    done = scored(trials)
    main = done[(done["dataset"] == MAIN[0]) & (done["model"] == MAIN[1])]
    found = answers(main, QUESTIONS)
    parts = ["# Evidence", sentence(found), "## The three questions", table(found)]
    for (dataset, model), part in done.groupby(PART):
        parts += [f"## {dataset}, {model}", table(comparison(part))]
    parts += ["## Main effects", "![main effects](evidence-effects.svg)", table(effects(main))]
    return "\n\n".join(parts) + "\n"


def draw(found: pd.DataFrame, path: Path) -> None:
    """Draw each effect with its interval."""
    figure, axes = plt.subplots(figsize=(7, 3.5), layout="constrained")
    middle, places = found["effect"], range(len(found))
    axes.errorbar(
        middle, places, xerr=[middle - found["low"], found["high"] - middle], fmt="o", capsize=3
    )
    axes.axvline(0, color="0.6", linewidth=1)
    axes.set_yticks(list(places), list(found["switch"]))
    axes.set_xlabel("points of accuracy, second value minus first")
    with plt.rc_context({"svg.hashsalt": "evidence"}):
        figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def write(results: Path, target: Path) -> None:
    """Write the page and its figure, or say what is missing."""
    if not any(results.glob("trials/*/trial.json")):
        raise UserError(f"no results in {results}: run the sweeps of README.md, then collect.py")
    trials = load.trials(results)
    text = page(trials)
    done = scored(trials)
    main = done[(done["dataset"] == MAIN[0]) & (done["model"] == MAIN[1])]
    draw(effects(main), target.with_name("evidence-effects.svg"))
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
