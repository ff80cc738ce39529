"""The numbers printed in the FedGPS paper, in the frames that tables and statistics take.

All values are as printed. What contradicts the paper's other numbers is not corrected but told:
in the column `slip` of `runs` and `means`, and in the notes of `tables`.
"""

import json
from functools import cache
from importlib.resources import files
from typing import Any

import pandas as pd

from fedgps_ray.analysis import metrics
from fedgps_ray.analysis import tables as made
from fedgps_ray.analysis.names import published_name
from fedgps_ray.analysis.tables import Table
from fedgps_ray.errors import unknown

FOLDER = files("fedgps_ray.analysis") / "published"
PREFIX = "tab:"
SMALL = {  # tables whose columns are settings: the columns
    "more_baselines": ["dataset", "clients", "local_epochs"],
    "500_client": ["clients"],
    "100_vit_model": ["model"],
    "different_lambda": ["sampling_rate"],
    "c2_c3": ["classes_per_client"],
    "fedgps_with_fedgps_cf": ["clients", "local_epochs"],
}
RENAMED = {
    "train_seed": "seed",
    "rounds_to_target": "cost",
    "target_accuracy": "printed_target",
    "speedup": "printed_speedup",
}
OF_A_RUN = ("speedup", "round_but_below", "reached_but_none", "target_vs_fedavg", "two_values")
OF_A_MEAN = ("mean_std", "mean_partial", "mean_missing")
KNOWN_HYPERPARAMETERS = {  # method -> the paper's name -> ours
    "fedavgm": {"momentum_coefficient": "method.server_momentum"},
    "fedprox": {"proximal_coefficient": "method.mu"},
    "scaffold": {"global_step_size": "method.server_lr"},
    "vhl": {"vhl_alpha": "method.alpha"},
    "fedasam": {"rho": "method.rho", "eta": "method.eta"},
    "fedexp": {
        "eps": "method.eps",
        "eta_g": "method.min_step",
        "lr_weight_decay": "optimizer.lr_decay",
    },
    "feddecorr": {"feddecorr_term_coefficient": "method.coefficient"},
    "feddisco": {"feddisco_a": "method.a", "feddisco_b": "method.b"},
    "fedinit": {"beta": "method.beta"},
    "fedlesam": {
        "rho": "method.rho",
        "beta": "method.correction",
        "max_norm": "optimizer.max_norm",
        "global_step_size": "method.server_lr",
    },
    "fedgps": {"lambda_g": "method.rho", "eta_g": "method.server_lr"},
}


@cache
def _read(name: str) -> pd.DataFrame:
    with (
        files("fedgps_ray.analysis")
        .joinpath("published", f"{name}.csv")
        .open(encoding="utf-8") as file
    ):
        return pd.read_csv(file)


def nemenyi() -> dict[str, Any]:
    """Return the ranks and tests worked out from the printed accuracies, by data set."""
    text = (
        files("fedgps_ray.analysis")
        .joinpath("published", "nemenyi.json")
        .read_text(encoding="utf-8")
    )
    ranks: dict[str, Any] = json.loads(text)
    return ranks


def names() -> list[str]:
    """Return the names of the tables."""
    return [name.removeprefix(PREFIX) for name in _read("settings")["table"]]


def captions() -> dict[str, str]:
    """Return what each table shows."""
    return dict(zip(names(), _read("settings")["caption"], strict=True))


def not_printed() -> dict[str, str]:
    """Return what a table leaves out and where the value used here is from."""
    told = dict(zip(names(), _read("settings")["not_printed"], strict=True))
    return {name: text for name, text in told.items() if isinstance(text, str)}


def slips() -> pd.DataFrame:
    """Return where the paper contradicts itself: kind, table, scenario, method, printed, remark."""
    return _read("inconsistencies").copy()


def centralized() -> pd.DataFrame:
    """Return the printed accuracies of training on all data in one place."""
    return _named(_read("centralized"))


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(table=frame["table"].str.removeprefix(PREFIX))


def runs(*tables: str) -> pd.DataFrame:
    """Return the printed cells of these tables, or of all, as a frame of runs (see metrics).

    `target` and `speedup` are worked out from the printed accuracies and rounds; as printed they
    are `printed_target` and `printed_speedup`.
    """
    for name in set(tables).difference(names()):
        raise unknown("table", name, names())
    return pd.concat([_runs(name) for name in names() if name in (tables or names())])


