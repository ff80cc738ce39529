"""How to get the same numbers again."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from fedgps_ray.analysis.report.blocks import Block, Code, Section, Text
from fedgps_ray.analysis.report.facts import several
from fedgps_ray.analysis.report.frames import Frames
from fedgps_ray.analysis.text import clean, is_trial_id
from fedgps_ray.results.read import Row

OPTIONS = (
    *("model", "clients", "sampling_rate", "rounds", "local_epochs", "batch_size"),
    *("scenario", "seed"),
)
MOST_SHOWN = 200  # trials of the script that the page itself holds
WARNING = (
    "# Made from the settings in a results folder. If that is not your own, read the commands",
    "# before you run them: settings can name files to read and code to import.",
)


def commands(runs: pd.DataFrame, infos: Mapping[str, Row]) -> list[str]:
    """Return the lines with the exact command of every trial, those of a trial together."""
    told = zip(runs["trial_id"].astype(str), runs["folder"], strict=True)
    return [
        _trial(name, command(infos[folder]["spec"], infos[folder]["execution"]))
        for name, folder in told
    ]


def script_of(trials: Sequence[str]) -> str:
    """Return a script that runs some trials one after the other."""
    return "\n".join(["#!/bin/sh", *WARNING, "set -e", *trials]) + "\n"


def _trial(name: str, line: str) -> str:
    """Return a trial's lines of the script; what has an odd id or hidden characters is left out."""
    if not is_trial_id(name):
        return "# left out: a trial whose id is not one"
    if clean(line) != line or "\n" in line:
        return f"# trial {name} is left out: its settings hold control characters"
    return f"# trial {name}\n{line}"


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
        paths = execution.get("files")
        known = paths if isinstance(paths, dict) else {}
        return str(known.get(value["sha256"], value.get("file")))
    return json.dumps(value, separators=(",", ":"))


def again_section(frames: Frames) -> tuple[Section, str]:
    """Return how to get these numbers again, and the script that does."""
    trials = commands(frames.runs, frames.infos)
    blocks: list[Block] = [
        Text(
            "Equal settings give equal numbers, bit for bit, on one type of machine. The script"
            " commands.sh beside this report runs every trial again, one after the other."
        ),
        *[Code("as a sweep", text) for text in _sweeps(frames)],
        _shown(trials),
    ]
    return Section("How to run it again", "again", blocks), script_of(trials)


def _shown(trials: Sequence[str]) -> Code:
    """Return the script, or the start of it where it would be longer than all else on the page."""
    told = several(len(trials), "trial")
    if len(trials) > MOST_SHOWN:
        told += f"; here the first {MOST_SHOWN}"
    return Code(f"commands.sh ({told})", script_of(trials[:MOST_SHOWN]))


def _sweeps(frames: Frames) -> list[str]:
    """Return the command of each sweep whose experiment file is known."""
    if frames.planned.empty:
        return []
    told = frames.planned.drop_duplicates("folder").dropna(subset=["file"])
    lines = [
        shlex.join(["fedgps-ray", "sweep", str(file), "--out", folder])
        for folder, file in zip(told["folder"], told["file"], strict=True)
        if file and not str(file).startswith("-")
    ]
    return [line for line in lines if clean(line) == line and "\n" not in line]
