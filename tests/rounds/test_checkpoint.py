"""Checkpoints: what comes back, what is written again, and what happens when files are damaged."""

import json
import pickle
from typing import NamedTuple

import pytest
import torch
from safetensors.torch import load_file

from fedgps_ray.methods import fedavg, fedgps, fedgps_cf
from fedgps_ray.results import files
from fedgps_ray.rounds.checkpoint import Saver, has_same_models, load
from fedgps_ray.rounds.loop import Snapshot
from fedgps_ray.rounds.pool import Kept
from fedgps_ray.tensors import Params


class Foreign(NamedTuple):
    value: int


def vector(*values):
    return torch.tensor(values, dtype=torch.float32)


def state(number):
    params = Params(vector(number, 0.1), vector())
    prototypes = fedgps.Prototypes(vector(number), torch.tensor([True, False]))
    return fedgps.State(params, vector(number, 2), prototypes, None)


def memory(number):
    return fedgps.Memory(number, 0.1 + number, vector(7, number))


def snapshot(rounds_done, kept=None):
    return Snapshot(rounds_done, state(rounds_done), kept or {})


def fetched(handle):
    return handle


def saver(folder):
    return Saver(folder, fetched)


def loaded(folder):
    return load(folder, list)


def saved_and_loaded(folder, value, kept=None):
    saver(folder).save(Snapshot(1, value, kept or {}))
    read, problems = loaded(folder)
    assert problems == []
    return read


def same(left, right):
    """Equal in type, structure and every bit."""
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        alike = left.dtype == right.dtype and left.shape == right.shape
        return alike and torch.equal(
            *(t.flatten().contiguous().view(torch.uint8) for t in (left, right))
        )
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, tuple | list):
        return len(left) == len(right) and all(map(same, left, right))
    return left == right


def names(folder, pattern="*"):
    return sorted(path.name for path in folder.glob(pattern))


def cut(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


# --- what comes back ----------------------------------------------------------------------------


def test_a_trial_comes_back_as_it_was(tmp_path):
    kept = {3: Kept(memory(1), vector(1, 2)), 0: Kept(None, vector(5)), 2: Kept(None, None)}
    read = saved_and_loaded(tmp_path, state(4), kept)
    assert read.rounds_done == 1
    assert same(read.state, state(4))
    assert same(read.kept, kept)


@pytest.mark.parametrize(
    "value",
    [
        None,
        0.1 + 0.2,
        2**62,
        "text",
        True,
        (),
        ((1, [2, (3.5, None)]), {"a": (4,), "tensor": [5], "type": {"fields": 6}}),
        {"tensor": torch.arange(3), "type": torch.tensor(2.5, dtype=torch.float64)},
        (Params(torch.zeros(0), torch.ones(2, 3).bfloat16()),) * 2,
        fedavg.State(Params(torch.tensor([True]), vector(float("nan"), float("inf"), -0.0))),
        torch.arange(6).view(2, 3).T,
    ],
    ids=str,
)
def test_nested_values_come_back(tmp_path, value):
    assert same(saved_and_loaded(tmp_path, value).state, value)


def test_numbers_come_back_to_the_last_bit(tmp_path):
    values = torch.randn(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    floats = values.tolist()
    read = saved_and_loaded(tmp_path, (values, floats)).state
    assert same(read, (values, floats))


def test_a_value_that_json_cannot_hold_is_an_error_at_once(tmp_path):
    with pytest.raises(TypeError, match="cannot hold a set"):
        saver(tmp_path).save(Snapshot(1, {"a": {1, 2}}, {}))
    assert names(tmp_path) == []


def test_keys_that_json_would_turn_into_text_are_refused(tmp_path):
    with pytest.raises(TypeError, match="keys"):
        saver(tmp_path).save(Snapshot(1, {3: "three"}, {}))


def test_no_checkpoint_is_no_problem(tmp_path):
    assert loaded(tmp_path / "nothing") == (None, [])


def test_values_go_through_fetch_and_store(tmp_path):
    Saver(tmp_path, lambda handle: handle["value"]).save(
        Snapshot(1, None, {0: Kept({"value": vector(1)}, None)})
    )
    read, _ = load(tmp_path, lambda values: [None if v is None else {"value": v} for v in values])
    assert same(read.kept, {0: Kept({"value": vector(1)}, None)})


# --- what is written ----------------------------------------------------------------------------


def tensors_on_disk(folder):
    return {path.name: load_file(path) for path in folder.glob("*.safetensors")}


def test_a_tensor_that_several_hold_is_stored_once_and_shared_again(tmp_path):
    received = vector(*range(100))
    kept = {k: Kept(fedgps_cf.Memory(0, 0.5, vector(k), received, None), None) for k in range(4)}
    read = saved_and_loaded(tmp_path, fedavg.State(Params(received, vector())), kept)
    sizes = [t.numel() for held in tensors_on_disk(tmp_path).values() for t in held.values()]
    assert sorted(sizes) == [0, 1, 1, 1, 1, 100]
    addresses = {read.kept[k].memory.received.data_ptr() for k in range(4)}
    assert addresses == {read.state.params.weights.data_ptr()}


def test_views_of_one_memory_are_told_apart(tmp_path):
    square = torch.arange(4.0).view(2, 2)
    value = (square, square.T, square.view(4), square[0], square[:, 1])
    assert same(saved_and_loaded(tmp_path, value).state, value)


def test_values_that_live_only_while_they_are_fetched(tmp_path):
    # each is freed before the next is made, often at the same address
    kept = {k: Kept(k, None) for k in range(20)}
    Saver(tmp_path, lambda k: torch.full((2, 1000), float(k)).T).save(Snapshot(1, None, kept))
    read, _ = loaded(tmp_path)
    assert [float(read.kept[k].memory[0, 0]) for k in range(20)] == list(range(20))


def test_what_did_not_change_is_not_written_again(tmp_path):
    writer = saver(tmp_path)
    kept = {0: Kept(memory(0), vector(1)), 1: Kept(memory(1), vector(2))}
    writer.save(snapshot(1, kept))
    first = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("client-*")}
    assert set(first) == {"client-0-000001.safetensors", "client-1-000001.safetensors"}
    kept = {**kept, 1: Kept(memory(9), kept[1].velocity)}
    writer.save(snapshot(2, kept))
    second = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("client-*")}
    assert set(second) == {*first, "client-1-000002.safetensors"}
    assert {name: second[name] for name in first} == first
    read, problems = loaded(tmp_path)
    assert problems == []
    assert same(read.kept, kept)
    assert same(read.state, state(2))
    fresh = load_file(tmp_path / "client-1-000002.safetensors")
    assert same(list(fresh.values()), [memory(9).delta])


