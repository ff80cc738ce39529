"""The verdict: one table of results and the sentences that they allow."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedgps_ray.analysis import metrics
from fedgps_ray.analysis.report.verdict import FEW, Gap, blocks_needed, gap, judge

SETTING = {
    "dataset": "digits",
    "model": "cnn",
    "partition": "dirichlet",
    "alpha": 0.1,
    "classes_per_client": None,
    "clients": 10,
    "sampling_rate": 0.5,
    "rounds": 100,
    "local_epochs": 1,
    "batch_size": 64,
}


def runs(scores, status=None, seeds=1, **setting):
    """Return runs of each method: a list of accuracies, scenario by scenario, seed by seed."""
    rows = [
        {
            **SETTING,
            **setting,
            "method": method,
            "label": metrics.published_name(method),
            "scenario": 1 + place // seeds,
            "seed": place % seeds,
            "accuracy": value,
            "status": "finished" if value is not None else (status or {}).get(method, "running"),
        }
        for method, values in scores.items()
        for place, value in enumerate(values)
        if value != "absent"
    ]
    frame = pd.DataFrame(rows).astype({"accuracy": float})
    return frame.assign(setting=metrics.setting_texts(frame))


CLEAR = {"fedavg": [60, 61, 59, 60], "fedgps": [70, 71, 69.5, 70]}
RANKS = " (a rank test could confirm that from 6 on)"
CASES = {
    "a clear win": (
        runs(CLEAR),
        [
            "FedGPS leads with 70.12%, 10.12 percentage points ahead of FedAvg (95% interval"
            " +9.73 to +10.52, paired over 4 scenarios).",
            f"The lead is distinguishable from chance, judging by 4 scenarios{RANKS}.",
        ],
    ),
    "a clear win in many scenarios": (
        runs({"fedavg": [60, 61, 59, 60, 62, 60], "fedgps": [70, 71, 69.5, 70, 72, 70]}),
        [
            "FedGPS leads with 70.42%, 10.08 percentage points ahead of FedAvg (95% interval"
            " +9.87 to +10.30, paired over 6 scenarios).",
            "The lead is distinguishable from chance, judging by 6 scenarios.",
        ],
    ),
    "a lead over some only": (
        runs({**CLEAR, "fedgps_cf": [69, 72, 69, 69.5]}),
        [
            "FedGPS leads with 70.12%, 0.25 percentage points ahead of FedGPS-CF (95% interval"
            " -1.56 to +2.06, paired over 4 scenarios, corrected for 2 comparisons).",
            "The lead over FedGPS-CF is not distinguishable from chance, judging by 4 scenarios;"
            " the lead over FedAvg is.",
            "If the gap and its spread stay as they are, about 64 scenarios would tell it from"
            " FedGPS-CF (there are 4); a test on ranks alone (Nemenyi) would take about 44.",
        ],
    ),
    "a tie": (
        runs({"fedavg": [60, 62], "fedgps": [62, 60]}),
        [
            "FedAvg and FedGPS share the lead with 61.00% over 2 scenarios.",
            "Nothing separates them, judging by 2 scenarios.",
        ],
    ),
    "next to no difference": (
        runs({"fedavg": [60, 62, 61], "fedgps": [62, 60, 61.001]}),
        [
            "FedGPS leads with 61.00%, 0.00 percentage points ahead of FedAvg (95% interval -4.97"
            " to +4.97, paired over 3 scenarios).",
            "The lead over FedAvg is not distinguishable from chance, judging by 3 scenarios.",
            "Not even 1000 scenarios would tell it from FedAvg: treat them as equal.",
        ],
    ),
    "one scenario, one seed": (
        runs({"fedavg": [60], "fedgps": [70]}),
        [
            "FedGPS leads with 70.00%, 10.00 percentage points ahead of FedAvg.",
            "With one run per method there is no spread to judge by: this may be chance.",
            FEW,
        ],
    ),
    "one scenario, three seeds": (
        runs({"fedavg": [60, 61, 60], "fedgps": [70, 71, 71]}, seeds=3),
        [
            "FedGPS leads with 70.67%, 10.33 percentage points ahead of FedAvg (95% interval"
            " +8.90 to +11.77, paired over 3 seeds).",
            f"The lead is distinguishable from chance, judging by 3 seeds{RANKS}.",
            "All runs share one scenario, so this says nothing about other partitions.",
        ],
    ),
    "seeds are averaged within a scenario": (
        runs({"fedavg": [60, 62, 50, 52], "fedgps": [70, 72, 61, 61]}, seeds=2),
        [
            "FedGPS leads with 66.00%, 10.00 percentage points ahead of FedAvg (95% interval"
            " +10.00 to +10.00, paired over 2 scenarios).",
            "The lead is distinguishable from chance, judging by 2 scenarios with 2 seeds"
            f" each{RANKS}.",
        ],
    ),
    "one method": (
        runs({"fedgps": [70, 72]}),
        [
            "Only FedGPS can be judged: 71.00% on average over 2 scenarios. Saying who leads takes"
            " a second method."
        ],
    ),
    "a method that diverged": (
        runs({**CLEAR, "fedprox": [80, None, 80, 80]}, {"fedprox": "diverged"}),
        [
            "FedGPS leads with 70.12%, 10.12 percentage points ahead of FedAvg (95% interval"
            " +9.73 to +10.52, paired over 4 scenarios).",
            f"The lead is distinguishable from chance, judging by 4 scenarios{RANKS}.",
            "FedProx is not ranked: 1 of its 4 runs diverged or failed.",
        ],
    ),
    "all diverged": (
        runs({"fedavg": [None], "fedgps": [None]}, {"fedavg": "diverged", "fedgps": "failed"}),
        [
            "No method has a result to compare: every one has runs that diverged or failed.",
            "FedAvg is not ranked: its only run diverged or failed.",
            "FedGPS is not ranked: its only run diverged or failed.",
        ],
    ),
    "nothing finished": (
        runs({"fedavg": [None], "fedgps": [None]}),
        [
            "No trial has finished yet, so nobody leads.",
            "FedAvg and FedGPS are not ranked: too few runs have finished.",
        ],
    ),
    "missing cells": (
        runs({"fedavg": [60, 61, 60], "fedgps": [70, 71, None], "vhl": [None, "absent", 90]}),
        [
            "FedGPS leads with 70.50%, 10.00 percentage points ahead of FedAvg (95% interval"
            " +10.00 to +10.00, paired over 2 scenarios).",
            f"The lead is distinguishable from chance, judging by 2 scenarios{RANKS}.",
            "VHL is not ranked: too few runs have finished.",
            "This rests on 2 of 3 cases: the others are not finished by all.",
        ],
    ),
    "several settings": (
        pd.concat(
            [
                runs({"fedavg": [60, 61], "fedgps": [70, 72]}, alpha=0.1),
                runs({"fedavg": [80, 81], "fedgps": [80, 80]}, alpha=0.5),
            ]
        ),
        [
            "Of 2 settings, FedGPS leads in 1, FedAvg in 1.",
            "FedGPS leads with 75.50%, 5.00 percentage points ahead of FedAvg (95% interval -5.15"
            " to +15.15, paired over 4 scenarios of 2 settings).",
            "The lead over FedAvg is not distinguishable from chance, judging by 4 scenarios of 2"
            " settings.",
            "If the gap and its spread stay as they are, about 9 scenarios would tell it from"
            " FedAvg (there are 4).",
            "alpha 0.1: FedGPS leads with 71.00%, 10.50 percentage points ahead of FedAvg (95%"
            " interval +4.15 to +16.85, paired over 2 scenarios).",
            "alpha 0.5: FedAvg leads with 80.50%, 0.50 percentage points ahead of FedGPS (95%"
            " interval -5.85 to +6.85, paired over 2 scenarios).",
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_verdict(name):
    frame, expected = CASES[name]
    assert judge(frame) == expected


def test_the_interval_is_that_of_a_paired_t_test():
    one, two = np.array([70.0, 73, 71, 75]), np.array([68.0, 70, 71, 70])
    found = stats.ttest_rel(one, two).confidence_interval(0.95)
    assert gap(one - two, 1)[2:] == pytest.approx((found.low, found.high))
    corrected = stats.ttest_rel(one, two).confidence_interval(1 - 0.05 / 3)
    assert gap(one - two, 3)[2:] == pytest.approx((corrected.low, corrected.high))


@pytest.mark.parametrize(("mean", "std"), [(1.0, 1.0), (0.3, 1.0), (5.0, 1.0)])
def test_so_many_blocks_are_needed_and_no_fewer(mean, std):
    def separates(count):
        return stats.t.ppf(0.975, count - 1) * std / count**0.5 < mean

    count = blocks_needed(Gap(mean, std, -1, 1), 1)
    assert separates(count)
    assert not separates(count - 1) or count == 2


def test_the_order_of_the_rows_does_not_matter():
    frame = CASES["a lead over some only"][0]
    assert judge(frame.sample(frac=1, random_state=1)) == judge(frame)
