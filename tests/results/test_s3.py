"""--storage s3:// against a real S3 server on the loopback, through a proxy that makes faults."""

import json
import socket
import socketserver
import threading
import time
import urllib.request

import pytest

from fedgps_ray.errors import Lost, UserError
from fedgps_ray.results import mirror as mirrors
from fedgps_ray.results.mirror import Mirror, mirrored
from fedgps_ray.results.read import check, read_trial
from fedgps_ray.rounds.trial import run_trial
from fedgps_ray.spec import ExecutionSpec, trial_spec
from fedgps_ray.sweep.ledger import Ledger

moto = pytest.importorskip("moto.server", reason="moto is a development tool")

SECRET = "hush-hush"
SPEC = trial_spec(
    method="fedavg",
    model="mlp",
    dataset={"name": "synthetic", "image_size": 8, "train_size": 40, "test_size": 20},
    partition="iid",
    clients=2,
    rounds=3,
)
NAME = f"trials/{SPEC.trial_id}"


class Proxy(socketserver.ThreadingTCPServer):
    """Passes connections on to the server, or does what `fault` says to them."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, target):
        super().__init__(("127.0.0.1", 0), Handler)
        self.target, self.fault, self.faults = target, None, 0

    @property
    def port(self):
        return self.server_address[1]


class Handler(socketserver.BaseRequestHandler):
    """One connection."""

    def handle(self):
        first = self.request.recv(65536)
        fault = self.server.fault
        if fault is not None:
            self.server.faults += 1
        if fault == "refused":
            return
        if fault == "500":
            self.request.sendall(
                b"HTTP/1.1 500 Server Error\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )
            return
        if fault == "slow":
            time.sleep(0.5)
        with socket.create_connection(self.server.target) as there:
            if fault == "cut" and first.startswith(b"PUT"):
                there.sendall(first[: len(first) // 2])
                return
            there.sendall(first)
            back = threading.Thread(target=pump, args=(there, self.request), daemon=True)
            back.start()
            pump(self.request, there)
            back.join(5)


def pump(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


@pytest.fixture(scope="module")
def server():
    found = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    found.start()
    yield found.get_host_and_port()
    found.stop()


@pytest.fixture
def proxy(server, monkeypatch):
    host, port = server
    bucket = urllib.request.Request(f"http://{host}:{port}/results", method="PUT")
    urllib.request.urlopen(
        urllib.request.Request(f"http://{host}:{port}/moto-api/reset", method="POST")
    ).close()
    urllib.request.urlopen(bucket).close()
    monkeypatch.setattr(mirrors, "PAUSES", (0.1,))
    with Proxy((host, port)) as found:
        thread = threading.Thread(target=found.serve_forever, daemon=True)
        thread.start()
        yield found
        found.shutdown()


@pytest.fixture
def uri(proxy):
    return (
        f"s3://somebody:{SECRET}@results/study?region=us-east-1&scheme=http"
        f"&endpoint_override=127.0.0.1:{proxy.port}"
    )


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Return a folder with one finished trial."""
    folder = tmp_path_factory.mktemp("here")
    list(run_trial(SPEC, ExecutionSpec(out=folder, actors=0)))
    return folder


def names(mirror):
    return mirror.names(NAME)


def test_a_trial_comes_back_whole_on_another_machine(uri, here, tmp_path):
    Mirror(uri).put(here, NAME)
    ledger = Ledger(tmp_path, [SPEC])
    ledger.keep_at(Mirror(uri))
    assert check(tmp_path / NAME, full=True) == []
    assert read_trial(tmp_path / NAME) == read_trial(here / NAME)
    assert ledger.to_do() == []


@pytest.mark.slow
def test_slow_is_not_lost(uri, proxy, here):
    proxy.fault = "slow"
    mirror = Mirror(uri)
    mirror.put(here, NAME)
    assert proxy.faults
    proxy.fault = None
    assert "trial.json" in names(mirror)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("fault", ["refused", "500", "cut"])
