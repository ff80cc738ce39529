"""What a method must have, where defaults come from, and how methods are found."""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import pytest

from fedgps_ray import methods
from fedgps_ray.errors import UserError
from fedgps_ray.methods import METHODS, FedAvg, about, collect, title
from fedgps_ray.methods.base import About, BaseMethod, Work, is_method, missing
from fedgps_ray.spec import trial_spec
from fedgps_ray.tensors import Params, mean
from fedgps_ray.titles import TITLES
from fedgps_ray.training.gradients import backprop, cross_entropy
from fedgps_ray.training.local import Sgd, train

PAGE = (Path(__file__).parents[2] / "docs" / "adding-a-method.md").read_text()
TABLE = PAGE.partition("| member |")[2].partition("\n\n")[0]
DOCUMENTED = {
    name: line.endswith("| must be written |")
    for line in TABLE.splitlines()
    for name in re.findall(r"`(\w+)(?:\(.*?\))?`", line.split("|")[1] if "|" in line else "")
}


class Models(NamedTuple):
    """A state without params."""

    newest: Params


@dataclass(frozen=True)
class OnItsOwn:
    """The mean of the models, written without any class of the package."""

    optimizer: ClassVar = Sgd()
    presets: ClassVar = {}
    overrides: ClassVar = {}
    needs_surrogate: ClassVar = False

    def num_outputs(self, num_classes):
        return num_classes

    def init(self, params, cohort):
        return Models(params)

    def send(self, state, turn):
        return [state.newest] * len(turn.clients)

    def work(self, local, message, memory):
        done = train(local, message, backprop(cross_entropy))
        return Work(done.params, None, done.loss)

    def merge(self, state, replies):
        shares = [float(reply.client.num_examples) for reply in replies]
        both = zip(*(reply.upload for reply in replies), strict=True)
        return Models(Params(*(mean(vectors, shares) for vectors in both)))

    def deploy(self, state, turn, ask):
        return state.newest

    def global_params(self, state):
        return state.newest

    def measure(self, state, turn, ask):
        return {}

    def fade(self, memory):
        return memory


def test_a_method_needs_no_parent(quick):
    ours, fedavg = (
        quick(method, precision="float64")[-1].snapshot.state for method in (OnItsOwn(), FedAvg())
    )
    difference = (ours.newest.weights - fedavg.params.weights).abs().max()
    assert fedavg.params.weights.abs().max() > 0
    assert difference < 1e-12


def test_the_interface_is_what_the_documentation_lists():
    assert sorted(missing(object())) == sorted([*DOCUMENTED, "__dataclass_fields__"])
    assert missing(OnItsOwn) == missing(OnItsOwn()) == []
    assert is_method(OnItsOwn())
    assert not is_method(OnItsOwn)  # a class is not yet a method


@pytest.mark.parametrize("member", DOCUMENTED)
def test_without_any_one_member_it_is_refused(member):
    left_out = {member, "__dict__", "__weakref__"}
    parts = {name: value for name, value in vars(OnItsOwn).items() if name not in left_out}
    lacking = type("Lacking", (), parts)()
    assert missing(lacking) == [member]
    with pytest.raises(UserError, match="must be a name or a table"):
        trial_spec(method=lacking)


def test_the_base_class_lacks_what_must_be_written():
    assert {name for name, must in DOCUMENTED.items() if must} == BaseMethod.__abstractmethods__
    assert len(BaseMethod.__abstractmethods__) == 4
    assert missing(BaseMethod) == ["__dataclass_fields__"]
    with pytest.raises(TypeError, match="abstract"):
        BaseMethod()


@pytest.mark.parametrize("kind", METHODS.values())
def test_every_built_in_method_has_the_interface(kind):
    assert missing(kind) == []
    assert isinstance(hash(kind()), int)


# --- where methods are found --------------------------------------------------------------------

NAMED = """
from typing import ClassVar, NamedTuple
from fedgps_ray.methods.fedavg import FedAvg

class Piece(NamedTuple):
    name: str

class Unnamed(FedAvg):
    pass

class Named(FedAvg):
    name: ClassVar[str] = "{name}"
"""


@pytest.fixture
def added(tmp_path, monkeypatch):
    """Add files to the folder of methods and return the methods that are found then."""

    def add(**names):
        for file, name in names.items():
            (tmp_path / f"{file}.py").write_text(NAMED.format(name=name))
        monkeypatch.setattr(methods, "__path__", [*methods.__path__, str(tmp_path)])
        return collect()

    yield add
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(f"{methods.__name__}.{path.stem}", None)
        vars(methods).pop(path.stem, None)


def test_a_class_with_a_name_of_its_own_is_a_method(added):
    found = added(zebra="zebra", ant="ant")
    assert [*found][: len(TITLES)] == [*TITLES]
    assert [name for name in found if name not in METHODS] == ["ant", "zebra"]
    assert [*found][len(TITLES) :] == sorted({*found} - {*TITLES})
    assert found["ant"].__name__ == "Named"


def test_two_methods_with_one_name_are_refused(added):
    with pytest.raises(ValueError, match="two methods are called fedprox"):
        added(another="fedprox")


def test_a_title_is_not_inherited_and_about_is_optional(added):
    kind = added(bee="bee")["bee"]
    assert title(kind) == "bee"
    assert title(METHODS["fedgps_cf"]) == "FedGPS-CF"
    assert title(OnItsOwn) == "OnItsOwn"
    assert about(OnItsOwn) == About()
    assert about(METHODS["fedavg"]).up == "M"
