"""A trial whose results are kept at a URI, wherever it runs."""

from collections.abc import Generator

from fedgps_ray.events import Event
from fedgps_ray.results import files
from fedgps_ray.results.mirror import Mirror, mirrored
from fedgps_ray.spec import ExecutionSpec


def kept_at(
    execution: ExecutionSpec,
    name: str,
    events: Generator[Event],
    anew: bool = False,
    patience: float = files.MOMENT,
) -> Generator[Event]:
    """Keep a trial's results in the execution's storage, if it has one.

    anew: what is there is not wanted. patience: seconds to wait for another process to let go.
    """
    if execution.storage is None:
        return events
    mirror = Mirror(execution.storage)
    if anew:
        mirror.replaced.add(name)
    return _kept(mirror, execution, name, events, patience)


def _kept(
    mirror: Mirror,
    execution: ExecutionSpec,
    name: str,
    events: Generator[Event],
    patience: float,
) -> Generator[Event]:
    mirror.fetch(execution.out, name, patience)
    yield from mirrored(mirror, execution.out, name, events, execution.checkpoint_seconds)
