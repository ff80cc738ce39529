"""The index of a results folder says what reading everything says, or is not used."""

import json
import os
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedgps_ray.errors import UserError
from fedgps_ray.results import index as indexes
from fedgps_ray.results.index import FILE, Index, in_short
from fedgps_ray.results.read import read_trial
from fedgps_ray.tools.fabricate import Size, fabricate_finished

TRIALS = 24


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "sweep"
    fabricate_finished(folder, Size(trials=TRIALS, rounds=1))
    return folder


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Let an index of few trials be written, and of files that are new."""
    monkeypatch.setattr(indexes, "WORTH", 1)
    monkeypatch.setattr(indexes, "SETTLED", -1.0)


def told(folder, read):
    """Return what is known of each trial, or why nothing is."""
    answers = {}
    for trial in sorted((folder / "trials").iterdir()):
        try:
            answers[trial.name] = read(trial)
        except UserError as problem:
            answers[trial.name] = str(problem)
    return answers


def by_index(folder):
    index = Index(folder)
    answers = told(folder, index.gist)
    index.save()
    return answers


def by_reading(folder):
    return told(folder, lambda trial: in_short(trial, read_trial(trial)))


def reads(folder, monkeypatch):
    """Return the trials that a new index has to read."""
    seen = []
    monkeypatch.setattr(indexes, "read_trial", lambda t: (seen.append(t.name), read_trial(t))[1])
    by_index(folder)
    return seen


def change(folder, what, trial, spare):
    """Do something to a folder that its index does not know of."""
    path = trial / "trial.json"
    if what == "index":
        (folder / FILE).write_bytes((folder / FILE).read_bytes().replace(b"finished", b"diverged"))
    elif what == "add":
        shutil.copytree(spare, folder / "trials" / spare.name, dirs_exist_ok=True)
    elif path.is_file():
        CHANGES[what](path)


def fail(path):
    info = json.loads(path.read_text()) | {"status": "failed", "error": "no room"}
    path.write_text(json.dumps({key: value for key, value in info.items() if key != "sha256"}))


def damage(path):
    path.write_text(path.read_text().replace("rounds_done", "rounds_d0ne", 1))


def link(path):
    target = path.parents[2] / f"{path.parent.name}.json"
    path.rename(target)
    path.symlink_to(target)


CHANGES = {
    "index": None,
    "add": None,
    "fail": fail,
    "damage": damage,
    "link": link,
    "delete": lambda path: path.unlink(),
    "remove folder": lambda path: shutil.rmtree(path.parent),
    "touch": os.utime,
}
steps = st.lists(
    st.tuples(st.sampled_from(sorted(CHANGES)), st.integers(0, TRIALS - 2)), max_size=5
)


@given(steps)
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_the_index_says_what_reading_everything_says(made, tmp_path_factory, steps):
    folder = tmp_path_factory.mktemp("copy")
    (folder / "trials").mkdir()
    *originals, spare = sorted((made / "trials").iterdir())
    for trial in originals:
        (folder / "trials" / trial.name).mkdir()
        shutil.copy(trial / "trial.json", folder / "trials" / trial.name)
    assert by_index(folder) == by_reading(folder)
    for what, number in steps:
        change(folder, what, folder / "trials" / originals[number].name, spare)
        assert by_index(folder) == by_reading(folder)


def test_only_what_changed_is_read_again(made, monkeypatch):
    by_index(made)
    first = sorted((made / "trials").iterdir())[0]
    assert reads(made, monkeypatch) == []
    os.utime(first / "trial.json")
    assert reads(made, monkeypatch) == [first.name]


def entries(text):
    return sorted(text.splitlines()[1:])


def flip(text):
    return text.replace("0.", "0.9", 1)


def older(text):
    head, _, rest = text.partition("\n")
    return json.dumps({**json.loads(head), "version": 0}) + "\n" + rest


@pytest.mark.parametrize("harm", [flip, older, lambda text: text[:-40], lambda text: "\x00" * 80])
def test_a_damaged_index_is_made_again(made, monkeypatch, harm):
    answers = by_index(made)
    whole = (made / FILE).read_text()
    (made / FILE).write_text(harm(whole))
    assert by_index(made) == answers == by_reading(made)
    assert len(reads(made, monkeypatch)) == 0
    assert entries((made / FILE).read_text()) == entries(whole)


def sealed(lines):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return json.dumps({"version": 1, "sha256": indexes._sha256(text)}) + "\n" + text


@pytest.mark.parametrize(
    "changes",
    [
        {"status": "splendid"},
        {"error": ["no text"]},
        {"is_sealed": "yes"},
        {"summary": {"rounds_done": "many"}},
        {"summary": {}},
        {"columns": {"trial_id": "0" * 12}},
    ],
)
def test_an_index_with_values_that_no_trial_may_have_is_not_used(made, changes):
    answers = by_index(made)
    lines = [json.loads(line) for line in (made / FILE).read_text().splitlines()[1:]]
    lines[0][2] |= changes
    (made / FILE).write_text(sealed(lines))
    assert by_index(made) == answers


def test_control_characters_of_a_forged_index_do_not_come_in(made):
    answers = by_index(made)
    lines = [json.loads(line) for line in (made / FILE).read_text().splitlines()[1:]]
    lines[0][2]["columns"]["method"] = "fed\x1b[2Javg"
    (made / FILE).write_text(sealed(lines))
    assert by_index(made) == answers


def test_an_index_behind_a_link_is_neither_read_nor_written_to(made, tmp_path, monkeypatch):
    by_index(made)
    (made / FILE).rename(tmp_path / "theirs")
    theirs = (tmp_path / "theirs").read_bytes()
    (made / FILE).symlink_to(tmp_path / "theirs")
    assert len(reads(made, monkeypatch)) == TRIALS
    assert not (made / FILE).is_symlink()
    assert (tmp_path / "theirs").read_bytes() == theirs


def test_a_file_that_has_just_changed_is_not_indexed(made, monkeypatch):
    monkeypatch.setattr(indexes, "SETTLED", 60.0)
    (made / FILE).unlink(missing_ok=True)
    for trial in (made / "trials").iterdir():
        os.utime(trial / "trial.json")
    by_index(made)
    assert not (made / FILE).exists()


def test_a_folder_that_cannot_be_written_to_is_read_all_the_same(made, monkeypatch):
    def refused(*_, **__):
        raise UserError("cannot write")

    monkeypatch.setattr(indexes.files, "write", refused)
    (made / FILE).unlink(missing_ok=True)
    assert by_index(made) == by_reading(made)
    assert not (made / FILE).exists()
