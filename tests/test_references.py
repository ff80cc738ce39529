import dataclasses
import inspect
import json
import pickle
import re
import shutil
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path
from types import ModuleType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from fedgps_ray import references
from fedgps_ray.errors import UserError
from fedgps_ray.methods.base import Reply
from fedgps_ray.references import Code, load, read, user_traceback
from fedgps_ray.tensors import Params, Update
from fedgps_ray.training.local import Client

NET = """
    import helper

    class Net:
        width = helper.WIDTH
"""


@pytest.fixture
def write(tmp_path):
    def write(files=None, **more):
        for name, text in {**(files or {}), **more}.items():
            path = tmp_path / f"{name}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return tmp_path

    return write


def package(folder):
    (folder / "__init__.py").touch()


def fails(reference, folder, known=()):
    with pytest.raises(UserError) as told:
        load(*read(reference, "model", folder, known))
    return str(told.value)


# --- what is read ---------------------------------------------------------------------------------


def test_a_file_is_known_by_its_name_and_the_content_of_all_it_imports(write):
    folder = write(net=NET, helper="WIDTH = 3", unused="x = 1")
    code, sources = read("net.py:Net", "model", folder)
    assert (code.name, code.target, code.package) == ("net.py:Net", "net.py:Net", None)
    assert sorted(sources) == ["helper.py", "net.py"]
    assert load(code, sources).width == 3


def test_where_a_file_lies_is_no_part_of_its_identity(write, tmp_path):
    folder = write({"one/net": NET, "one/helper": "WIDTH = 3"})
    shutil.copytree(folder / "one", folder / "another" / "place")
    package(folder)  # the folders above do not matter either
    package(folder / "another")
    first = read("one/net.py:Net", "model", folder)
    assert read(str(folder / "another/place/net.py:Net"), "model") == first
    assert read("net.py:Net", "model", folder / "one") == first
    assert str(tmp_path) not in json.dumps([dataclasses.asdict(first.code), first.sources])


@pytest.mark.parametrize("changed", ["net", "helper"])
def test_edited_code_is_other_code(write, changed):
    folder = write(net=NET, helper="WIDTH = 3")
    before = read("net.py:Net", "model", folder).code
    path = folder / f"{changed}.py"
    path.write_text(path.read_text() + "# edited\n")
    after = read("net.py:Net", "model", folder).code
    assert after.sha256 != before.sha256
    assert after.name == before.name


def test_line_endings_change_nothing(write):
    folder = write(net="class Net:\n    x = 1\n")
    before = read("net.py:Net", "model", folder)
    (folder / "net.py").write_bytes(b"class Net:\r\n    x = 1\r\n")
    assert read("net.py:Net", "model", folder) == before


def test_imports_are_followed_through_files_packages_and_functions(write):
    folder = write(
        net="""
            import parts.body as body
            from parts import head, tail

            class Net:
                seen = body.NAME, head.NAME, tail

                def late(self):
                    from deep.down import here
                    return here.NAME
        """,
        other="NAME = 'other'",
        files={
            "parts/__init__": "tail = 'tail'",
            "parts/body": "from .shared import NAME",
            "parts/head": "import other\nfrom . import shared\nNAME = other.NAME + shared.NAME",
            "parts/shared": "NAME = 'shared'",
            "parts/unused": "NAME = 'unused'",
            "deep/down/here": "from ...parts.shared import NAME",
        },
    )
    found = read("net.py:Net", "model", folder)
    assert sorted(found.sources) == [
        "deep/down/here.py",
        "net.py",
        "other.py",
        "parts/__init__.py",
        "parts/body.py",
        "parts/head.py",
        "parts/shared.py",
    ]
    net = load(*found)
    assert net.seen == ("shared", "othershared", "tail")
    assert net().late() == "shared"


