"""Every method gives the same bits however the sums of a round are split up."""

import pickle

import pytest

from fedgps_ray.methods import METHODS
from fedgps_ray.rounds.collect import collected, join, take_out
from fedgps_ray.rounds.pool import InProcess


class Split(InProcess):
    """Adds up as so many actors would, and joins their sums from the last to the first."""

    actors = 3

    def start(self, jobs):
        def results():
            sums = [{} for _ in range(self.actors)]
            replies = [
                take_out(self.worker.work(job), job.shares, sums[place % self.actors])
                for place, job in enumerate(jobs)
            ]
            total = {}
            for part in reversed(sums):
                join(total, pickle.loads(pickle.dumps(part)))
            return collected(jobs, replies, total)

        return results


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("name", METHODS)
def test_the_split_changes_no_bit(name, precision, quick, monkeypatch):
    whole = quick(METHODS[name](), precision=precision)
    monkeypatch.setattr(InProcess, "start", Split.start)
    monkeypatch.setattr(InProcess, "actors", Split.actors, raising=False)
    split = quick(METHODS[name](), precision=precision)
    assert len(whole) > 1
    assert [done.row["weights_sha256"] for done in split] == [
        done.row["weights_sha256"] for done in whole
    ]