def test_a_fault_leaves_nothing_half_there(uri, proxy, here, fault, tmp_path):
    proxy.fault = fault
    mirror = Mirror(uri)
    with pytest.raises(Lost, match=r"storage at s3://\*\*\*@results/study") as lost:
        mirror.put(here, NAME)
    assert proxy.faults
    assert SECRET not in str(lost.value)
    assert check(here / NAME, full=True) == []
    proxy.fault = None
    assert not Mirror(uri).fetch(tmp_path, NAME)
    mirror.put(here, NAME)
    assert Mirror(uri).fetch(tmp_path, NAME)
    assert check(tmp_path / NAME, full=True) == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_could_not_be_sent_is_not_lost(uri, proxy, tmp_path):
    """A trial goes on while its storage is away; its results win over what was sent before."""
    execution = ExecutionSpec(out=tmp_path, actors=0, checkpoint_seconds=0)
    mirror = Mirror(uri)
    events = mirrored(mirror, tmp_path, NAME, run_trial(SPEC, execution), 0)
    for event in events:
        if isinstance(event, dict) and event["round"] == 1:
            break
    assert "checkpoint" in names(mirror)
    proxy.fault = "refused"
    with pytest.raises(Lost):
        list(events)
    proxy.fault = None
    assert read_trial(tmp_path / NAME)["status"] == "finished"
    assert not mirror.fetch(tmp_path, NAME)
    mirror.put(tmp_path, NAME)
    assert mirror.fetch(tmp_path / "second", NAME)
    assert read_trial(tmp_path / "second" / NAME)["status"] == "finished"
    assert check(tmp_path / "second" / NAME, full=True) == []


@pytest.mark.slow
def test_a_second_machine_goes_on_where_the_first_was_cut_off(uri, proxy, here, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    execution = ExecutionSpec(out=first, actors=0, checkpoint_seconds=0)
    events = mirrored(Mirror(uri), first, NAME, run_trial(SPEC, execution), 0)
    for event in events:
        if isinstance(event, dict) and event["round"] == 2:
            proxy.fault = "cut"  # and nothing is sent any more
            break
    with pytest.raises(Lost):
        events.close()
    proxy.fault = None
    assert Mirror(uri).fetch(second, NAME)
    started, *rows = run_trial(SPEC, ExecutionSpec(out=second, actors=0))
    assert started.rounds_done >= 1
    assert rows[-1]["weights_sha256"] == read_trial(here / NAME)["summary"]["weights_sha256"]


def test_keys_that_lead_elsewhere_are_refused(uri, server, tmp_path):
    host, port = server
    address = f"http://{host}:{port}/results/study/{NAME}"
    for key in ("trial.json", "%2e%2e%2f%2e%2e%2fowned.txt"):
        request = urllib.request.Request(f"{address}/{key}", data=b"{}", method="PUT")
        urllib.request.urlopen(request).close()
    with pytest.raises(UserError, match=r"is not a file of a trial; remove it there"):
        Mirror(uri).fetch(tmp_path / "a" / "b", NAME)
    assert not list(tmp_path.rglob("owned.txt"))


def test_a_file_beside_a_folder_of_the_same_name_is_refused(uri, server, here, tmp_path):
    host, port = server
    Mirror(uri).put(here, NAME)
    for key in ("checkpoint", "checkpoint/round-000001.json"):
        address = f"http://{host}:{port}/results/study/{NAME}/{key}"
        urllib.request.urlopen(urllib.request.Request(address, data=b"{}", method="PUT")).close()
    with pytest.raises(UserError, match=r"checkpoint' is not a file of a trial"):
        Mirror(uri).fetch(tmp_path, NAME)


def test_passwords_are_in_no_file(uri, tmp_path):
    execution = ExecutionSpec(out=tmp_path, actors=0, storage=uri)
    list(run_trial(SPEC, execution))
    info = json.loads((tmp_path / NAME / "trial.json").read_text())
    assert info["execution"]["storage"].startswith("s3://***@results/study?")
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(SECRET.encode() in path.read_bytes() for path in written)
