"""Results folders as runs would leave them, and a browser if there is one."""

import importlib.util
from pathlib import Path

import pytest


def _load(name):
    """Import a file of this folder, which is no package."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def fabricate():
    return _load("fabricate")


@pytest.fixture(scope="session")
def trial_maker(fabricate):
    return fabricate.make_trial


@pytest.fixture(scope="session")
def folder_maker(fabricate):
    return fabricate.make_folder
