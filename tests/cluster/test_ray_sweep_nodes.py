"""A sweep on several nodes, one of which is lost."""

import pytest

from fedgps_ray.sweep.drive import SweepPlan, drive
from fedgps_ray.sweep.ledger import Ledger
from fedgps_ray.sweep.tracker import Tracker

pytestmark = [pytest.mark.ray, pytest.mark.slow]


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of Ray, about the processes of a node
def test_sweep_on_three_nodes_survives_the_loss_of_one(
    nodes,
    fault,
    grid,
    new_screen,
    ends,
    expected,
    undisturbed,
    execution_for,
    tmp_path,
    monkeypatch,
):
    waits, marker = fault("waits")
    specs = [waits, *grid(["fedavg", "scaffold", "fedgps_cf"], [0])]
    go, look = marker.with_name("go"), Tracker.look
    ledger = Ledger(tmp_path / "sweep", specs)
    plan = SweepPlan(
        "tiny", ledger, execution_for(out=ledger.folder, actors=1, checkpoint_seconds=0), {}
    )
    with nodes(3) as three:

        def look_and_lose(self):
            look(self)
            if marker.exists() and not go.exists():
                three.lose(three.nodes[1].node_id)
                go.touch()

        monkeypatch.setattr(Tracker, "look", look_and_lose)
        state = drive(plan, new_screen())
    assert (state.finished, state.failed, state.left) == (4, 0, 0)
    ended = ends(ledger)
    assert ended.pop(waits.trial_id) == ("finished", undisturbed()[-1][1])
    assert ended == expected(specs[1:])
