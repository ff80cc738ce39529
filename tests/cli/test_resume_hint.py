"""What is said about how to go on with a sweep."""

import pytest
import typer

from fedgps_ray.cli.commands import sweep
from fedgps_ray.spec import ExecutionSpec
from fedgps_ray.sweep.ledger import Ledger
from fedgps_ray.sweep.plan import SweepPlan


def test_a_storage_is_named_without_its_passwords(tmp_path, monkeypatch, capfd):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "drive", interrupted)
    monkeypatch.setattr(sweep, "survive", lambda *_: None)
    execution = ExecutionSpec(out=tmp_path, storage="s3://KEY:SECRET@bucket/x")
    (tmp_path / "experiment.json").touch()
    with pytest.raises(typer.Exit):
        sweep._drive(SweepPlan("tiny", Ledger(tmp_path, []), execution, {}), as_json=False)
    told = capfd.readouterr().err.replace("\n", "")
    assert "--storage 's3://***@bucket/x'" in told
    assert "SECRET" not in told
