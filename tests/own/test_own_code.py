"""Methods, models and data sets of a user's own, from the command line."""

import itertools
import json
import shutil
import sys

import pytest
from torch import nn

from fedgps_ray.api.results import load
from fedgps_ray.errors import UserError
from fedgps_ray.events import Started
from fedgps_ray.experiment import resolve
from fedgps_ray.identity import trial_id
from fedgps_ray.references import digest, give_own, read, registry
from fedgps_ray.results import files
from fedgps_ray.results.code import admit
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.spec import ExecutionSpec
from tests.own.conftest import METHOD, QUICK

RUN = ["run", "--method", "mine.py:Mine", *QUICK]


def trial(folder):
    (path,) = folder.glob("runs/default/trials/*/trial.json")
    return path.parent, json.loads(path.read_text())


def forget(monkeypatch):
    """Start as another process would: nothing was given yet."""
    monkeypatch.setattr(registry, "_GIVEN", {})
    monkeypatch.setattr(registry, "_IMPORTED", {})
    monkeypatch.setattr(registry, "_FOUND", {})


def stop_after_a_round(folder):
    """Make a finished trial one that was interrupted before its last round."""
    trial_folder, info = trial(folder)
    info["status"] = "interrupted"
    files.write_json(trial_folder / "trial.json", info)
    return trial_folder


def test_a_run_keeps_the_code_and_its_identity(here, fedgps_ray):
    code, _, err = fedgps_ray(*RUN, "--set", "method.strength=0.25")
    assert code == 0, err
    folder, info = trial(here)
    told = info["spec"]["method"]
    assert (told["name"], told["strength"]) == ("mine.py:Mine", 0.25)
    assert told["code"]["target"] == "mine.py:Mine"
    assert info["identity"]["method"]["code"]["sha256"] == told["code"]["sha256"]
    assert (folder / "code" / told["code"]["sha256"][:12] / "mine.py").read_text() == METHOD


def test_edited_code_is_another_trial(here):
    ids = set()
    for text in (METHOD, METHOD + "\n# edited\n"):
        (here / "mine.py").write_text(text)
        ids.add(resolve({"method": "mine.py:Mine"}, here)[0].trial_id)
    (here / "helper.py").write_text("X = 1")
    for text in ("X = 1", "X = 2"):
        (here / "helper.py").write_text(text)
        (here / "mine.py").write_text(METHOD + "\nimport helper\n")
        ids.add(resolve({"method": "mine.py:Mine"}, here)[0].trial_id)
    assert len(ids) == 4


def test_readers_never_import_the_code(here, fedgps_ray, monkeypatch):
    assert fedgps_ray(*RUN)[0] == 0
    (here / "mine.py").unlink()
    shutil.rmtree(trial(here)[0] / "code")
    forget(monkeypatch)
    monkeypatch.setattr("fedgps_ray.references.importing._imported", pytest.fail)
    for command in (["status"], ["watch", "--once"], ["report"]):
        code, _, err = fedgps_ray(*command, "runs/default")
        assert code == 0, err
    assert "mine.py:Mine" in (here / "runs/default/report/report.md").read_text()


def test_resume_uses_the_same_file_and_says_so(here, fedgps_ray, monkeypatch):
    assert fedgps_ray(*RUN)[0] == 0
    _, before = trial(here)
    stop_after_a_round(here)
    forget(monkeypatch)
    code, _, err = fedgps_ray("resume", "runs/default")
    assert code == 0, err
    assert f"mine.py:Mine is imported from {here / 'mine.py'}" in err
    assert trial(here)[1]["summary"]["weights_sha256"] == before["summary"]["weights_sha256"]


@pytest.mark.parametrize("change", ["edited", "gone", "in the folder"])
def test_resume_refuses_other_code_unless_it_is_trusted(here, fedgps_ray, monkeypatch, change):
    assert fedgps_ray(*RUN)[0] == 0
    folder = stop_after_a_round(here)
    if change == "edited":
        (here / "mine.py").write_text(METHOD + "\n# edited\n")
    else:
        (here / "mine.py").unlink()
    if change == "in the folder":  # what a stranger could send along
        info = json.loads((folder / "trial.json").read_text())
        (sha256,) = info["execution"]["files"]
        (folder / "mine.py").write_text(METHOD)
        info["execution"]["files"] = {sha256: str(folder / "mine.py")}
        files.write_json(folder / "trial.json", info)
    forget(monkeypatch)
    code, _, err = fedgps_ray("resume", "runs/default")
    assert code == 2
    assert "--trust-code" in err
    assert {"edited": "differs"}.get(change, "there is no file of yours") in err
    assert not registry._IMPORTED
    code, _, err = fedgps_ray("resume", "runs/default", "--trust-code")
    assert code == 0, err
    assert "is imported from runs/default/trials" in err


