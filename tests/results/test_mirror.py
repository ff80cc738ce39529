"""Results at a URI: whole trials come and go, changes are sent, and nothing good is lost."""

import json
import resource
import shutil
from pathlib import Path

import pytest

from fedgps_ray.errors import CannotWrite, InUse, Lost, Overtaken, UserError
from fedgps_ray.results import files
from fedgps_ray.results import mirror as mirrors
from fedgps_ray.results.mirror import Mirror, mirrored, progress
from fedgps_ray.results.read import NewerLayout, check, read_trial
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.spec import ExecutionSpec, trial_spec

SPEC = trial_spec(
    method="fedavg",
    model="mlp",
    dataset={"name": "synthetic", "image_size": 8, "train_size": 40, "test_size": 20},
    partition="iid",
    clients=2,
    rounds=3,
)
NAME = f"trials/{SPEC.trial_id}"
ENDED = [
    f"{NAME}/{file}"
    for file in (
        "checkpoint/client-0-000001.safetensors",
        "checkpoint/client-1-000002.safetensors",
        "checkpoint/round-000002.json",
        "checkpoint/state-000002.safetensors",
        "clients.parquet",
        "model.safetensors",
        "partition.parquet",
        "rounds.parquet",
        "trial.json",
    )
]


def events_of(folder):
    return run_trial(SPEC, ExecutionSpec(out=folder, actors=0, checkpoint_seconds=0))


