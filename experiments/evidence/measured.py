"""The theory on the study's own models, as a section of the page."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import pandas as pd

from fedgps_ray.experiments.evidence.compare import metric
from fedgps_ray.experiments.evidence.study import Study

ABOUT = (
    "Measured on the final models of one draw ({draw}). Theorem 4.1 bounds the risk of"
    " a client's head on everybody's data less that on its own (gap) by a Lipschitz constant times"
    " three distances of features: client to noise, the client's noise to the global model's, noise"
    " to all data. The path assumes that |I - lambda H| is below 1, H being the Hessian of the"
    " loss: lambda may be at most 2 over the largest eigenvalue, and along the gradient 2 over the"
    " curvature there. FedGPS's step has a fixed length instead; its lambda is that length (mean"
    " over the rounds) over the norm of the gradient of the final model. It goes along the updates"
    " of the other clients and not along this gradient, so the comparison is a rough one."
)


def section(known: Study, table: Callable[[pd.DataFrame], str]) -> Iterator[str]:
    """Yield the terms of the bound and the condition of the path."""
    yield "## The theory on these models"
    found = known.theory.get("trials", {})
    trials = known.trials.set_index("trial_id")
    names = trials["variant"]
    rows = {str(names[trial]): (trial, each) for trial, each in found.items() if trial in names}
    if not rows:
        yield "Not measured yet."
        return
    yield ABOUT.format(draw=_draw(trials.loc[[trial for trial, _ in rows.values()]]))
    yield table(pd.DataFrame([_bound(name, each) for name, (_, each) in rows.items()]))
    yield _tightness([client for _, each in rows.values() for client in each["clients"]])
    steps = metric(known.rounds, "ahead_to_weights")
    curved = [
        _path(name, each["curvature"], float(steps.get(trial, 0.0)))
        for name, (trial, each) in rows.items()
    ]
    yield table(pd.DataFrame(curved).drop(columns=["product", "limit"]))
    yield " ".join(_told(pd.DataFrame(curved)))


def _draw(trials: pd.DataFrame) -> str:
    """Return the scenarios and seeds of the measured trials in words."""
    draws = sorted(set(zip(trials["scenario"], trials["seed"], strict=True)))
    return "; ".join(f"scenario {scenario}, seed {seed}" for scenario, seed in draws)


def _bound(name: str, each: dict[str, list[dict[str, float]]]) -> dict[str, object]:
    """Return the means of the theorem's terms over the measured clients."""
    clients = pd.DataFrame(each["clients"])
    means = clients.mean(numeric_only=True)
    return {
        "method": name,
        "client to noise": f"{means['local_surrogate']:.1f}",
        "noise to noise": f"{means['surrogate_global']:.1f}",
        "noise to all": f"{means['global_surrogate']:.1f}",
        "Lipschitz": f"{means['lipschitz']:.1f}",
        "gap": f"{means['gap']:.2f}",
        "bound": f"{means['bound']:.0f}",
        "held": f"{int(clients['held'].sum())} of {len(clients)}",
    }


def _tightness(clients: Sequence[Mapping[str, float]]) -> str:
    """Return how much of the bound the gaps make up."""
    shares = [100 * client["gap"] / client["bound"] for client in clients]
    return (
        f"The bound held for {sum(bool(client['held']) for client in clients)} of {len(clients)}"
        f" clients. The gaps are {min(shares):.1f} to {max(shares):.1f} % of it: the closer to 100,"
        " the more the bound could say about the order of methods."
    )


def _path(name: str, curved: dict[str, float], share: float) -> dict[str, object]:
    """Return the condition for a step that is this share of the weights."""
    step = share * curved["weights_norm"]
    length = step / curved["gradient_norm"] if curved["gradient_norm"] else 0.0
    product, limit = length * curved["along_gradient"], 2 / curved["largest"]
    return {
        "method": name,
        "largest eigenvalue": f"{curved['largest']:.0f}",
        "curvature along the gradient": f"{curved['along_gradient']:.0f}",
        "longest lambda allowed": f"{limit:.3f}",
        "lambda in use": f"{length:.3f}" if step else "-",
        "lambda times curvature": f"{product:.2f}" if step else "-",
        "product": product,
        "limit": limit,
    }


def _told(curved: pd.DataFrame) -> Iterator[str]:
    """Yield what the tables say, by rule."""
    ahead = curved[curved["product"] > 0]
    products = ahead["product"].round(1)
    yield "A look along the gradient multiplies it by about 1 less lambda times curvature: below 1"
    yield "it finds a smaller gradient, up to 2 one that points back, above 2 also a longer one."
    for told, chosen in (
        ("Below 1", products < 1),
        ("From 1 to 2", products.between(1, 2, inclusive="left")),
        ("At 2, the end of what the theory allows", products == 2),
        ("Above 2, so that the step is too long for these models", products > 2),
    ):
        if chosen.any():
            yield f"{told}: {'; '.join(ahead.loc[chosen, 'method'])}."
    yield "The printed lambda of 0.5 as a factor of the gradient would be above the limit in"
    yield f"{(curved['limit'] < 0.5).sum()} of {len(curved)} models."
