# %% [markdown]
"""From a results folder to a table and three figures, a few lines each.

Open this file in an editor that knows `# %%` cells (VS Code, Spyder, PyCharm, or Jupyter with
Jupytext) and run it cell by cell from the project's folder, or as a whole:
`RESULTS=runs/default python -m fedgps_ray.analysis.walkthrough`. By its path it does not run:
Python would then take `statistics` beside it for the standard library's.
"""

# %% Where the results lie, and where figures go
import os
from pathlib import Path

from fedgps_ray.analysis import figures, formats, load, metrics, statistics, tables

results = Path(os.environ.get("RESULTS", "runs/default"))
out = results / "walkthrough"
out.mkdir(exist_ok=True)

# %% Read all trials: one row per trial, and one row per round
trials = load.trials(results)
rounds = load.rounds(results)

# %% What each trial achieved: best accuracy, rounds to FedAvg's best, speed-up
runs = metrics.runs(trials, rounds)
rounds = figures.labelled(rounds, runs)

# %% One setting at a time: here the first
setting, here = next(metrics.settings(runs))
table = tables.by_scenario(here)
(out / "comparison.md").write_text(formats.to_markdown(table))

# %% Figure 1: accuracy over the rounds, one panel per scenario
curves = figures.convergence(rounds[rounds["setting"] == setting])
figures.save(curves, out, "convergence")

# %% Figure 2: what the accuracy cost in bytes
cost = figures.accuracy_against_bytes(rounds[rounds["setting"] == setting])
figures.save(cost, out, "bytes")

# %% Figure 3: average ranks over the scenarios, and which of them a test can tell apart
complete, left_out = statistics.without_incomplete(here)
ranking = statistics.ranking(statistics.scores(complete))
figures.save(figures.critical_difference({setting: ranking}), out, "ranks")

# %% What that test cannot say
(out / "caveats.txt").write_text("\n".join(ranking.caveats) + "\n")
