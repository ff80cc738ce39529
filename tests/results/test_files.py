"""Files that are complete or absent, and folders that one process holds at a time."""

import errno
import os
import subprocess
import sys
import threading

import pytest
from safetensors import SafetensorError

from fedgps_ray.errors import CannotWrite, UserError
from fedgps_ray.results import files


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_put_in_place_whole(tmp_path):
    path = tmp_path / "note.txt"
    files.write(path, lambda beside: beside.write_text("new"))
    assert path.read_text() == "new"
    assert names(path.parent) == ["note.txt"]


def test_a_folder_that_is_gone_is_told_and_not_made_again(tmp_path):
    gone = tmp_path / "gone"
    with pytest.raises(UserError, match="its folder was deleted or moved while it was in use"):
        files.write(gone / "note.txt", lambda beside: beside.write_text("new"))
    assert not gone.exists()


def test_nobody_sees_a_file_half_written(tmp_path):
    path = tmp_path / "note.txt"
    path.write_text("old")

    def fill(beside):
        beside.write_text("half")
        assert path.read_text() == "old"
        beside.write_text("whole")

    files.write(path, fill)
    assert path.read_text() == "whole"


@pytest.mark.parametrize("stop", [RuntimeError, KeyboardInterrupt])
def test_a_failing_writer_leaves_the_old_file_and_nothing_else(tmp_path, stop):
    path = tmp_path / "note.txt"
    path.write_text("old")

    def fill(beside):
        beside.write_text("half")
        raise stop("in the middle")

    with pytest.raises(stop, match="in the middle"):
        files.write(path, fill)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["note.txt"]


def test_a_writer_that_fails_at_once_is_not_hidden_by_the_clean_up(tmp_path):
    def fill(beside):
        raise RuntimeError("before anything")

    with pytest.raises(RuntimeError, match="before anything"):
        files.write(tmp_path / "note.txt", fill)
    assert names(tmp_path) == []


def test_content_is_on_disk_before_the_name_is(tmp_path, monkeypatch):
    order = []
    path = tmp_path / "note.txt"
    real = os.fsync

    def noted(handle):
        order.append((os.readlink(f"/proc/self/fd/{handle}"), path.exists()))
        real(handle)

    monkeypatch.setattr(os, "fsync", noted)
    files.write(path, lambda beside: beside.write_text("new"))
    flushed, folder = order
    assert flushed[0].endswith(".part")
    assert not flushed[1]
    assert folder == (str(tmp_path), True)


def test_json_that_cannot_be_written_leaves_the_old_file(tmp_path):
    path = tmp_path / "note.json"
    files.write_json(path, {"a": [1, None, 0.1]})
    with pytest.raises(TypeError):
        files.write_json(path, {"a": object()})
    assert files.read_json(path)["a"] == [1, None, 0.1]
    assert names(tmp_path) == ["note.json"]


def test_a_held_folder_is_refused_and_free_afterwards(tmp_path):
    folder = tmp_path / "new" / "trial"
    with (
        files.lock(folder),
        pytest.raises(UserError, match="trial is in use by another process; wait"),
        files.lock(folder),
    ):
        pass
    with files.lock(folder):
        pass


def test_the_lock_of_a_killed_process_is_gone(tmp_path):
    program = (
        "import sys, os, signal, pathlib\n"
        "from fedgps_ray.results import files\n"
        "with files.lock(pathlib.Path(sys.argv[1])):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert ended.returncode == -9
    assert (tmp_path / ".lock").exists()
    with files.lock(tmp_path):
        pass


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(
            UserError, match=r"cannot write to .*file/trial \(.*file.*; use another --out"
        ),
        files.lock(tmp_path / "file" / "trial"),
    ):
        pass


@pytest.mark.parametrize("patience", [[20], []], ids=["long", "a moment"])
def test_a_lock_is_waited_for_as_long_as_wanted(patience, tmp_path):
    first = files.lock(tmp_path)
    first.__enter__()
    with pytest.raises(UserError, match="in use by another process"), files.lock(tmp_path, 0):
        pass
    letting_go = threading.Timer(0.5, lambda: first.__exit__(None, None, None))
    letting_go.start()
    with files.lock(tmp_path, *patience):
        pass
    letting_go.join()


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (OSError(28, "No space left on device"), CannotWrite),
        (SafetensorError("Error while serializing: I/O error: No space left"), CannotWrite),
        (SafetensorError("Error while serializing: unknown dtype"), UserError),
    ],
)
def test_a_disk_is_to_blame_for_what_the_disk_does(problem, kind, tmp_path):
    """What is no fault of a trial leaves it to be continued; what would happen again does not."""

    def fill(beside):
        raise problem

    with pytest.raises(UserError, match="cannot write") as raised:
        files.write(tmp_path / "x", fill)
    assert type(raised.value) is kind
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_told(number, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.fcntl, "flock", refuse)
    with pytest.raises(CannotWrite, match="its file system has no flock"), files.lock(tmp_path):
        pass


def test_who_holds_a_folder_notices_that_it_was_replaced(tmp_path):
    folder = tmp_path / "trial"
    with files.lock(folder) as held:
        held.check()
        folder.rename(tmp_path / "elsewhere")
        with pytest.raises(CannotWrite, match="deleted or moved"):
            held.check()
        with files.lock(folder) as second:
            second.check()
            with pytest.raises(CannotWrite, match="deleted or moved"):
                held.check()


def test_who_waits_for_a_folder_that_is_replaced_gets_the_new_one(tmp_path):
    folder = tmp_path / "trial"
    first = files.lock(folder)
    first.__enter__()

    def replace():
        folder.rename(tmp_path / "old")
        first.__exit__(None, None, None)

    replacing = threading.Timer(0.3, replace)
    replacing.start()
    with files.lock(folder, patience=20) as held:
        held.check()
    replacing.join()