@cache
def _runs(table: str) -> pd.DataFrame:
    """Return one table's cells as runs."""
    printed = _named(_read("results"))
    frame = printed[printed["table"] == table].rename(columns=RENAMED)
    frame["scenario"] = frame["scenario"].fillna(1).astype(int)  # one table names none
    frame["trial_id"] = [f"{row.table}/{row.Index}" for row in frame.itertuples()]
    frame["status"] = frame["status"].map({"ok": "finished", "failed": "failed"})
    frame = frame.assign(batch_size=float("nan"), cost_of="rounds", spent=frame["rounds"])
    frame["variant"], frame["label"] = "{}", frame["method"].map(published_name)
    frame["setting"] = metrics.setting_texts(frame)
    frame["target"] = metrics.targets(frame).where(frame["status_round"].notna())
    frame["speedup"] = metrics.speedups(frame)
    frame["slip"] = _slips_of(frame, OF_A_RUN)
    frame["slip"] = frame["slip"].where(frame["seed"] == 0, "")  # of other seeds none is known
    return frame


@cache
def _told(kinds: tuple[str, ...]) -> dict[tuple[str, str, int], str]:
    """Return what is wrong, by table, method and scenario (0: none named)."""
    told: dict[tuple[str, str, int], str] = {}
    for _, row in slips().iterrows():
        if row["kind"] in kinds:
            for key in _places(row):
                told[key] = "; ".join(filter(None, [told.get(key), _sentence(row)]))
    return told


def _places(row: "pd.Series[Any]") -> list[tuple[str, str, int]]:
    scenario = 0 if pd.isna(row["scenario"]) else int(row["scenario"])
    tables = [text.removeprefix(PREFIX) for text in row["table"].split(" / ")]
    return [(table, str(row["method"]), scenario) for table in tables]


def _slips_of(frame: pd.DataFrame, kinds: tuple[str, ...]) -> list[str]:
    scenarios = frame["scenario"].fillna(0).astype(int)
    keys = zip(frame["table"], frame["method"], scenarios, strict=True)
    return [_told(kinds).get(key, "") for key in keys]


def _sentence(row: "pd.Series[Any]") -> str:
    kind = str(row["kind"]).replace("_", " ")
    parts = [f"printed {row['printed']}", row["recomputed"], row["remark"]]
    return f"{kind}: {', '.join(part for part in parts if isinstance(part, str))}"


def means() -> pd.DataFrame:
    """Return every printed mean ± std: kind is over_scenarios, over_seeds or total."""
    frame = _named(_read("summary"))
    frame["slip"] = _slips_of(frame, OF_A_MEAN)
    return frame


def hyperparameters() -> dict[str, dict[str, Any]]:
    """Return the printed hyperparameters of each method, under the names of our settings."""
    return {row["method"]: _hyperparameters(row) for _, row in _read("hyperparameters").iterrows()}


def _hyperparameters(row: "pd.Series[Any]") -> dict[str, Any]:
    printed, known = json.loads(row["other_json"]), KNOWN_HYPERPARAMETERS.get(row["method"], {})
    nesterov = "method.nesterov" if row["method"] == "fedavgm" else "optimizer.nesterov"
    return {
        "optimizer.lr": row["learning_rate"],
        "optimizer.momentum": 0.0 if pd.isna(row["momentum"]) else row["momentum"],
        "optimizer.weight_decay": row["weight_decay"],
        nesterov: bool(row["nesterov"]),
        **{ours: float(printed[theirs]) for theirs, ours in known.items()},
    }


# --- the paper's tables ---------------------------------------------------------------------------


def tables() -> dict[str, Table]:
    """Return the paper's results tables, made from its numbers by the code that makes ours."""
    return {name: _table(name) for name in names()}


@cache
def _table(name: str) -> Table:
    frame = runs(name)
    if name in SMALL:
        shown = made.by_setting(frame, SMALL[name])
    elif frame["seed"].nunique() > 1:
        shown = made.by_seed(frame)
    else:
        shown = made.by_scenario(frame)
    title = f"{captions()[name]} ({shown.title})"
    return made.Table(title, shown.header, shown.rows, (*shown.notes, *_notes(name)))


def _notes(name: str) -> list[str]:
    """Return what the paper leaves out, and where it contradicts itself."""
    all_slips = _read("inconsistencies")
    here = all_slips[
        [name in [place[0] for place in _places(row)] for _, row in all_slips.iterrows()]
    ]
    here = here[here["kind"] != "fedgps_not_best"]  # a fact, not a slip
    left_out = not_printed().get(name)
    notes = [f"Not printed: {left_out}."] if left_out else []
    return notes + [f"Slip: {_where(row)}{_sentence(row)}." for _, row in here.iterrows()]


def _where(row: "pd.Series[Any]") -> str:
    scenario = "" if pd.isna(row["scenario"]) else f", scenario {row['scenario']:g}"
    return f"{published_name(row['method'])}{scenario}, " if isinstance(row["method"], str) else ""
