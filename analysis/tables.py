"""Frames to tables."""

from pathlib import Path

import pandas as pd

HEADER = ["method", "status", "best", "last", "mean of last ten", "MB up", "MB down", "seconds"]


def comparison(trials: pd.DataFrame) -> list[list[str]]:
    """Return one line a trial, the most accurate first."""
    ordered = trials.sort_values("best_accuracy", ascending=False, na_position="last")
    return [_line(row) for _, row in ordered.iterrows()]


def _line(row: "pd.Series[float]") -> list[str]:
    scores = ("best_accuracy", "last_accuracy", "last_ten_accuracy")
    return [
        str(row["method"]),
        str(row["status"]),
        *(f"{100 * row[name]:.2f}" if pd.notna(row[name]) else "-" for name in scores),
        *(f"{row[name] / 1e6:.1f}" for name in ("bytes_up", "bytes_down")),
        f"{row['train_seconds']:.1f}",
    ]


def write_report(trials: pd.DataFrame, folder: Path) -> Path:
    """Write the comparison as Markdown."""
    lines = [HEADER, ["---"] * len(HEADER), *comparison(trials)]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    path = folder / "report.md"
    path.write_text(f"# Comparison\n\nAccuracies in percent of the test set.\n\n{text}\n")
    return path
