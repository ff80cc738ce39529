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
from fedgps_ray.identity import SELECTORS
from fedgps_ray.results.read import Row

OPTIONS = (
    *("model", "clients", "sampling_rate", "rounds", "local_epochs", "batch_size"),
    *("scenario", "seed"),
)
OF_FILE = ("name", "kind", "file", "sha256")  # of data and surrogates that are a user's file
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
    plain = [name for name in OPTIONS if not isinstance(spec[name], dict)]  # as an own model is
    words += [f"--{name.replace('_', '-')}={spec[name]}" for name in plain]
    rest = {key: value for key, value in spec.items() if key not in plain}
    for name, value in rest.items():
        words += ["--set", f"{name}={_value(name, value, execution)}"]
    if spec.get("device") == "cuda":
        words.append(_share(execution))
    return shlex.join(words)


def _share(execution: Mapping[str, Any]) -> str:
    """Return the option with which a trial gets a GPU: a share for its actors, or no actors."""
    share = execution.get("client_gpus")
    has_share = isinstance(share, int | float) and share > 0
    return f"--client-gpus={share}" if has_share else "--actors=0"


def _value(name: str, value: Any, execution: Mapping[str, Any]) -> str:
    """Return a setting as JSON; a file or code that is known by its content by its path."""
    told = execution.get("files")
    paths = told if isinstance(told, dict) else {}
    if isinstance(value, dict) and "sha256" in value:
        path = str(paths.get(str(value["sha256"]), value.get("file")))
        own = {key: item for key, item in value.items() if key not in OF_FILE}
        return _json({SELECTORS.get(name, "name"): path, **own}) if own else path
    if isinstance(value, dict) and isinstance(value.get("code"), dict):
        value = _with_path(value, paths)
    return _json(value)


def _with_path(value: Mapping[str, Any], paths: Mapping[str, Any]) -> dict[str, Any]:
    """Return what names code with the path of its file, which is read anew."""
    code = value["code"]
    own = {key: item for key, item in value.items() if key != "code"}
    if (path := paths.get(str(code.get("sha256")))) is None:
        return own
    return {**own, "name": f"{path}:{str(code.get('target')).rpartition(':')[2]}"}


def _json(value: object) -> str:
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
