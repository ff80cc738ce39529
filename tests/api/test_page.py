"""docs/api.md shows code that runs, in the order in which it stands there."""

import re
from pathlib import Path

import fedgps_ray
from fedgps_ray.spec import ExecutionSpec

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


def test_every_block_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in BLOCKS:
        exec(compile(block, "docs/api.md", "exec"), names)
    assert len(names["results"]) == 2 * 3 * 2
    assert "Did you mean 'fedgps'?" in capsys.readouterr().out
    assert (tmp_path / "runs" / "study" / "report" / "report.html").exists()
    assert list((tmp_path / "runs" / "logged" / "logs" / "csv").iterdir())


def test_the_ways_to_write_settings_mean_the_same():
    (block,) = [block for block in BLOCKS if "fedgps_ray.spec(" in block]
    lines = [line for line in block.splitlines() if line.startswith("fedgps_ray.spec(")]
    names = {"fedgps_ray": fedgps_ray}
    exec(block, names)
    assert len({eval(line, names).trial_id for line in lines}) == 1
    assert len(lines) == 4


def test_every_function_and_every_way_to_run_is_mentioned():
    for name in fedgps_ray.API:
        if name[0].islower():
            assert re.search(rf"\b{name}\(|fedgps_ray\.{name}\b", PAGE), name
    told = set(re.findall(r"`(\w+)`", PAGE))
    hidden = {"hang_seconds", "storage", "files"}
    assert set(ExecutionSpec.model_fields) - hidden <= told