def test_a_replay_imports_only_the_same_file_or_trusted_code(here, fedgps_ray, monkeypatch):
    assert fedgps_ray(*RUN)[0] == 0
    forget(monkeypatch)
    code, out, _ = fedgps_ray("verify", "runs/default")
    assert (code, "1 of 1 trials hold" in out) == (0, True)
    (here / "mine.py").unlink()
    forget(monkeypatch)
    code, out, _ = fedgps_ray("verify", "runs/default")
    assert (code, "--trust-code" in out) == (1, True)
    assert not registry._IMPORTED
    code, out, _ = fedgps_ray("verify", "runs/default", "--trust-code")
    assert (code, "1 of 1 trials hold" in out) == (0, True)


@pytest.mark.parametrize(
    ("kind", "later"),
    [
        ("Params | None", "None"),
        ("Params", "Params(delta[:3], buffers)"),
        ("Params", "Params(delta.double(), buffers)"),
    ],
)
def test_a_state_may_change_as_its_method_likes(here, kind, later):
    text = METHOD.replace("seen: int", f"pull: {kind}").replace("(params, 0)", "(params, params)")
    (here / "mine.py").write_text(text.replace("state.seen + 1", later))
    data = {"name": "synthetic", "train_size": 80, "test_size": 20}
    settings = {"dataset": data, "model": "mlp", "clients": 4, "rounds": 3}
    spec, _ = resolve({"method": "mine.py:Mine", **settings}, here)
    execution = ExecutionSpec(out=here, actors=0, checkpoint_seconds=0)
    events = run_trial(spec, execution)
    list(itertools.islice(events, 3))
    events.close()
    assert next(run_trial(spec, execution)) == Started(2, [])


@pytest.mark.parametrize("sha256", ["/usr/lib", "../../..", "A" * 64, "a" * 63])
def test_a_hash_of_code_that_is_none_is_refused(sha256, tmp_path):
    settings = {"dataset": {"name": "x", "code": {"target": "e.py:data", "sha256": sha256}}}
    with pytest.raises(UserError, match="must have a sha256"):
        admit(settings, [tmp_path], trust=True)


def test_a_kept_copy_that_is_no_text_is_told(here, fedgps_ray, monkeypatch):
    assert fedgps_ray(*RUN)[0] == 0
    folder = stop_after_a_round(here)
    next(folder.glob("code/*/mine.py")).write_bytes(b"\xff\xfe")
    forget(monkeypatch)
    code, _, err = fedgps_ray("resume", "runs/default", "--trust-code")
    assert (code, "mine.py cannot be read" in err) == (2, True)


def test_a_kept_copy_that_was_changed_is_refused(here, fedgps_ray, monkeypatch):
    assert fedgps_ray(*RUN)[0] == 0
    folder = stop_after_a_round(here)
    next(folder.glob("code/*/mine.py")).write_text(METHOD + "\n# evil\n")
    forget(monkeypatch)
    code, _, err = fedgps_ray("resume", "runs/default", "--trust-code")
    assert (code, "was changed" in err) == (2, True)


@pytest.mark.parametrize("target", ["subprocess:Popen", "pandas:read_pickle", "shutil:rmtree"])
def test_a_folder_cannot_have_installed_functions_called(target, tmp_path, monkeypatch):
    """All of these would run what a stranger wrote; the same code in one's own command may."""
    code = read(target, "dataset").code
    forget(monkeypatch)
    settings = {"dataset": {"name": target, "code": code.table, "options": {"args": "true"}}}
    with pytest.raises(UserError, match="--trust-code"):
        admit(settings, [tmp_path])
    assert not registry._GIVEN
    assert admit(settings, [tmp_path], trust=True)


def asked(target, part="model", **options):
    """Return settings as a folder has them, with a true hash."""
    code = read(target, "model").code
    return {part: {"name": "harmless", "code": code.table, "options": options}}


def test_a_folder_may_name_networks_of_torchvision(tmp_path):
    (said,) = admit(asked("torchvision.models:mobilenet_v3_small", num_classes=7), [tmp_path])
    assert said.startswith("torchvision.models:mobilenet_v3_small is imported from the installed")


@pytest.mark.parametrize(
    ("target", "part"),
    [
        ("torchvision.models._api:inspect.os.system", "dataset"),
        ("torchvision.models._api:inspect.os.system", "model"),
        ("torchvision.models:resnet18", "dataset"),
        ("torchvision.models:resnet18", "method"),
        ("torchvision.models:get_model_weights", "model"),
        ("torchvision.models:resnet.load_state_dict_from_url", "model"),
        ("torchvision.models.resnet:ResNet", "model"),
        ("torchvision.models.detection:fasterrcnn_resnet50_fpn", "model"),
    ],
)
def test_a_folder_may_name_nothing_else_of_torchvision(target, part, tmp_path, monkeypatch):
    forget(monkeypatch)
    with pytest.raises(UserError, match="--trust-code"):
        admit(asked(target, part, command="id"), [tmp_path])
    assert not registry._GIVEN