def test_two_checkpoints_are_kept_and_no_orphans(tmp_path):
    writer = saver(tmp_path)
    old = Kept(memory(0), None)
    for number in range(1, 6):
        writer.save(snapshot(number, {0: old, 1: Kept(memory(number), None)}))
    assert names(tmp_path) == [
        "client-0-000001.safetensors",
        "client-1-000004.safetensors",
        "client-1-000005.safetensors",
        "round-000004.json",
        "round-000005.json",
        "state-000004.safetensors",
        "state-000005.safetensors",
    ]
    needed = [json.loads((tmp_path / name).read_text())["files"] for name in names(tmp_path, "r*")]
    assert sorted(set().union(*needed)) == names(tmp_path, "*.safetensors")


def test_the_newest_checkpoint_is_kept_after_a_million_rounds(tmp_path):
    writer = saver(tmp_path)
    for number in (999_998, 999_999, 1_000_000):
        writer.save(snapshot(number))
    assert names(tmp_path, "*.json") == ["round-1000000.json", "round-999999.json"]
    assert loaded(tmp_path)[0].rounds_done == 1_000_000


def test_a_new_process_takes_over_the_folder(tmp_path):
    saver(tmp_path).save(snapshot(1, {0: Kept(memory(0), None)}))
    read, _ = loaded(tmp_path)
    writer = saver(tmp_path)
    for number in (2, 3):
        writer.save(snapshot(number, read.kept))
    again, problems = loaded(tmp_path)
    assert problems == []
    assert same(again, snapshot(3, {0: Kept(memory(0), None)}))
    assert len(names(tmp_path, "*.json")) == 2


