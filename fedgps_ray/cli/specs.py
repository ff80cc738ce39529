"""Options to specs."""

from collections.abc import Sequence

from fedgps_ray.api.settings import Trial, suited_trial
from fedgps_ray.experiment.tables import parse_setting, put
from fedgps_ray.identity import Table


def trial(values: Table, settings: Sequence[str]) -> Trial:
    """Return the spec of settings; those that are None or missing suit the data set."""
    for setting in settings:
        put(values, *parse_setting(setting))
    return suited_trial(values)
