"""Claims about every method that are checked on the user's machine, without Ray, in seconds."""

from collections.abc import Collection, Iterator

from fedgps_ray.methods import METHODS, Method
from fedgps_ray.tools.verify import (
    client_rules,
    costs,
    features,
    gps,
    identities,
    laws,
    server_rules,
)
from fedgps_ray.tools.verify.check import Check, Proof, prove
from fedgps_ray.tools.verify.trials import Trials

__all__ = ["Check", "Proof", "checks", "prove", "run_checks", "run_laws"]


def checks() -> list[Check]:
    """Return all checks, method by method; a trial that several checks share runs once."""
    trials = Trials()
    unsorted = [
        *server_rules.checks(),
        *client_rules.checks(),
        *features.checks(),
        *gps.checks(),
        *identities.checks(trials),
        *costs.checks(trials),
    ]
    order = list(METHODS)
    return sorted(unsorted, key=lambda check: order.index(check.method))


def run_laws(method: Method, on_ray: bool = False) -> Iterator[Proof]:
    """Check one method, such as one from outside the package, against the laws of all methods."""
    return (prove(check) for check in laws.checks(method, on_ray))


def run_checks(methods: Collection[str] = ()) -> Iterator[Proof]:
    """Run the checks of the methods given, or of all, one by one."""
    return (prove(check) for check in checks() if not methods or check.method in methods)
