"""The commands that the benchmark of folders measures run on a folder that was made up."""

from fedgps_ray.experiment import load
from fedgps_ray.sweep.ledger import Ledger
from fedgps_ray.sweep.observe import standing
from fedgps_ray.tools.bench.folders import commands, measured
from fedgps_ray.tools.fabricate import ALPHAS, METHODS, Size, fabricate_finished


def test_a_made_up_sweep_is_whole_and_sealed(tmp_path):
    file = fabricate_finished(tmp_path / "made", Size(trials=1, rounds=2))
    told = standing(tmp_path / "made", timing=False, verify=True)
    whole = len(METHODS) * len(ALPHAS)
    assert told["counts"] == {"finished": whole}
    assert told["verified"] == whole
    assert (told["damaged"], told["not_sealed"]) == ([], [])
    cost = measured(commands(tmp_path / "made", file)["status"])
    assert cost.cpu > 0
    assert cost.wall > 0
    assert cost.megabytes > 0


def test_a_sweep_of_its_file_has_nothing_to_run(tmp_path):
    file = fabricate_finished(tmp_path / "made", Size(trials=1, rounds=2))
    experiment = load(file)
    book = Ledger(tmp_path / "made", [cell.spec for cell in experiment.cells])
    assert len(book.specs) == len(METHODS) * len(ALPHAS)
    assert book.quarantine() == []
    assert book.to_do(again=True) == []
