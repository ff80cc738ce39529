"""What the doctor finds wrong, and what it tells to type."""

import pytest

from fedgps_ray.tools import doctor
from fedgps_ray.tools.doctor import examine


@pytest.fixture
def findings(tmp_path, monkeypatch):
    """Examine this machine without Ray: findings(out)["memory"]."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    return lambda **given: {
        found.what: found
        for found in examine(**{"out": tmp_path, "data_dir": None, "start_ray": False, **given})
    }


def test_what_is_here(findings):
    found = findings()
    assert found["ray"].verdict == "ok"
    assert found["CPU cores"].found.isdigit()
    assert "GB free" in found["memory"].found
    assert {"torch", "pandas", "cifar10", "GPU", "open files"} <= set(found)
    assert all(f.advice for f in found.values() if f.verdict != "ok")


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
