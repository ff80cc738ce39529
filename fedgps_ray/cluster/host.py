"""Actors whose owners need not import PyTorch, although the actors do."""

from typing import Any

import ray

from fedgps_ray.cluster.session import Actor
from fedgps_ray.loading import load, use_large_pages


class Host:
    """Runs an actor in a process of its own and passes calls on to it by name.

    The owner of an actor has to have its class, and those of client.py and server.py import
    PyTorch: the owner has this class instead, and only the actor's own process has the other.
    """

    def __init__(self, actor: str) -> None:
        use_large_pages()
        self.actor = load(actor)()

    def call(self, method: str, *arguments: object) -> Any:
        """Call a method, one at a time."""
        return getattr(self.actor, method)(*arguments)

    @ray.method(concurrency_group="control")
    def control(self, method: str) -> Any:
        """Call a method that answers at once, also while another call is under way."""
        return getattr(self.actor, method)()


def start_actor(host: type[Host], actor: str, **options: object) -> Actor:
    """Start an actor, "module:Class", in a host; Ray knows it by the name of its own class."""
    named = type(actor.rpartition(":")[2], (host,), {})
    remote = ray.remote(concurrency_groups={"control": 1})(named)  # type: ignore[call-overload]
    handle: Actor = remote.options(**options).remote(actor)
    return handle
