"""Whether a trial takes less time than Ray needs to start."""

from fedgps_ray.data import datasets
from fedgps_ray.spec import TrialSpec
from fedgps_ray.tools.cost.estimate import estimate, size_of
from fedgps_ray.tools.cost.timing import measure_seconds_per_image

RAY_SECONDS = 6.0  # until the first round of a trial on two actors, beyond that of one process
FASTEST = 1e-5  # seconds an image takes at least, with the smallest model
OVERHEAD = 1e-3  # seconds a client takes in a round beside its images


def brief_seconds(spec: TrialSpec, source: datasets.Source) -> float | None:
    """Return the seconds that a trial takes on one core, if Ray would start no sooner."""
    overhead = OVERHEAD * spec.rounds * spec.per_round
    if overhead + estimate(spec, FASTEST, source).seconds > RAY_SECONDS:
        return None  # also without timing the model
    shape = size_of(spec.dataset, source).shape
    an_image = measure_seconds_per_image(spec.model, shape, min(spec.batch_size, 8)).seconds
    seconds = overhead + estimate(spec, an_image, source).seconds
    return seconds if seconds < RAY_SECONDS else None
