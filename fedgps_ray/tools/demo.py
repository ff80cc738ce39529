"""What the demo adds to its report: why FedGPS need not win on digits, and the published order.

python -m fedgps_ray.tools.demo runs/demo
"""

import sys
from pathlib import Path

import pandas as pd

from fedgps_ray.analysis import load, published
from fedgps_ray.errors import UserError
from fedgps_ray.titles import TITLES

PUBLISHED = "CIFAR10_10_5_1"  # the same clients, sampling and skew, on larger images
OURS = "fedgps"


def scores(folder: Path) -> pd.DataFrame:
    """Return the best accuracy in percent, a line for each scenario and a column for each method.

    Scenarios that one of the methods has not finished are left out.
    """
    trials = load.trials(folder)
    done = trials[trials["status"] == "finished"]
    table = done.pivot_table(
        index="scenario", columns="method", values="best_accuracy", observed=True
    )
    if table.dropna().empty:
        raise UserError(f"no scenario in {folder} was finished by all methods")
    return 100 * table.dropna()


def why(table: pd.DataFrame) -> str:
    """Return why FedGPS need not win here; nothing where it does."""
    if table.mean().idxmax() == OURS:
        return ""
    return (
        "FedGPS does not win here: on 8x8 images after 40 rounds plain averaging already comes"
        " close to what can be reached; the published numbers are of larger images and 500 rounds."
    )


def orders(table: pd.DataFrame) -> list[str]:
    """Return the order here and the published one, side by side."""
    printed = published.runs(PUBLISHED)
    means = printed.groupby("method", observed=True)["accuracy"].mean()
    here, there = table.mean(), means[list(table.columns)]
    lines = [f"{'here (digits)':<28}published (CIFAR-10, ResNet-18, 500 rounds)"]
    for left, right in zip(_ranked(here), _ranked(there), strict=True):
        lines.append(f"{left:<28}{right}")
    return lines


def _ranked(means: "pd.Series[float]") -> list[str]:
    ordered = means.sort_values(ascending=False)
    return [f"{n}. {TITLES[str(m)]:<10}{v:6.2f} %" for n, (m, v) in enumerate(ordered.items(), 1)]


def main() -> None:
    """Print what a folder of the demo says."""
    table = scores(Path(sys.argv[1]))
    lines = [why(table), *orders(table)]
    sys.stdout.write("\n".join(filter(None, lines)) + "\n")


if __name__ == "__main__":
    main()