def until(events, number):
    """Take events up to a round."""
    for event in events:
        if isinstance(event, dict) and event["round"] == number:
            return


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a folder with the trial after none, one and two rounds, and at its end."""
    root = tmp_path_factory.mktemp("made")
    for rounds in (1, 2):
        events = events_of(root / str(rounds))
        until(events, rounds)
        events.close()
    list(events_of(root / "ended"))
    return root


@pytest.fixture
def here(made, tmp_path):
    """Make a results folder in which the trial has come so far."""

    def make(far, name="here"):
        return Path(shutil.copytree(made / far, tmp_path / name))

    return make


@pytest.fixture
def there(tmp_path, monkeypatch):
    """Return a folder that is reached by its URI."""
    monkeypatch.setattr(mirrors, "PAUSES", (0.0,))
    return tmp_path / "bucket"


@pytest.fixture
def mirror(there):
    return Mirror(there.as_uri())


def names(folder):
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return sorted(path.relative_to(folder).as_posix() for path in paths)


# --- to there -------------------------------------------------------------------------------------


def test_what_is_put_is_fetched_elsewhere(mirror, here, there, tmp_path):
    new = tmp_path / "new"
    assert not mirror.fetch(new, NAME)
    folder = here("ended")
    (folder / NAME / ".rounds.parquet.part").write_text("half")
    (folder / NAME / "my notes.txt").write_text("not a trial's file")
    mirror.put(folder, NAME)
    assert names(there) == ENDED
    assert Mirror(there.as_uri()).fetch(new, NAME)
    assert names(new) == ENDED
    assert check(new / NAME, full=True) == []
    assert mirror.names("trials") == [SPEC.trial_id]


def test_only_changes_are_sent_and_what_is_gone_is_removed(mirror, here, there):
    folder = here("1")
    mirror.put(folder, NAME)
    (there / NAME / "rounds.parquet").write_text("not sent again, as nothing has changed")
    (folder / NAME / "checkpoint" / "round-000001.json").unlink()
    (folder / NAME / "checkpoint" / "round-000002.json").write_text("2")
    mirror.put(folder, NAME)
    assert (there / NAME / "rounds.parquet").read_text().startswith("not sent")
    manifests = [name for name in names(there) if "round-" in name]
    assert manifests == [f"{NAME}/checkpoint/round-000002.json"]


def test_a_folder_that_is_moved_away_deletes_nothing_there(mirror, there, tmp_path):
    folder = tmp_path / "here"
    passed = mirrored(mirror, folder, NAME, events_of(folder), seconds=0)
    until(passed, 2)
    sent = names(there)
    folder.rename(tmp_path / "elsewhere")
    with pytest.raises(CannotWrite, match="deleted or moved"):
        list(passed)
    assert names(there) == sent
    mirror.put(folder, NAME)
    assert names(there) == sent


def test_trial_that_fails_is_put_back_all_the_same(mirror, there, here):
    folder = here("1")

    def events():
        yield 1
        (folder / NAME / "rounds.parquet").write_text("rows")
        raise RuntimeError("lost")

    passed = mirrored(mirror, folder, NAME, events(), seconds=0)
    assert next(passed) == 1
    with pytest.raises(RuntimeError, match="lost"):
        next(passed)
    assert (there / NAME / "rounds.parquet").read_text() == "rows"


def test_what_went_wrong_is_told_and_not_that_it_could_not_be_sent(mirror, tmp_path, monkeypatch):
    def away(*_):
        raise Lost("the storage is away")

    def events(end):
        yield 1
        if end is not None:
            raise end

    monkeypatch.setattr(mirror, "put", away)
    with pytest.raises(UserError, match="the method is wrong"):
        list(mirrored(mirror, tmp_path, NAME, events(UserError("the method is wrong")), 100))
    with pytest.raises(Lost, match="away"):
        list(mirrored(mirror, tmp_path, NAME, events(None), 100))


def test_a_trial_that_another_machine_has_ended_is_not_overwritten(mirror, here, there, tmp_path):
    slow = tmp_path / "slow"
    passed = mirrored(mirror, slow, NAME, events_of(slow), seconds=0)
    until(passed, 1)
    ended = here("ended")
    Mirror(there.as_uri()).put(ended, NAME)
    with pytest.raises(Overtaken, match="another machine has ended"):
        list(passed)
    assert names(there) == ENDED
    assert Mirror(there.as_uri()).fetch(slow, NAME)
    assert read_trial(slow / NAME) == read_trial(ended / NAME)


def test_files_of_two_machines_are_not_mixed(mirror, here, there, tmp_path, monkeypatch):
    mine, theirs = here("ended"), tmp_path / "theirs"
    list(events_of(theirs))  # the same rounds, which took other times
    send, other = mirror._send, Mirror(there.as_uri())

    def interrupted(file, path):
        if file.endswith("rounds.parquet") and not other.sent:
            other.put(theirs, NAME)
        send(file, path)

    monkeypatch.setattr(mirror, "_send", interrupted)
    mirror.put(mine, NAME)
    assert Mirror(there.as_uri()).fetch(tmp_path / "new", NAME)
    assert read_trial(tmp_path / "new" / NAME) == read_trial(mine / NAME)
    other.put(theirs, NAME)  # nothing has changed since it was sent, but it is not there any more
    assert Mirror(there.as_uri()).fetch(tmp_path / "newer", NAME)
    assert read_trial(tmp_path / "newer" / NAME) == read_trial(theirs / NAME)


def test_what_a_killed_upload_leaves_is_ignored_and_removed(mirror, here, there, tmp_path):
    folder = here("ended")
    mirror.put(folder, NAME)
    rest = there / NAME / ".rounds.parquet.part"
    rest.write_text("half")
    assert Mirror(there.as_uri()).fetch(tmp_path / "new", NAME)
    assert names(tmp_path / "new") == ENDED
    mirror.put(folder, NAME)
    assert not rest.exists()


def test_a_trial_to_be_run_anew_replaces_the_one_there(mirror, here, there):
    Mirror(there.as_uri()).put(here("ended"), NAME)
    mirror.replaced.add(NAME)
    started = here("1", "anew")
    assert not mirror.fetch(started, NAME)
    mirror.put(started, NAME)
    assert "round-000001.json" in "".join(names(there))
    assert not (there / NAME / "model.safetensors").exists()


# --- from there -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("local", "remote", "is_taken"),
    [("1", "2", True), ("2", "1", False), ("2", "2", False), ("2", "ended", True)],
)
def test_what_is_further_wins_and_a_tie_leaves_what_is_here(
    local, remote, is_taken, mirror, here, there
):
    Mirror(there.as_uri()).put(here(remote, "other"), NAME)
    folder = here(local)
    before = progress(folder / NAME)
    assert mirror.fetch(folder, NAME) is is_taken
    assert (progress(folder / NAME) > before) is is_taken
    assert not (folder / "quarantine").exists()


@pytest.mark.parametrize("local", ["2", "ended"])
def test_a_damaged_copy_replaces_nothing_good(local, mirror, here, there):
    Mirror(there.as_uri()).put(here("ended", "other"), NAME)
    (there / NAME / "rounds.parquet").write_bytes(b"changed")
    folder = here(local)
    before = names(folder)
    assert not mirror.fetch(folder, NAME)
    mine = [name for name in names(folder) if not name.startswith("quarantine")]
    assert (mine, check(folder / NAME, full=True)) == (before, [])
    mirror.put(folder, NAME)
    assert names(there) == before, "and what is here replaces it there"


@pytest.mark.parametrize("text", ['{"status": "finished"}', "{", "[]"])
def test_what_only_says_it_has_ended_has_not(text, mirror, here, there):
    Mirror(there.as_uri()).put(here("1", "other"), NAME)
    (there / NAME / "trial.json").write_text(text)
    folder = here("2")
    before = names(folder)
    assert not mirror.fetch(folder, NAME)
    assert names(folder) == before


def test_a_damaged_checkpoint_there_does_not_count(mirror, here, there):
    Mirror(there.as_uri()).put(here("1", "other"), NAME)
    (there / NAME / "checkpoint" / "round-000999.json").write_text("{}")
    folder = here("2")
    assert not mirror.fetch(folder, NAME)
    assert progress(folder / NAME) == (False, 2)


def test_what_is_damaged_here_goes_to_quarantine(mirror, here, there):
    Mirror(there.as_uri()).put(here("ended", "other"), NAME)
    folder = here("ended")
    (folder / NAME / "rounds.parquet").write_bytes(b"changed")
    assert mirror.fetch(folder, NAME)
    assert check(folder / NAME, full=True) == []
    moved = folder / "quarantine" / f"{SPEC.trial_id}-1" / "rounds.parquet"
    assert moved.read_bytes() == b"changed"


def test_a_trial_of_a_newer_layout_is_not_replaced(mirror, here, there):
    Mirror(there.as_uri()).put(here("2", "other"), NAME)
    folder = here("ended")
    path = folder / NAME / "trial.json"
    content = json.loads(path.read_text()) | {"schema_version": 99}
    files.write_json(path, content)
    with pytest.raises(NewerLayout):
        mirror.fetch(folder, NAME)
    assert json.loads(path.read_text())["schema_version"] == 99


def test_what_is_complete_here_is_not_even_looked_for(mirror, here, monkeypatch):
    monkeypatch.setattr(mirror, "_listed", lambda *_: pytest.fail("a request was made"))
    assert not mirror.fetch(here("ended"), NAME)


def test_a_trial_that_runs_is_not_replaced(mirror, here, there, tmp_path):
    Mirror(there.as_uri()).put(here("ended"), NAME)
    running = events_of(tmp_path / "mine")
    until(running, 1)
    with pytest.raises(InUse):
        mirror.fetch(tmp_path / "mine", NAME)
    list(running)
    assert check(tmp_path / "mine" / NAME, full=True) == []


def test_the_lock_of_a_replaced_folder_is_kept(mirror, here, there):
    Mirror(there.as_uri()).put(here("ended", "other"), NAME)
    folder = here("1")
    before = (folder / NAME / ".lock").stat().st_ino
    assert mirror.fetch(folder, NAME)
    assert (folder / NAME / ".lock").stat().st_ino == before


def test_own_code_comes_along(mirror, here, there, tmp_path):
    folder = here("ended")
    code = folder / NAME / "code" / "0123456789ab" / "my_package" / "__init__.py"
    code.parent.mkdir(parents=True)
    code.write_text("x = 1")
    mirror.put(folder, NAME)
    new = tmp_path / "new"
    assert Mirror(there.as_uri()).fetch(new, NAME)
    assert (new / code.relative_to(folder)).read_text() == "x = 1"


@pytest.mark.parametrize(
    "file",
    [
        "junk",
        "code/0123456789ab/.hidden/x.py",
        "code/short/x.py",
        "checkpoint/a",
        "checkpoint/deep/state.json",
    ],
)
def test_what_is_not_a_trials_file_is_refused(file, mirror, here, there, tmp_path):
    mirror.put(here("ended"), NAME)
    path = there / NAME / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    with pytest.raises(UserError, match="is not a file of a trial; remove it there"):
        Mirror(there.as_uri()).fetch(tmp_path / "new", NAME)
    assert names(tmp_path / "new") == []


def test_a_file_that_is_too_long_is_refused_before_it_is_read(
    mirror, here, there, tmp_path, monkeypatch
):
    mirror.put(here("ended"), NAME)
    monkeypatch.setattr(files, "MOST_BYTES", 100)
    monkeypatch.setattr(Mirror, "_content", lambda *_: pytest.fail("it was read"))
    with pytest.raises(UserError, match="is not a file of a trial"):
        Mirror(there.as_uri()).fetch(tmp_path / "new", NAME)


def test_a_download_that_is_cut_short_is_no_damage_there(
    mirror, here, there, tmp_path, monkeypatch
):
    mirror.put(here("ended"), NAME)
    again, pour = Mirror(there.as_uri()), Mirror._pour

    def cut(self, path, file):
        pour(self, path, file)
        file.truncate(10)

    monkeypatch.setattr(Mirror, "_pour", cut)
    with pytest.raises(Lost, match="cut short"):
        again.fetch(tmp_path / "new", NAME)
    assert again.replaced == set()


def test_a_full_disk_here_is_not_the_storages_fault(mirror, here, there, tmp_path):
    mirror.put(here("ended"), NAME)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, before[1]))
    try:
        with pytest.raises(CannotWrite, match=r"cannot write .*File too large"):
            Mirror(there.as_uri()).fetch(tmp_path / "new", NAME)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("uri", ["nothing://x", "no uri", ""])
def test_uri_that_is_none_is_told(uri):
    with pytest.raises(UserError, match="--storage"):
        Mirror(uri)
