"""Code imported by name."""

import gc

import pytest

from fedgps_ray.loading import load


def test_an_object_of_a_module_that_is_imported_for_it():
    assert load("fedgps_ray.units:percent") is load("fedgps_ray.units:percent")


@pytest.mark.parametrize("name", ["fedgps_ray.units:percent", "fedgps_ray.units:nothing"])
def test_garbage_is_collected_again_afterwards(name):
    try:
        load(name)
    except AttributeError:
        assert name.endswith("nothing")
    assert gc.isenabled()


def test_a_process_that_collects_none_is_left_so():
    gc.disable()
    try:
        load("fedgps_ray.units:percent")
        assert not gc.isenabled()
    finally:
        gc.enable()
