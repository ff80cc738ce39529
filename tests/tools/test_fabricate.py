"""Made-up folders are read like real ones."""

from fedgps_ray.analysis import load
from fedgps_ray.results.read import read_experiment, read_trial
from fedgps_ray.sweep.state import load as load_state
from fedgps_ray.tools.fabricate import Size, fabricate


def test_a_made_up_folder_reads_like_a_sweep(tmp_path):
    size = Size(trials=24, running=2, failed=1, rounds=10)
    state = fabricate(tmp_path, size)
    experiment = read_experiment(tmp_path)
    assert len(experiment["cells"]) == 24
    assert "no number in it was measured" in experiment["description"]
    begun = [read_trial(path) for path in (tmp_path / "trials").iterdir()]
    assert len(begun) == 17
    assert load_state(tmp_path).records == state.records
    rows = load.rounds(tmp_path)
    assert len(rows) == 14 * 10 + 2 * 5 + 2
