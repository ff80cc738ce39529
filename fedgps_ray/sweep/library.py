"""The data sets of a sweep: read once, shared by the actors of all trials on a node."""

import json
import uuid
from collections.abc import Iterable
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fedgps_ray.cluster.policy import POLICY
from fedgps_ray.cluster.session import Actor, Reference
from fedgps_ray.data import datasets
from fedgps_ray.identity import Table
from fedgps_ray.references import Found, give


class Library:
    """An actor that reads a data set when it is first asked for, and keeps it in the object store.

    Ray brings a copy to each node that needs one; the files are needed on the sweep's own node.
    """

    def __init__(
        self, source: datasets.Source, code: Iterable[Found], storage: str | None = None
    ) -> None:
        self.source, self.kept_at = source, storage
        for origin in code:
            give(origin)
        self.stored: dict[str, Reference] = {}

    def find(self, dataset: Table) -> list[Reference]:
        """Return where a data set is, in a list: a bare reference would be opened by Ray."""
        key = json.dumps(dataset, sort_keys=True)
        if key not in self.stored:
            data = datasets.load(datasets.parse(dataset), self.source)
            self.stored[key] = ray.put(data)
        return [self.stored[key]]

    @ray.method(concurrency_group="control")
    def ping(self) -> None:
        """Answer, also while reading: a process that does not is hung."""

    @ray.method(concurrency_group="control")
    def storage(self) -> str | None:
        """Return the URI where results are kept: it may have passwords, and Tune writes its own."""
        return self.kept_at


def start(
    source: datasets.Source, code: Iterable[Found] = (), storage: str | None = None
) -> tuple[str, Actor]:
    """Start a library on this node and return its name too; after a loss it reads again."""
    name = f"library-{uuid.uuid4().hex}"
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    lasting: Any = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": POLICY.max_deaths}
    made: Any = ray.remote(**lasting, concurrency_groups={"control": 1})(Library)  # type: ignore[call-overload]
    placed = made.options(name=name, scheduling_strategy=here)
    return name, placed.remote(source, tuple(code), storage)