def test_nothing_is_pickled(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("pickled")

    for module in (pickle, torch):
        for name in {"dump", "dumps", "load", "loads", "save"} & set(dir(module)):
            monkeypatch.setattr(module, name, refuse)
    kept = {0: Kept(memory(0), vector(1))}
    assert same(saved_and_loaded(tmp_path, state(1), kept), snapshot(1, kept))
    assert {path.suffix for path in tmp_path.iterdir()} == {".json", ".safetensors"}


def test_a_stop_while_writing_leaves_the_checkpoint_before(tmp_path, monkeypatch):
    writer = saver(tmp_path)
    writer.save(snapshot(1))

    def stop(path, content):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(files, "write_json", stop)
        with pytest.raises(KeyboardInterrupt):
            writer.save(snapshot(2))
    read, problems = loaded(tmp_path)
    assert problems == []
    assert same(read, snapshot(1))
    writer.save(snapshot(3))
    assert same(loaded(tmp_path)[0], snapshot(3))
    assert names(tmp_path, "*.safetensors") == [
        "state-000001.safetensors",
        "state-000003.safetensors",
    ]


# --- damage -------------------------------------------------------------------------------------


def two_checkpoints(folder):
    writer = saver(folder)
    for number in (1, 2):
        writer.save(snapshot(number, {0: Kept(memory(number), None)}))


def edit(path, change):
    manifest = json.loads(path.read_text())
    change(manifest)
    files.write_json(path, manifest)


NEWEST = {
    "tensor file cut": lambda f: cut(f / "state-000002.safetensors"),
    "tensor file empty": lambda f: (f / "client-0-000002.safetensors").write_bytes(b""),
    "tensor file changed": lambda f: (f / "state-000002.safetensors").write_bytes(
        (f / "state-000001.safetensors").read_bytes()
    ),
    "tensor file missing": lambda f: (f / "client-0-000002.safetensors").unlink(),
    "manifest cut": lambda f: cut(f / "round-000002.json"),
    "manifest empty": lambda f: (f / "round-000002.json").write_text(""),
    "manifest no text": lambda f: (f / "round-000002.json").write_bytes(b"\xff\x00"),
    "manifest a list": lambda f: (f / "round-000002.json").write_text("[]"),
    "manifest without state": lambda f: edit(f / "round-000002.json", lambda m: m.pop("state")),
    "manifest without files": lambda f: edit(f / "round-000002.json", lambda m: m["files"].clear()),
    "unknown part": lambda f: edit(f / "round-000002.json", lambda m: m["kept"].update({"0/x": 1})),
}


@pytest.mark.parametrize("harm", NEWEST)
def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(tmp_path, harm):
    two_checkpoints(tmp_path)
    NEWEST[harm](tmp_path)
    read, problems = loaded(tmp_path)
    assert same(read, snapshot(1, {0: Kept(memory(1), None)}))
    assert len(problems) == 1
    assert problems[0].startswith("checkpoint round-000002.json is damaged (")
    assert loaded(tmp_path)[1] == []  # told once


def test_both_damaged_means_none_and_both_are_told(tmp_path):
    two_checkpoints(tmp_path)
    for name in names(tmp_path, "round-*.json"):
        cut(tmp_path / name)
    read, problems = loaded(tmp_path)
    assert read is None
    assert [problem.split()[1] for problem in problems] == [
        "round-000002.json",
        "round-000001.json",
    ]


def test_after_a_fall_back_the_round_is_saved_again(tmp_path):
    two_checkpoints(tmp_path)
    cut(tmp_path / "state-000002.safetensors")
    loaded(tmp_path)
    saver(tmp_path).save(snapshot(2))
    read, problems = loaded(tmp_path)
    assert problems == []
    assert same(read, snapshot(2))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("os:stat_result", "outside the package"),
        (f"{__name__}:Foreign", "outside the package"),
        ("fedgps_rayx.spec:Foreign", "outside the package"),
        ("subprocess:Popen", "outside the package"),
        ("fedgps_ray.spec:TrialSpec", "not a named tuple"),
        ("fedgps_ray.rounds.trial:run_trial", "not a named tuple"),
        ("fedgps_ray.results.files:os", "not a named tuple"),
        ("fedgps_ray.methods.fedavg:Gone", "no attribute 'Gone'"),
        ("fedgps_ray.gone:State", "No module named"),
    ],
)
def test_a_manifest_can_name_nothing_but_named_tuples_of_the_package(tmp_path, name, reason):
    two_checkpoints(tmp_path)
    edit(tmp_path / "round-000002.json", lambda m: m["state"].update(type=name))
    read, problems = loaded(tmp_path)
    assert read.rounds_done == 1
    assert reason in problems[0]


def test_the_test_of_foreign_types_names_one_that_would_load(tmp_path):
    with pytest.raises(TypeError, match="holds a Foreign"):
        saver(tmp_path).save(Snapshot(1, Foreign(3), {}))
    saver(tmp_path).save(Snapshot(1, fedgps.State(3, None, None, None), {}))
    edit(
        tmp_path / "round-000001.json",
        lambda m: m["state"].update(type=f"{__name__}:Foreign", fields=[3]),
    )
    read, problems = loaded(tmp_path)
    assert read is None
    assert "outside the package" in problems[0]


def test_a_wrong_number_of_fields_is_damage(tmp_path):
    two_checkpoints(tmp_path)
    edit(tmp_path / "round-000002.json", lambda m: m["state"]["fields"].append(1))
    read, problems = loaded(tmp_path)
    assert read.rounds_done == 1
    assert len(problems) == 1


@pytest.mark.parametrize("model", [vector(1, 2, 3), vector(1, 2).double()], ids=["shape", "dtype"])
def test_a_checkpoint_of_another_model_is_damaged(tmp_path, model):
    fresh = fedgps.State(Params(vector(0, 0), vector()), None, None, None)
    saver(tmp_path).save(snapshot(1))
    saver(tmp_path).save(Snapshot(2, state(2)._replace(params=Params(model, vector())), {}))
    read, problems = load(tmp_path, list, has_model=lambda own: has_same_models(own, fresh))
    assert read.rounds_done == 1
    assert problems == ["checkpoint round-000002.json is damaged (it holds another model)"]
    assert names(tmp_path, "*.damaged") == ["round-000002.damaged"]
