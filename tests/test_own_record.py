"""The user's own record of code: what is noted, where, and what a damaged one counts for."""

import contextlib
import importlib
import json
import stat

import pytest

from fedgps_ray.errors import UserError
from fedgps_ray.experiment import resolve
from fedgps_ray.references import give_object, give_own, is_noted, own, own_files, read


@pytest.fixture
def found(tmp_path):
    (tmp_path / "net.py").write_text("class Net: pass\n")
    return read("net.py:Net", "model", tmp_path)


def test_code_that_the_user_names_is_noted_with_its_place(found, own_state, tmp_path):
    assert own_files(found.code) == []
    give_own(found, tmp_path / "net.py")
    assert own_files(found.code) == [tmp_path / "net.py"]
    other = read("net.py:Other", "model", tmp_path)
    assert not is_noted(other.code)
    (entry,) = json.loads((own_state / "own_code.json").read_text())["code"]
    assert entry == found.code.table | {"file": str(tmp_path / "net.py")}


def test_only_the_user_can_read_it(found, tmp_path, monkeypatch):
    monkeypatch.delenv("FEDGPS_RAY_STATE")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    give_own(found, tmp_path / "net.py")
    folder = tmp_path / "state" / "fedgps-ray"
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "own_code.json")]
    assert modes == [0o700, 0o600]


def test_it_is_in_the_home_of_the_user_and_never_relative(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDGPS_RAY_STATE", "here")
    monkeypatch.setenv("XDG_STATE_HOME", "there")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert own._folder() == tmp_path / ".local" / "state" / "fedgps-ray"


@pytest.mark.parametrize("text", ["", "[]", '{"code": 3}', '{"code": [3]}', "\x00", "[" * 99_999])
def test_a_damaged_record_counts_as_empty_and_is_written_anew(found, own_state, tmp_path, text):
    (own_state / "own_code.json").write_text(text)
    assert not is_noted(found.code)
    give_own(found, tmp_path / "net.py")
    assert is_noted(found.code)


def test_a_record_that_cannot_be_written_is_no_error(found, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("FEDGPS_RAY_STATE", str(tmp_path / "file" / "state"))
    give_own(found, tmp_path / "net.py")
    assert not is_noted(found.code)


def test_the_oldest_entries_are_forgotten(own_state, tmp_path, monkeypatch):
    monkeypatch.setattr(own, "MOST", 2)
    codes = []
    for number in range(3):
        (tmp_path / "net.py").write_text(f"Net = {number}\n")
        codes.append(give_own(read("net.py:Net", "model", tmp_path), tmp_path / "net.py"))
    assert [is_noted(code) for code in codes] == [False, True, True]


def test_a_class_given_in_python_is_noted_with_its_file(tmp_path, monkeypatch):
    (tmp_path / "mynet.py").write_text("class Net: pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    code = give_object(importlib.import_module("mynet").Net, "model")
    assert own_files(code) == [tmp_path / "mynet.py"]
    assert code.target == "mynet.py:Net"


@pytest.mark.parametrize("kind", ["method", "model", "dataset"])
def test_what_a_command_names_is_noted(tmp_path, kind):
    (tmp_path / "own.py").write_text("x = 3\n")
    with contextlib.suppress(UserError):  # it is none, which is found out when it is imported
        resolve({kind: "own.py:x"}, tmp_path)
    assert own_files(read("own.py:x", kind, tmp_path).code) == [tmp_path / "own.py"]
