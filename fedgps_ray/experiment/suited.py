"""Values that suit a data set, for settings that the user leaves open."""

from collections.abc import Mapping

from fedgps_ray.identity import Settings, Table

NOISE_IMAGES = 128  # per step, where the real batch is not smaller
SUITED: Mapping[str, Mapping[str, int]] = {
    # 1,437 images over ten clients: larger batches leave too few steps in a round
    "digits": {"batch_size": 8, "rounds": 60},
}
USUAL: Mapping[str, int] = {"batch_size": 64, "rounds": 50}


def suited(values: Settings) -> Table:
    """Return rounds and batch size where a table of settings leaves them open."""
    dataset = values.get("dataset", "digits")
    name = dataset.get("name") if isinstance(dataset, Mapping) else dataset
    known = {**USUAL, **SUITED.get(str(name), {})}
    return {key: value for key, value in known.items() if values.get(key) is None}


def is_usual(key: str, value: object) -> bool:
    """Say whether a value is what data sets get that have no value of their own."""
    return USUAL.get(key) == value


def suited_noise(values: Settings, batch_size: int) -> Table:
    """Return not more than two noise images for each real one: they share batch statistics."""
    surrogate = values.get("surrogate") or {}
    is_open = isinstance(surrogate, Mapping) and "batch_size" not in surrogate
    if not is_open or 2 * batch_size >= NOISE_IMAGES:
        return {}
    return {"surrogate": {**surrogate, "batch_size": 2 * batch_size}}
