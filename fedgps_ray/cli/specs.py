"""Options to specs."""

from collections.abc import Sequence
from typing import Any

from fedgps_ray.experiment import resolve
from fedgps_ray.experiment.tables import parse_setting, put
from fedgps_ray.spec import TrialSpec


def trial(values: dict[str, Any], settings: Sequence[str]) -> tuple[TrialSpec, dict[str, str]]:
    """Return the spec, and where the .npz files are that it names by content."""
    for setting in settings:
        put(values, *parse_setting(setting))
    return resolve(values)