def test_a_file_of_a_package_can_use_its_package(write):
    folder = write(
        {
            "mine/__init__": "from .methods.first import First",
            "mine/base": "ORIGIN = 'base'",
            "mine/methods/__init__": "",
            "mine/methods/first": """
                from mine.base import ORIGIN as absolute
                from ..base import ORIGIN as relative

                class First:
                    origins = absolute, relative
            """,
        }
    )
    found = read("mine/methods/first.py:First", "method", folder)
    assert found.code.name == "first.py:First"
    assert found.code.target == "mine/methods/first.py:First"
    assert len(found.sources) == 4
    assert load(*found).origins == ("base", "base")


def test_a_module_of_the_folder_is_kept_as_a_file_is(write):
    folder = write(
        {"mine/__init__": "", "mine/net": "import extra\nclass Net: x = extra.X"}, extra="X = 4"
    )
    found = read("mine.net:Net", "model", folder)
    assert found.code.name == "mine.net:Net"
    assert sorted(found.sources) == ["extra.py", "mine/__init__.py", "mine/net.py"]
    assert load(*found).x == 4


def test_a_module_on_the_path_without_a_package_is_kept_as_a_file_is(write, monkeypatch):
    folder = write({"mine/net": "class Net: pass"})
    monkeypatch.syspath_prepend(str(folder))
    assert read("mine.net:Net", "model").sources == {"net.py": "class Net: pass"}


def test_the_package_itself_is_never_taken_for_a_file_beside(write):
    folder = write(
        files={"fedgps_ray/__init__": "raise RuntimeError"},
        sys="raise RuntimeError",
        net="import sys\nfrom fedgps_ray.errors import UserError\nclass Net: error = UserError",
    )
    found = read("net.py:Net", "model", folder)
    assert sorted(found.sources) == ["net.py"]
    assert load(*found).error is UserError


def test_a_file_named_as_a_built_in_module_is_meant_only_with_a_dot(write):
    folder = write(
        net="import sys\nfrom . import sys as own\nclass Net: both = sys, own", sys="X = 1"
    )
    python, own = load(*read("net.py:Net", "model", folder)).both
    assert python is sys
    assert own.X == 1


def test_a_folder_of_data_does_not_hide_an_installed_package(write):
    folder = write(net="import numpy\nclass Net: numpy = numpy")
    (folder / "numpy").mkdir()
    (folder / "numpy" / "array.py").touch()
    found = read("net.py:Net", "model", folder)
    assert list(found.sources) == ["net.py"]
    assert load(*found).numpy.ndarray


