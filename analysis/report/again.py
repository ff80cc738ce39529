"""How to get the same numbers again."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from fedgps_ray.analysis.report.blocks import Block, Code, Section, Text
from fedgps_ray.analysis.report.facts import several
from fedgps_ray.analysis.report.frames import Frames
from fedgps_ray.analysis.text import clean, is_trial_id
from fedgps_ray.results.read import read_experiment, read_trial

OPTIONS = (
    *("model", "clients", "sampling_rate", "rounds", "local_epochs", "batch_size"),
    *("scenario", "seed"),
)
MOST_SHOWN = 200  # trials of the script that the page itself holds
WARNING = (
    "# Made from the settings in a results folder. If that is not your own, read the commands",
    "# before you run them: settings can name files to read and code to import.",
)


def commands(runs: pd.DataFrame) -> str:
    """Return a script with the exact command of every trial."""
    lines = ["#!/bin/sh", *WARNING, "set -e"]
    for row in runs.itertuples():
        info = read_trial(Path(str(row.folder)))
        lines += _trial(str(row.trial_id), command(info["spec"], info["execution"]))
    return "\n".join(lines) + "\n"


def _trial(name: str, line: str) -> list[str]:
    """Return a trial's lines of the script; what has an odd id or hidden characters is left out."""
    if not is_trial_id(name):
        return ["# left out: a trial whose id is not one"]
    if clean(line) != line or "\n" in line:
        return [f"# trial {name} is left out: its settings hold control characters"]
    return [f"# trial {name}", line]


def command(spec: Mapping[str, Any], execution: Mapping[str, Any]) -> str:
    """Return the command that runs this very trial: what has an option as option, all else set."""
    words = ["fedgps-ray", "run", "--out", "runs/again"]
    for name in OPTIONS:
        words.append(f"--{name.replace('_', '-')}={spec[name]}")
    rest = {key: value for key, value in spec.items() if key not in OPTIONS}
    for name, value in rest.items():
        words += ["--set", f"{name}={_value(value, execution)}"]
    return shlex.join(words)


def _value(value: Any, execution: Mapping[str, Any]) -> str:
    """Return a setting as JSON; a file that is known by its content as its path."""
    if isinstance(value, dict) and "sha256" in value:
        path: str = execution.get("files", {}).get(value["sha256"], value["file"])
        return path
    return json.dumps(value, separators=(",", ":"))


def again_section(frames: Frames) -> tuple[Section, str]:
    """Return how to get these numbers again, and the script that does."""
    script = commands(frames.runs)
    blocks: list[Block] = [
        Text(
            "Equal settings give equal numbers, bit for bit, on one type of machine. The script"
            " commands.sh beside this report runs every trial again, one after the other."
        ),
        *[Code("as a sweep", text) for text in _sweeps(frames)],
        _shown(frames, script),
    ]
    return Section("How to run it again", "again", blocks), script


def _shown(frames: Frames, script: str) -> Code:
    """Return the script, or the start of it where it would be longer than all else on the page."""
    told = several(len(frames.runs), "trial")
    if len(frames.runs) <= MOST_SHOWN:
        return Code(f"commands.sh ({told})", script)
    start = commands(frames.runs.head(MOST_SHOWN))
    return Code(f"commands.sh ({told}; here the first {MOST_SHOWN})", start)


def _sweeps(frames: Frames) -> list[str]:
    """Return the command of each sweep whose experiment file is known."""
    if frames.planned.empty:
        return []
    folders = [Path(folder) for folder in frames.planned["folder"].unique()]
    told = [(folder, read_experiment(folder)) for folder in folders]
    lines = [
        shlex.join(["fedgps-ray", "sweep", str(info["file"]), "--out", str(folder)])
        for folder, info in told
        if info.get("file") and not str(info["file"]).startswith("-")
    ]
    return [line for line in lines if clean(line) == line and "\n" not in line]
