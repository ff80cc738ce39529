"""Results at a URI: whole trials come and go, only what has changed is sent."""

import pytest

from fedgps_ray.errors import UserError
from fedgps_ray.results.mirror import Mirror, mirrored


@pytest.fixture
def there(tmp_path):
    """Return a folder that is reached by its URI."""
    return tmp_path / "bucket"


@pytest.fixture
def here(tmp_path):
    """Return a results folder with one trial."""
    trial = tmp_path / "here" / "trials" / "abc"
    (trial / "checkpoint").mkdir(parents=True)
    (trial / "trial.json").write_text("{}")
    (trial / "checkpoint" / "round-1.json").write_text("1")
    (trial / ".lock").touch()
    (trial / ".rounds.parquet.part").write_text("half")
    return tmp_path / "here"


@pytest.fixture
def mirror(there):
    return Mirror(there.as_uri())


def files(folder):
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def test_what_is_put_is_fetched_elsewhere(mirror, here, there, tmp_path):
    assert not mirror.fetch(tmp_path / "new", "trials/abc")
    mirror.put(here, "trials/abc")
    whole = ["trials/abc/checkpoint/round-1.json", "trials/abc/trial.json"]
    assert files(there) == whole
    assert Mirror(there.as_uri()).fetch(tmp_path / "new", "trials/abc")
    assert files(tmp_path / "new") == whole
    assert mirror.names("trials") == ["abc"]


def test_what_is_there_wins_over_what_is_here(mirror, here, there):
    mirror.put(here, "trials/abc")
    (there / "trials" / "abc" / "trial.json").write_text('{"newer": 1}')
    (here / "trials" / "abc" / "old.json").touch()
    mirror.fetch(here, "trials/abc")
    assert (here / "trials" / "abc" / "trial.json").read_text() == '{"newer": 1}'
    assert not (here / "trials" / "abc" / "old.json").exists()


def test_only_changes_are_sent_and_what_is_gone_is_removed(mirror, here, there):
    mirror.put(here, "trials/abc")
    there_is = there / "trials" / "abc"
    (there_is / "trial.json").write_text("not sent again, as nothing has changed")
    (here / "trials" / "abc" / "checkpoint" / "round-1.json").unlink()
    (here / "trials" / "abc" / "checkpoint" / "round-2.json").write_text("2")
    mirror.put(here, "trials/abc")
    assert files(there_is) == ["checkpoint/round-2.json", "trial.json"]
    assert (there_is / "trial.json").read_text().startswith("not sent")


def test_trial_that_fails_is_put_back_all_the_same(mirror, here, there):
    def events():
        yield 1
        (here / "trials" / "abc" / "rounds.parquet").write_text("rows")
        raise RuntimeError("lost")

    passed = mirrored(mirror, here, "trials/abc", events(), seconds=0)
    assert next(passed) == 1
    with pytest.raises(RuntimeError, match="lost"):
        next(passed)
    assert (there / "trials" / "abc" / "rounds.parquet").read_text() == "rows"


@pytest.mark.parametrize("uri", ["nothing://x", "no uri", ""])
def test_uri_that_is_none_is_told(uri):
    with pytest.raises(UserError, match="--storage"):
        Mirror(uri)