def test_an_installed_package_is_known_by_version_and_file_and_is_not_imported():
    script = """
        import sys
        from fedgps_ray.references import read
        code, sources = read("torchvision.models:mobilenet_v3_small", "model")
        assert sources == {} and code.package == "torchvision" and "+" not in code.version
        assert len(code.sha256) == 64
        assert not {"torch", "ray", "torchvision"} & set(sys.modules)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True)


def test_names_within_names_and_the_standard_library():
    code, _ = read("collections:OrderedDict.fromkeys", "model")
    assert (code.package, code.version) == ("python", sys.version[:4].rstrip("."))
    assert load(code, {})("ab") == {"a": None, "b": None}


def test_the_package_s_own_modules_can_be_named():
    found = read("fedgps_ray.errors:unknown", "model")
    assert found.code.package == "fedgps-ray"
    assert load(*found) is sys.modules["fedgps_ray.errors"].unknown


def publish(folder, monkeypatch, line="mynet = published_net:Net [extra]", editable=False):
    """Install a package that publishes a model."""
    info = folder / "published_net-1.2.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: published-net\nVersion: 1.2+cpu\n")
    (info / "entry_points.txt").write_text(f"[fedgps_ray.models]\n{line}\n")
    (info / "top_level.txt").write_text("published_net\n")
    (info / "direct_url.json").write_text(json.dumps({"dir_info": {"editable": editable}}))
    (folder / "published_net.py").write_text("class Net: pass\n")
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "published_net", raising=False)


def test_an_entry_point_is_a_name_like_any_other(tmp_path, monkeypatch):
    publish(tmp_path, monkeypatch)
    assert references.published("model")["mynet"] == "published_net:Net"
    assert "mynet" not in references.published("method")
    found = read("mynet", "model")
    code = found.code
    assert (code.name, code.target) == ("mynet", "published_net:Net")
    assert (code.package, code.version) == ("published-net", "1.2")
    assert load(*found).__module__ == "published_net"


def test_a_package_that_is_being_written_is_kept_as_files(tmp_path, monkeypatch):
    publish(tmp_path, monkeypatch, editable=True)
    found = read("mynet", "model")
    assert (found.code.name, found.code.package) == ("mynet", None)
    assert list(found.sources) == ["published_net.py"]
    assert load(*found).__module__.startswith("fedgps_ray_code_")


def test_another_version_of_a_package_is_refused(tmp_path, monkeypatch):
    publish(tmp_path, monkeypatch)
    code, _ = read("mynet", "model")
    with pytest.raises(UserError, match=r"needs the package published-net 1\.1"):
        load(dataclasses.replace(code, version="1.1"), {})
    with pytest.raises(UserError, match=r"needs the package published-net 1\.2"):
        load(dataclasses.replace(code, sha256="0" * 64), {})
    with pytest.raises(UserError, match="not installed here"):
        load(dataclasses.replace(code, target="no_such_module_here:Net"), {})


def test_which_texts_are_references():
    assert references.is_reference("net.py:Net")
    assert references.is_reference("a.b:c")
    assert references.is_reference("net.py")
    assert not references.is_reference("resnet18")


def test_modules_without_a_file_are_left_to_python(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "handmade", ModuleType("handmade"))
    folder = write({"handmade/part": ""}, net="import handmade\nclass Net: made = handmade")
    found = read("net.py:Net", "model", folder)
    assert list(found.sources) == ["net.py"]
    assert load(*found).made is sys.modules["handmade"]
    assert "there is no module 'handmade'" in fails("handmade:Net", folder)


def test_dots_that_lead_nowhere_are_left_to_python_s_own_error(write):
    folder = write(net=f"from {'.' * 99} import helper", other="from .. import no_such_helper")
    assert "beyond top-level package" in fails("net.py:Net", folder)
    assert list(read("other.py:Net", "model", folder).sources) == ["other.py"]


# --- how it is imported ---------------------------------------------------------------------------


def test_loading_twice_gives_the_same_class_under_a_name_made_of_the_content(write):
    found = read("net.py:Net", "model", write(net=NET, helper="WIDTH = 3"))
    net = load(*found)
    assert net is load(*found)
    assert net.__module__ == f"fedgps_ray_code_{found.code.sha256[:12]}.net"
    assert pickle.loads(pickle.dumps(net)) is net


def test_two_versions_live_side_by_side(write):
    folder = write(net=NET, helper="WIDTH = 3")
    first = load(*read("net.py:Net", "model", folder))
    second = load(*read("net.py:Net", "model", write(helper="WIDTH = 4")))
    assert (first.width, second.width) == (3, 4)
    assert first.__module__ != second.__module__


def test_another_process_in_another_folder_loads_from_the_text_alone(write, tmp_path_factory):
    folder = write(net=NET + "\n        def __init__(self, x): self.x = x\n", helper="WIDTH = 3")
    code, sources = read("net.py:Net", "model", folder)
    sent = json.dumps([dataclasses.asdict(code), sources])
    pickled = pickle.dumps(load(code, sources)(5))
    shutil.rmtree(folder)
    script = f"""
        import json, pickle, sys
        from fedgps_ray.references import Code, load
        code, sources = json.loads(sys.stdin.read())
        net = load(Code(**code), sources)
        assert net.width == 3
        assert pickle.loads({pickled!r}).x == 5
        assert not set(sys.modules) & {{"torch", "ray", "helper", "net"}}
    """
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    run = [sys.executable, "-c", textwrap.dedent(script)]
    subprocess.run(run, input=sent, text=True, check=True, cwd=elsewhere)
    assert list(elsewhere.iterdir()) == []


def test_the_source_is_seen_in_tracebacks_and_by_inspect(write):
    folder = write(net="class Net:\n    def __init__(self):\n        raise KeyError('mine')\n")
    net = load(*read("net.py:Net", "model", folder))
    with pytest.raises(KeyError) as told:
        net()
    assert "raise KeyError('mine')" in "".join(traceback.format_exception(told.value))
    assert inspect.getsource(net).startswith("class Net:")
    (folder / "net.py").write_text("nothing here\n" * 5)
    assert "raise KeyError('mine')" in user_traceback(told.value)


def test_texts_that_are_not_those_of_the_code_are_refused(write):
    code, sources = read("net.py:Net", "model", write(net=NET, helper="WIDTH = 3"))
    for other in ({**sources, "helper.py": "WIDTH = 4"}, {}):
        with pytest.raises(UserError, match=r"code of net\.py:Net is not the code"):
            load(code, other)


def test_modules_of_the_user_do_not_get_in_the_way_of_others(write):
    folder = write(net="import json\nclass Net: x = json.X", json="X = 'mine'")
    assert load(*read("net.py:Net", "model", folder)).x == "mine"
    assert json.dumps([1]) == "[1]"
    assert sys.modules["json"] is json


def test_a_method_in_a_file_is_checked_and_computes_as_one_of_the_package(tmp_path):
    page = (Path(__file__).parents[1] / "docs" / "adding-a-method.md").read_text()
    (tmp_path / "fedema.py").write_text(re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0])
    kind = load(*read("fedema.py:FedEma", "method", tmp_path))
    with pytest.raises(ValidationError, match="decay"):
        kind(decay=1.5)
    with pytest.raises(ValidationError, match="speed"):
        kind(speed=1)
    method = kind(decay=0.75)
    start = Params(torch.tensor([0.0]), torch.zeros(0))
    state = method.init(start, None)
    reply = Reply(Client(0, (1,)), Update(torch.tensor([8.0]), torch.zeros(0)))
    state = pickle.loads(pickle.dumps(method.merge(state, [reply])))
    assert state.average.weights.item() == 2  # 0.75 * 0 + 0.25 * 8
    assert pickle.loads(pickle.dumps(method)) == method


def test_code_is_a_value_for_pydantic(write):
    code, _ = read("net.py:Net", "model", write(net="class Net: pass"))
    adapter = TypeAdapter(Code)
    assert adapter.validate_json(adapter.dump_json(code)) == code
    assert len({code, dataclasses.replace(code)}) == 1


NAMES = st.sampled_from(["alpha", "beta", "gamma", "delta"])


@given(st.dictionaries(NAMES, st.sets(NAMES), min_size=1), NAMES)
def test_the_files_are_those_that_can_be_reached_by_imports(tmp_path_factory, graph, start):
    folder = tmp_path_factory.mktemp("graph")
    graph = {start: set(), **graph}
    for name, wanted in graph.items():
        lines = [f"import {other}" for other in sorted(wanted) if other in graph]
        (folder / f"{name}.py").write_text("\n".join([*lines, f"def here(): return '{name}'"]))
    reached, ahead = set(), [start]
    while ahead:
        name = ahead.pop()
        if name not in reached:
            reached.add(name)
            ahead += graph[name] & set(graph)
    found = read(f"{start}.py:here", "model", folder)
    assert {path.removesuffix(".py") for path in found.sources} == reached
    assert load(*found)() == start


# --- what can be wrong ----------------------------------------------------------------------------


def test_a_missing_file_is_told_with_the_nearest(write):
    told = fails("nett.py:Net", write(net=""))
    assert told == "there is no file nett.py. Did you mean 'net.py'?"


def test_a_missing_class_is_told_with_the_nearest_and_with_those_there_are(write):
    told = fails("net.py:Nett", write(net="from os import path\nclass Net: pass\ndef make(): pass"))
    assert told == "net.py has no 'Nett'. Did you mean 'Net'? It defines: Net, make"


def test_a_missing_name_of_an_installed_module():
    assert fails("collections:OrderedDic", Path()).startswith(
        "collections has no 'OrderedDic'. Did you mean 'OrderedDict'?"
    )


@pytest.mark.parametrize("text", ["x = " + "+".join(["1"] * 9000), "x = " + "-" * 9000 + "1"])
def test_code_nested_too_deeply_is_refused(write, text):
    assert fails("net.py:Net", write(net=text)).startswith("net.py is not valid Python: ")


def test_a_syntax_error_is_shown_as_python_shows_it(write):
    told = fails("net.py:Net", write(net="class Net:\n    x = = 1\n"))
    assert told.startswith("net.py is not valid Python:\n")
    assert 'File "net.py", line 2' in told
    assert "x = = 1" in told
    assert "ast.py" not in told
    assert "Traceback" not in told


def test_a_syntax_error_in_a_module_beside_names_that_module(write):
    assert 'File "helper.py", line 1' in fails("net.py:Net", write(net=NET, helper="def"))


def test_an_error_on_import_shows_the_user_s_traceback_and_not_ours(write):
    told = fails("net.py:Net", write(net=NET, helper="def f():\n    return 1 / 0\nWIDTH = f()"))
    first, *shown = told.splitlines()
    assert first == "net.py:Net cannot be imported:"
    assert [line.rpartition("/")[2] for line in shown if line.startswith("  File")] == [
        'net.py", line 2, in <module>',
        'helper.py", line 3, in <module>',
        'helper.py", line 2, in f',
    ]
    assert "    return 1 / 0" in shown
    assert shown[-1] == "ZeroDivisionError: division by zero"


def test_a_module_that_is_missing_is_told_by_its_own_name(write):
    told = fails("net.py:Net", write(net="import no_such_module\n"))
    assert told.splitlines()[-1] == "ModuleNotFoundError: No module named 'no_such_module'"
    assert told.count("File ") == 1


def test_a_module_that_ends_the_program_does_not_end_ours(write):
    assert "SystemExit: 3" in fails("net.py:Net", write(net="raise SystemExit(3)"))


def test_after_a_failed_import_the_corrected_file_loads(write):
    folder = write(net="1 / 0\nclass Net: pass")
    fails("net.py:Net", folder)
    assert load(*read("net.py:Net", "model", write(net="class Net: pass")))


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("net.py", "net.py: say which model in it, such as net.py:Net"),
        ("net.py:WIDTH", "neither a class nor a function, but a value (int)"),
        ("net.py:", "'' is not a name in Python"),
        ("net.py:a b", "'a b' is not a name in Python"),
        ("no_such.module:Net", "there is no module 'no_such.module'"),
        ("collections.no_such:Net", "there is no module 'collections.no_such'"),
        ("json.decoder.deeper:Net", "there is no module 'json.decoder.deeper'"),
        ("net.txt/:Net", "neither a file that ends in .py nor a module"),
        ("a.b.py:Net", "there is no file a.b.py"),
        ("dotted.name.py:Net", "a name without further dots"),
        ("resnet-18", "unknown model 'resnet-18'. Did you mean 'resnet18'? Known: resnet18"),
        ("torchvision.models.resnet18", "my_file.py:Name or package.module:Name"),
    ],
)
def test_what_a_reference_cannot_be(write, reference, expected):
    folder = write(net="WIDTH = 3\nclass Net: pass")
    (folder / "dotted.name.py").touch()
    assert expected in fails(reference, folder, ["resnet18"])


def test_a_file_in_an_unknown_encoding_is_told(write):
    folder = write(net="")
    (folder / "net.py").write_bytes(b"x = '\xff'\n")
    assert fails("net.py:Net", folder).startswith("net.py cannot be read: ")
    (folder / "net.py").write_bytes(b"# coding: latin-1\nclass Net: x = '\xff'\n")
    assert load(*read("net.py:Net", "model", folder)).x == "ÿ"
