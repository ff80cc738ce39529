# %% [markdown]
"""A method of your own, compared with three others: written, run and drawn in a minute.

Open this file in an editor that knows `# %%` cells (VS Code, Spyder, PyCharm, or Jupyter with
Jupytext) and run it cell by cell from the project's folder, or as a whole:
`python -m fedgps_ray.analysis.own_method`. By its path it does not run: Python would then take
`statistics` beside it for the standard library's.
"""

# %% Where results go, and how many rounds
import os
from pathlib import Path

import fedgps_ray
from fedgps_ray.analysis import figures, metrics

out = Path(os.environ.get("OUT", "runs/own_method"))
rounds = int(os.environ.get("ROUNDS", "20"))
out.mkdir(parents=True, exist_ok=True)

# %% The method, in a file of its own: the server takes a step of another length
METHOD = '''
from dataclasses import dataclass

from fedgps_ray.methods.fedavg import FedAvg
from fedgps_ray.tensors import step


@dataclass(frozen=True)
class Stride(FedAvg):
    """FedAvg whose server moves further, or less far, than the mean update."""
    stride: float = 1.5
    def merge(self, state, replies):
        return state._replace(params=step(state.params, self.average(replies), self.stride))
'''
file = out / "stride.py"
file.write_text(METHOD)

# %% It and three others, on the same clients, in this process
results = fedgps_ray.sweep(
    {"base": {"model": "mlp", "rounds": rounds, "batch_size": 16}},
    methods=[f"{file}:Stride", "fedavg", "fedprox", "scaffold"],
    scenarios=[1, 2],
    out=out,
)

# %% Who was best
best = results.trials.groupby("method", observed=True)["best_accuracy"].mean()
best.sort_values().to_csv(out / "best.csv")

# %% The figure: accuracy by round, one panel per scenario
runs = metrics.runs(results.trials, results.rounds)
curves = figures.convergence(figures.labelled(results.rounds, runs))
figures.save(curves, out, "own_method")