@pytest.mark.parametrize("option", ["weights", "weights_backbone", "pretrained"])
def test_a_folder_cannot_have_weights_downloaded(option, tmp_path):
    target = "torchvision.models:resnet18"
    give_own(read(target, "model"), None)
    for settings in (asked(target, **{option: "DEFAULT"}), asked(target)):
        settings["model"][option] = "DEFAULT"
        with pytest.raises(UserError, match=f"{target} with {option} would download"):
            admit(settings, [tmp_path])
    assert admit(settings, [tmp_path], trust=True)


def test_a_folder_cannot_have_modules_imported_to_look_at_them(tmp_path, monkeypatch):
    monkeypatch.setattr("fedgps_ray.references.importing._imported", pytest.fail)
    settings = asked("this:s")
    for package in ("python", "torch", "torchvision"):  # its own claim, which may be false
        settings["model"]["code"]["package"] = package
        with pytest.raises(UserError, match="this:s is code of an installed package"):
            admit(settings, [tmp_path])


def test_code_of_a_package_that_the_user_has_used_is_admitted(tmp_path):
    target = "torchvision.models.resnet:ResNet"
    give_own(read(target, "model"), None)
    assert target in admit(asked(target), [tmp_path])[0]
    settings = asked(target)
    settings["model"]["code"]["version"] = "0.1"
    with pytest.raises(UserError, match="--trust-code"):
        admit(settings, [tmp_path])


def test_what_was_trusted_once_is_the_users(here, fedgps_ray, monkeypatch, own_state):
    assert fedgps_ray(*RUN)[0] == 0
    stop_after_a_round(here)
    (own_state / "own_code.json").unlink()
    forget(monkeypatch)
    assert fedgps_ray("resume", "runs/default")[0] == 2
    assert fedgps_ray("resume", "runs/default", "--trust-code")[0] == 0
    stop_after_a_round(here)
    forget(monkeypatch)
    code, _, err = fedgps_ray("resume", "runs/default")
    assert code == 0, err
    assert "/code/" in err


def test_the_model_of_a_trial_with_own_code_can_be_loaded_later(here, fedgps_ray, monkeypatch):
    """In another process, where nobody has named the file; not if the file has changed."""
    assert fedgps_ray(*RUN)[0] == 0
    forget(monkeypatch)
    (result,) = load("runs/default")
    assert isinstance(result.model, nn.Module)
    forget(monkeypatch)
    (here / "mine.py").write_text(METHOD + "\n# edited\n")
    (result,) = load("runs/default")
    with pytest.raises(UserError, match="differs from the code that the trial was made with"):
        result.model  # noqa: B018


def strange(folder, place, text, files_of):
    """Return settings of a folder that brings code along and calls it the user's."""
    sha256 = digest(place, {place: text})
    copy = folder / "code" / sha256[:12] / place
    copy.parent.mkdir(parents=True)
    copy.write_text(text)
    settings = {"dataset": {"name": "x", "code": {"target": f"{place}:data", "sha256": sha256}}}
    return settings, {sha256: str(files_of(copy))}


@pytest.mark.parametrize("way", ["through proc", "up and down", "beside", "deep"])
def test_a_folder_does_not_say_which_file_is_the_users(way, here, fedgps_ray, monkeypatch):
    """The table of files in trial.json plays no role for code, wherever it leads."""
    assert fedgps_ray("run", *QUICK)[0] == 0
    folder = stop_after_a_round(here)
    (here / "evil.py").write_text("open('pwned', 'w')\n")
    place = "a/" * 30 + "evil.py" if way == "deep" else "evil.py"
    lead = {
        "through proc": lambda copy: f"/proc/self/cwd/{copy.relative_to(here)}",
        "up and down": lambda copy: copy.parent / ".." / copy.parent.name / copy.name,
        "beside": lambda copy: here / "evil.py",
        "deep": lambda copy: "/etc/hostname",
    }[way]
    settings, paths = strange(folder, place, "open('pwned', 'w')\n", lead)
    info = json.loads((folder / "trial.json").read_text())
    for key in ("spec", "identity"):
        info[key] |= settings
    info["trial_id"] = trial_id(info["identity"], info["identity_version"])
    info["execution"]["files"] = paths
    files.write_json(folder / "trial.json", info)
    folder.rename(folder.with_name(info["trial_id"]))
    forget(monkeypatch)
    code, _, err = fedgps_ray("resume", "runs/default")
    assert (code, "there is no file of yours" in err, "--trust-code" in err) == (2, True, True)
    code, out, _ = fedgps_ray("verify", "runs/default")
    assert (code, "--trust-code" in out) == (1, True)
    assert not (here / "pwned").exists()


