"""What the doctor finds wrong, and what it says to type."""

import sys

import pytest

from fedgps_ray.data import memory
from fedgps_ray.tools import doctor
from fedgps_ray.tools.doctor import examine


@pytest.fixture
def findings(tmp_path, monkeypatch):
    """Examine this machine without Ray: findings(out)["memory"]."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    return lambda **given: {
        finding.what: finding
        for finding in examine(**{"out": tmp_path, "data_dir": None, "start_ray": False, **given})
    }


def test_what_is_here(findings):
    seen = findings()
    assert seen["ray"].verdict == "ok"
    assert seen["CPU cores"].found.isdigit()
    assert "GB free" in seen["memory"].found
    assert {"torch", "pandas", "cifar10", "GPU", "open files"} <= set(seen)
    assert all(f.advice for f in seen.values() if f.verdict != "ok")


def meminfo(tmp_path, text):
    path = tmp_path / "meminfo"
    path.write_text(text)
    return path


@pytest.mark.parametrize("text", [None, "MemTotal: 1 kB\n"])
def test_memory_where_the_system_does_not_say_what_is_free(text, findings, monkeypatch, tmp_path):
    absent = tmp_path / "absent"
    monkeypatch.setattr(memory, "MEMINFO", meminfo(tmp_path, text) if text else absent)
    monkeypatch.setattr(memory, "CONTAINER_LIMIT", absent)
    monkeypatch.setattr(doctor, "SHARED_MEMORY", absent)
    pages = {"SC_PHYS_PAGES": 2_000_000, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(doctor.os, "sysconf", pages.__getitem__)
    assert findings()["memory"] == ("memory", "8.2 GB in total", "ok", "")


def test_too_little_memory(findings, monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "MEMINFO", meminfo(tmp_path, "MemAvailable:  1000000 kB\n"))
    assert findings()["memory"][1:3] == ("1.0 GB free", "problem")


def test_package_of_the_wrong_version(findings, monkeypatch):
    monkeypatch.setattr(doctor, "version", lambda name: "1.0.0")
    assert findings()["ray"][1:] == ("1.0.0", "problem", 'pip install "ray==2.60.0"')


def test_token_that_others_can_read(findings, tmp_path):
    token = tmp_path / ".ray" / "auth_token"
    token.parent.mkdir()
    token.write_text("secret")
    token.chmod(0o644)
    assert findings()["Ray's token"].advice == f"chmod 600 {token}"
    token.chmod(0o600)
    assert findings()["Ray's token"].verdict == "ok"


def test_open_door(findings, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert "anybody can run code" in findings()["Ray's token"].advice


def test_folder_with_too_long_a_name(findings, monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / ("x" * 60)))
    assert findings()["Ray's folder"].verdict == "problem"


def test_data_set_that_is_there(findings, tmp_path):
    assert findings()["svhn"].verdict == "note"
    (tmp_path / "train_32x32.mat").touch()
    assert findings(data_dir=tmp_path)["svhn"].verdict == "ok"


def test_full_disk(findings, monkeypatch):
    class Full:
        free = 1e8

    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda path: Full)
    assert findings()["disk for results"].verdict == "problem"


def test_a_package_that_cannot_be_imported_is_a_finding(findings, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "fedgps_ray.cluster.session", None)
    seen = findings(start_ray=True)
    assert (seen["GPU"].verdict, seen["Ray"].verdict) == ("problem", "problem")
    assert "cannot be imported" in seen["GPU"].found
