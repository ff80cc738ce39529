"""Settings as Python code gives them, to specs."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from fedgps_ray.api.devices import device_settings
from fedgps_ray.experiment import resolve
from fedgps_ray.experiment.suited import suited, suited_noise
from fedgps_ray.experiment.tables import Table, merged, parse_setting, put
from fedgps_ray.identity import Settings
from fedgps_ray.methods import METHODS
from fedgps_ray.methods.base import is_method
from fedgps_ray.spec import ExecutionSpec, TrialSpec, execution_spec, method_name

PARTS = ("dataset", "method", "optimizer", "partition", "surrogate")
NAMES = {"method": "fedgps", "dataset": "digits"}  # what options belong to if no name is given
SHORT = {  # as the command line calls them
    "lr": "optimizer.lr",
    "alpha": "partition.alpha",
    "classes_per_client": "partition.classes_per_client",
    "preset": "method.preset",
}


def dotted(settings: Settings) -> Table:
    """Return settings by dotted names: optimizer_lr and lr both mean optimizer.lr."""
    return {_name(key): _plain(value) for key, value in settings.items()}


def _name(key: str) -> str:
    part, _, rest = key.partition("_")
    return f"{part}.{rest}" if part in PARTS and rest else SHORT.get(key, key)


def _plain(value: object) -> Any:
    """Write a built-in method as its name and options, also inside lists."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if is_method(value) and type(value) in METHODS.values():
        return {"name": method_name(value), **dataclasses.asdict(value)}
    return value


def split(given: Settings) -> tuple[Table, Table]:
    """Return the settings that can change a number, and those that say how and where to run."""
    own = ExecutionSpec.model_fields
    what = {key: value for key, value in given.items() if key not in (*own, "device")}
    return what | device_settings(given), {key: value for key, value in given.items() if key in own}


class Trial(NamedTuple):
    """A spec, where the files are that it names by content, and what was chosen for the user."""

    spec: TrialSpec
    files: dict[str, str]
    chosen: dict[str, Any]


def suited_trial(values: Table, settings: Sequence[str] = ()) -> Trial:
    """Return the spec of values; those that are None or missing suit the data set.

    settings: KEY=VALUE, which win over the values.
    """
    for setting in settings:
        put(values, *parse_setting(setting))
    chosen = suited(values)
    spec, files = resolve({**values, **chosen})
    if spec.method.needs_surrogate and (noise := suited_noise(values, spec.batch_size)):
        chosen |= noise
        spec, files = resolve({**values, **chosen})
    return Trial(spec, files, chosen)


def trial(settings: Settings) -> Trial:
    """Return the spec of settings as Python code gives them."""
    return suited_trial(merged(NAMES, dotted(settings)))


def execution(given: Settings) -> ExecutionSpec:
    """Return how to run: in this process, unless actors or a cluster are asked for."""
    in_process = {} if given.get("address") else {"actors": 0}
    log = given.get("log", ())
    logs = {"log": (log,) if isinstance(log, str) else tuple(log)}
    return execution_spec(**{**in_process, **given, **logs})