# --- mistakes -------------------------------------------------------------------------------------

WORK = "done = train(local, message, backprop(cross_entropy))"
WRONG = {
    "raises": (WORK, "raise KeyError('mine')", ["failed in work (client", "KeyError: 'mine'"]),
    "exits": (WORK, "raise SystemExit(0)", ["failed in work (client", "SystemExit: 0"]),
    "shape": (
        "return Work(moved(message, done.params)",
        "few = moved(message, done.params)\n        few = few._replace(delta=few.delta[:-1])"
        " if local.client.id == 2 else few\n        return Work(few",
        ["the upload of client 2 is Update(delta="],
    ),
    "self": (
        "return State(params, 0)",
        "self.x = 1\n        return State(params, 0)",
        ["cannot assign to field"],
    ),
    "set": ("times: int", "times: set", ["cannot hold a set"]),
    "import": ("class State", "import no_such_module\nclass State", ["no_such_module", "line"]),
    "lacks": ("def merge", "def merged", ["is not a method: it lacks merge"]),
    "loss": ("done.loss)", "None)", ["the loss of work must be a number, got NoneType"]),
    "tensor": ("done.loss)", "message.weights.mean())", ["must be a number, got Tensor"]),
    "metrics": ("done.loss)", "done.loss, [1])", ["metrics of work must be a dict"]),
    "metric": ("done.loss)", "done.loss, {'x': 'a'})", ["metrics of work: x must be a number"]),
    "empty": ("done.loss)", "done.loss, {'x': None})", ["x must be a number, got NoneType"]),
    "measure": (
        "    def merge",
        "    def measure(self, state, turn, ask):\n        return None\n\n    def merge",
        ["measure must be a dict of numbers by name, got NoneType"],
    ),
    "messages": ("for _ in turn.clients]", "for _ in turn.clients[1:]]", ["1 messages for"]),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_in_a_method_is_told_in_the_users_terms(here, fedgps_ray, mistake):
    old, new, words = WRONG[mistake]
    text = METHOD.replace(old, new)
    if mistake == "set":
        text = text.replace("Memory(times)", "Memory({times})")
    assert text != METHOD
    (here / "mine.py").write_text(text)
    code, _, err = fedgps_ray(*RUN)
    assert code == 2, err
    assert [word for word in words if word not in err] == []
    assert "fedgps_ray/rounds" not in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "method.strenth=1"], "Did you mean 'strength'"),
        (["--set", "method.strength=many"], "method.strength: must be a valid number"),
        (["--method", "mine.py:Mien"], "has no 'Mien'"),
        (["--method", "mien.py:Mine"], "there is no file mien.py. Did you mean 'mine.py'"),
        (["--model", "mine.py:State"], "State"),
    ],
)
def test_a_wrong_name_or_option_is_refused(here, fedgps_ray, arguments, words):
    code, _, err = fedgps_ray(*RUN, *arguments)
    assert (code, words in err) == (2, True), err
    assert not list(here.glob("runs/default/trials/*/trial.json"))


# --- what is shown --------------------------------------------------------------------------------


def test_methods_describes_it(here, fedgps_ray):
    code, out, err = fedgps_ray("methods", "mine.py:Mine")
    assert code == 0, err
    assert "A method of mine." in out
    assert "strength 0.5" in out


def test_verify_finds_state_in_self(here, fedgps_ray):
    state = 'vars(self)["calls"] = vars(self).get("calls", 0) + 1'
    (here / "mine.py").write_text(METHOD.replace(WORK, f"{state}\n        {WORK}"))
    code, out, _ = fedgps_ray("verify", "mine.py:Mine", "--json")
    proofs = {proof["claim"]: proof for proof in json.loads(out)}
    assert code == 1
    assert proofs["nothing is kept in self"]["got"] == "self.calls was changed"
    assert proofs["nothing is changed in place"]["holds"]


@pytest.mark.slow
def test_new_method_writes_a_test_that_passes(here, fedgps_ray, monkeypatch):
    assert fedgps_ray("new", "method", "my_method")[0] == 0
    monkeypatch.setattr(sys, "path", [*sys.path])  # pytest leaves the folder of the test in it
    assert pytest.main(["-q", "-p", "no:cacheprovider", str(here / "test_my_method.py")]) == 0
    code, _, err = fedgps_ray("new", "method", "my_method")
    assert (code, "there already" in err) == (2, True)
