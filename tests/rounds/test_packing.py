"""Skeletons: every kind of value a method may hold comes back, everything else is refused."""

import json
from collections import namedtuple
from typing import NamedTuple

import pytest
import torch

from fedgps_ray.methods import fedgps, fedgps_cf
from fedgps_ray.rounds.packing import pack, unpack
from fedgps_ray.tensors import Params


class Foreign(NamedTuple):
    value: int


def there_and_back(value):
    """Pack, write as JSON, read, unpack: the tensors stay in a list beside it."""
    tensors = []

    def place(tensor):
        tensors.append(tensor)
        return len(tensors) - 1

    skeleton = json.loads(json.dumps(pack(value, place)))
    return unpack(skeleton, tensors.__getitem__), tensors


PARAMS = Params(torch.tensor([1.0, 2.0]), torch.tensor([3.0]))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -7,
        0.1,
        float("inf"),
        "text",
        "",
        [],
        (),
        {},
        [None],
        (1, [2.5, (False, "x")], {"a": (None,), "b": []}),
        {"type": "not a type", "fields": [1]},
        {"tensor": [1, 2]},
        {"tuple": (1,), "list": [2], "dict": {"dict": 3}},
    ],
)
def test_plain_values_come_back(value):
    back, tensors = there_and_back(value)
    assert back == value
    assert type(back) is type(value)
    assert tensors == []


def test_named_tuples_come_back_inside_each_other():
    prototypes = fedgps.Prototypes(torch.zeros(2, 3), torch.tensor([True, False]))
    state = fedgps.State(PARAMS, None, prototypes, PARAMS)
    back, tensors = there_and_back([state, {"memory": fedgps_cf.Memory(3, 0.5, None, *PARAMS)}])
    unpacked, memory = back[0], back[1]["memory"]
    assert type(unpacked) is fedgps.State
    assert type(unpacked.params) is type(unpacked.initial) is Params
    assert type(unpacked.prototypes) is fedgps.Prototypes
    assert type(memory) is fedgps_cf.Memory
    assert (memory.round, memory.share, memory.delta) == (3, 0.5, None)
    assert unpacked.params.weights is PARAMS.weights, "a tensor is what its place stands for"
    assert len(tensors) == 8  # two Params of two, two prototypes, two in the memory


@pytest.mark.parametrize("value", [{1, 2}, b"bytes", 1j, object(), range(3), torch.float32])
def test_other_values_are_refused_by_their_type(value):
    with pytest.raises(TypeError, match=f"cannot hold a {type(value).__name__}"):
        pack([{"inner": (value,)}], lambda tensor: 0)


def test_dict_with_other_keys_is_refused():
    with pytest.raises(TypeError, match="keys are not text"):
        pack({1: 2}, lambda tensor: 0)


def test_type_outside_the_package_is_refused():
    skeleton = {"type": f"{__name__}:Foreign", "fields": [1]}
    with pytest.raises(TypeError, match="own file"):
        pack(Foreign(1), lambda tensor: 0)
    with pytest.raises(ValueError, match="outside the package"):
        unpack(skeleton, lambda place: None)


@pytest.mark.parametrize(
    "name",
    [
        "os:system",
        "subprocess:Popen",
        "fedgps_ray:anything",
        "fedgps_raymond.tensors:Params",
        "builtins:tuple",
    ],
)
def test_skeleton_cannot_name_what_is_not_ours(name):
    with pytest.raises(ValueError, match="outside the package"):
        unpack({"type": name, "fields": ["true"]}, lambda place: None)


@pytest.mark.parametrize(
    "name",
    [
        "fedgps_ray.cli:main",
        "fedgps_ray.results.files:os",
        "fedgps_ray.methods.fedavg:FedAvg",
        "fedgps_ray.rounds.worker:Worker",
    ],
)
def test_skeleton_cannot_call_what_is_not_a_named_tuple(name):
    with pytest.raises(ValueError, match="not a named tuple"):
        unpack({"type": name, "fields": []}, lambda place: None)


def test_named_tuple_that_another_version_does_not_have_is_an_error():
    with pytest.raises(AttributeError, match="Gone"):
        unpack({"type": "fedgps_ray.tensors:Gone", "fields": []}, lambda place: None)


def test_named_tuple_that_lies_about_its_home_is_refused():
    liar = namedtuple("Liar", ["value"])
    liar.__module__ = "fedgps_ray.tensors"
    with pytest.raises(TypeError, match="Liar"):
        there_and_back(liar(1))
