"""The parent of a command: what it passes on, how it ends, and when it starts the command again."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedgps_ray.cli import again
from fedgps_ray.cluster import parent
from fedgps_ray.cluster.policy import POLICY
from tests.processes import patient, start

BEGIN = """
import os, signal, sys, time
from fedgps_ray.cluster import parent
from fedgps_ray.cli import again
parent.go_on_in_child(again.go_on)
starts = int(os.environ.get(parent.STARTS, "0"))
"""
DIES_CONNECTING = """
with parent.connecting(is_own={own}, seconds={seconds}):
    if starts < {times}:
        {end}
print("connected, start", starts, sys.argv[1:])
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no parent elsewhere")


def run(program, *words):
    """Run a program that goes on in a child."""
    command = [sys.executable, "-c", BEGIN + program, *words]
    environment = {name: value for name, value in os.environ.items() if name != parent.STARTS}
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=patient(60), check=False
    )


@pytest.fixture
def begin():
    """Start a program that goes on in a child, in a session of its own."""
    started = []

    def begin(program):
        process = start(
            [sys.executable, "-c", BEGIN + program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process, int(process.stdout.readline())

    yield begin
    for process in started:
        process.kill()
        process.communicate()


# --- started again --------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["os._exit(1)", "os.abort()"])
def test_a_command_that_ray_ends_while_it_connects_is_started_again(end):
    done = run(DIES_CONNECTING.format(seconds=60, own=True, times=2, end=end), "some", "words")
    assert (done.returncode, done.stdout) == (0, "connected, start 2 ['some', 'words']\n")
    assert done.stderr.count("starting Ray again and going on with what is missing") == 2


def test_a_command_that_ray_ends_when_it_is_connected_is_started_again():
    """As it does if its control process dies while a question to it is on its way."""
    work = "with parent.connecting(True, 60): pass\nif not starts: os._exit(1)\nprint(starts)"
    done = run(work)
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert "Ray has died and has ended the command; starting Ray again" in done.stderr


HANGS = "import ctypes; ctypes.PyDLL(None).sleep(60)"  # with all threads of Python


@pytest.mark.parametrize("own", [True, False], ids=["its own", "joined"])
def test_a_command_that_ray_lets_wait_is_killed(own):
    done = run(DIES_CONNECTING.format(own=own, seconds=2, times=1, end=HANGS))
    assert done.returncode == (0 if own else again.LOST)
    assert done.stdout == ("connected, start 1 []\n" if own else "")
    assert "Ray has died or hung while the command was connecting to it" in done.stderr


HUNG = """
import ctypes
if starts:
    print("started again", flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
mutex, lock = ctypes.create_string_buffer(64), ctypes.PyDLL(None).pthread_mutex_lock
with parent.connecting(is_own=True, seconds=2):
    lock(mutex)
    print(os.getpid(), flush=True)
    lock(mutex)  # with all threads of Python, and no signal ends it
"""


STARTS_UP = """
from fedgps_ray.cluster.stops import end_at_once, hear
end_at_once()
print(os.getpid(), flush=True)
{work}
"""
WORK = """
hear()
try:
    print("hears", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    sys.exit(7)
"""


@pytest.mark.parametrize("to", ["parent", "group"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("work", ["time.sleep(60)", HANGS])
def test_a_command_that_is_stopped_before_its_work_ends_at_once(work, number, to, begin):
    """Also in the middle of a call that lets no thread of Python run."""
    process, _ = begin(STARTS_UP.format(work=work))
    send = process.send_signal if to == "parent" else lambda one: os.killpg(process.pid, one)
    send(number)
    assert process.wait(patient(20)) == 130
    assert process.stderr.read() == "interrupted; to continue: the same command\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_stopped_at_its_work_ends_it_itself(number, begin):
    process, _ = begin(STARTS_UP.format(work=WORK))
    assert process.stdout.readline() == "hears\n"
    process.send_signal(number)
    assert process.wait(patient(20)) == 7
    assert process.stderr.read() == ""


def test_a_command_that_something_else_ends_before_its_work_ends_like_it(begin):
    process, child = begin(STARTS_UP.format(work="time.sleep(60)"))
    os.kill(child, signal.SIGTERM)
    assert process.wait(patient(20)) == -signal.SIGTERM


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_stopped_while_ray_lets_it_wait_is_not_started_again(number, begin):
    process, _ = begin(HUNG)
    process.send_signal(number)
    assert process.wait(patient(20)) == 130
    assert process.stdout.read() == ""


def test_a_command_that_ray_ends_because_all_were_stopped_is_not_started_again(begin):
    """A job scheduler stops Ray's processes too."""
    program = """
signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
with parent.connecting(is_own=True, seconds=60):
    if not starts:
        print(os.getpid(), flush=True)
        time.sleep(60)
"""
    process, _ = begin(program)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(patient(20)) == 130


def test_a_stop_that_the_command_ignores_is_none():
    """In the background of a shell: Ctrl-C is for others."""
    program = f"""
if not starts:
    os.kill(os.getppid(), signal.SIGINT)
{DIES_CONNECTING.format(seconds=60, own=True, times=1, end="time.sleep(0.5); os._exit(1)")}"""
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    command = [sys.executable, "-c", f"{ignoring}\n{BEGIN}{program}"]
    done = subprocess.run(command, capture_output=True, timeout=patient(60), check=False)
    assert (done.returncode, done.stdout) == (0, b"connected, start 1 []\n")


def test_a_command_that_works_longer_than_connecting_may_take_is_left_alone():
    work = "with parent.connecting(True, 0.1): pass\ntime.sleep(2.5)\nsys.exit(7)"
    assert run(work).returncode == 7


def test_it_says_how_to_resume_what_had_begun(tmp_path):
    (tmp_path / "trial.json").touch()
    begin = f"parent.note_begun(parent.Begun({str(tmp_path)!r}, 'HOST:1', 's3://***@b'))\n"
    dies = DIES_CONNECTING.format(seconds=60, own=False, times=1, end="os._exit(1)")
    done = run(begin + dies)
    to_type = f"fedgps-ray resume {tmp_path} --address HOST:1 --storage 's3://***@b'"
    assert done.stderr.endswith(f"once the cluster is back, continue with: {to_type}\n")


def test_what_had_begun_is_not_thrown_away_when_it_is_started_again(tmp_path):
    (tmp_path / "trial.json").touch()
    begin = f"parent.note_begun(parent.Begun({str(tmp_path)!r}))\n"
    dies = DIES_CONNECTING.format(seconds=60, own=True, times=1, end="os._exit(1)")
    assert run(begin + dies, "run", "--restart").stdout == "connected, start 1 ['run']\n"


def test_notes_of_two_threads_are_both_kept(tmp_path, monkeypatch):
    """Ray is started in the background while the command looks at its folder."""
    with (tmp_path / "notes").open("w+b") as file:
        monkeypatch.setenv(parent.PLACE, f"{os.getppid()} {file.fileno()}")
        monkeypatch.setattr(parent, "_noted", parent.Notes())
        with parent.connecting(is_own=True, seconds=60):
            parent.note_begun(parent.Begun("here"))
            attempt, begun = parent._read(file.fileno())
            assert attempt.until > time.monotonic()
            assert begun == ("here", None, None)
        assert parent._read(file.fileno()).attempt.until is None
        with parent.ending_by_itself():
            pass
        assert parent._read(file.fileno()) == (None, parent.Begun("here"))


def test_it_is_not_started_for_ever():
    done = run(DIES_CONNECTING.format(seconds=60, own=True, times=99, end="os._exit(1)"))
    assert (done.returncode, done.stdout) == (again.LOST, "")
    assert done.stderr.count("starting Ray again") == POLICY.max_new_starts
    assert "for the 6th time in a row; to continue: the same command" in done.stderr


def test_on_a_joined_cluster_it_is_not_started_again():
    done = run(DIES_CONNECTING.format(seconds=60, own=False, times=1, end="os._exit(1)"))
    assert (done.returncode, done.stdout) == (again.LOST, "")
    assert "once the cluster is back, continue with: the same command" in done.stderr


def test_what_a_replaced_command_was_called_with_counts():
    """One that goes on after a loss must not discard again what it has done since."""
    program = """
if starts == 0:
    words = [word for word in sys.orig_argv if word != "--restart"]
    os.execve(sys.executable, words, {**os.environ, parent.STARTS: "1"})
"""
    dies = DIES_CONNECTING.format(seconds=60, own=True, times=2, end="os._exit(1)")
    done = run(program + dies, "run", "--restart")
    assert (done.returncode, done.stdout) == (0, "connected, start 2 ['run']\n")


@pytest.mark.parametrize(
    "before",
    [
        "pass",
        "with parent.ending_by_itself():\n    with parent.connecting(True, 60): pass",
        "try:\n    with parent.connecting(True, 60): 1 / 0\nexcept ZeroDivisionError: pass",
        # a command that has replaced itself while it was connecting
        "if not starts:\n    with parent.connecting(True, 60):\n"
        "        os.execve(sys.executable, sys.orig_argv, {**os.environ, parent.STARTS: '1'})",
    ],
)
def test_failures_at_other_times_are_failures(before):
    done = run(f"{before}\nos._exit(1)")
    assert (done.returncode, done.stderr) == (1, "")


# --- ends and signals -----------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 2, 3, 130])
def test_it_ends_with_the_code_of_the_command(code):
    assert run(f"sys.exit({code})").returncode == code


def test_it_ends_also_if_it_was_started_with_ends_of_children_ignored():
    ignoring = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)"
    command = [sys.executable, "-c", f"{ignoring}\n{BEGIN}sys.exit(7)"]
    assert subprocess.run(command, timeout=patient(60), check=False).returncode == 7


def test_an_alarm_that_was_set_before_ends_it():
    """As perl -e 'alarm 60; exec @ARGV' does, which is a `timeout` where there is none."""
    alarm = "import signal; signal.alarm(1)"
    command = [sys.executable, "-c", f"{alarm}\n{BEGIN}time.sleep(60)"]
    done = subprocess.run(command, timeout=patient(20), check=False)
    assert done.returncode == -signal.SIGALRM


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_it_ends_by_the_signal_that_ended_the_command(number):
    assert run(f"os.kill(os.getpid(), {number:d})").returncode == -number


WAITS = """
stops = 0
def stop(number, frame):
    global stops
    if parent.is_echo():
        return
    stops += 1
    print(number, flush=True)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM):
    signal.signal(number, stop)
print(os.getpid(), flush=True)
while not stops:
    time.sleep(0.01)
time.sleep(0.5)
sys.exit(10 + stops)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM])
@pytest.mark.parametrize("to", ["parent", "child", "group"])
def test_a_signal_reaches_the_command_once(to, number, begin):
    process, child = begin(WAITS)
    assert child != process.pid
    if to == "group":
        os.killpg(process.pid, number)
    else:
        os.kill(process.pid if to == "parent" else child, number)
    assert process.stdout.readline() == f"{number:d}\n"
    assert process.wait(patient(20)) == 11


def test_two_requests_to_stop_with_a_pause_are_two(monkeypatch):
    now = iter([10.0, 10.7, 11.4, 11.5])
    monkeypatch.setattr(parent.time, "monotonic", lambda: next(now))
    monkeypatch.setattr(parent, "_stopped_at", 0.0)
    monkeypatch.setenv(parent.PLACE, f"{os.getppid()} 9")
    assert [parent.is_echo() for _ in range(4)] == [False, True, False, True]


def test_without_a_parent_no_request_is_an_echo(monkeypatch):
    monkeypatch.setenv(parent.PLACE, f"{os.getpid()} 9")  # somebody else's
    assert [parent.is_echo() for _ in range(3)] == [False, False, False]


def test_the_command_is_killed_with_its_parent(begin, until):
    process, child = begin("print(os.getpid(), flush=True)\ntime.sleep(60)")
    process.kill()
    process.wait()
    until(lambda: not Path(f"/proc/{child}").exists(), 10)


REPLACED_IN_A_THREAD = """
import threading
if starts == 0:
    words = (sys.orig_argv[1:], {**os.environ, parent.STARTS: "1"})
    threading.Thread(target=parent.replace_command, args=words).start()
    time.sleep(60)
print(os.getpid(), flush=True)
time.sleep(60)
"""


def test_a_command_that_a_thread_has_replaced_is_killed_with_its_parent(begin, until):
    """As after a loss of Ray, which a thread notices."""
    process, child = begin(REPLACED_IN_A_THREAD)
    process.kill()
    process.wait()
    until(lambda: not Path(f"/proc/{child}").exists(), 10)


@pytest.mark.parametrize("whom", ["parent", "both"])
def test_it_goes_on_after_a_stop(whom, begin):
    """Ctrl-Z and fg: nothing is passed on that nobody has sent."""
    process, child = begin(WAITS)
    stopped = [process.pid] if whom == "parent" else [process.pid, child]
    for number, seconds in ((signal.SIGSTOP, 2 * parent.LOOK_SECONDS), (signal.SIGCONT, 1.0)):
        for pid in stopped:
            os.kill(pid, number)
        time.sleep(seconds)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGTERM)
    assert process.stdout.readline() == f"{signal.SIGTERM:d}\n"
    assert process.wait(patient(20)) == 11


def test_a_terminals_ctrl_c_reaches_the_command_once():
    """The kernel sends it to both; the parent does not pass that one on."""
    controller, terminal = os.openpty()
    program = """
import signal, subprocess, sys
import fcntl, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
"""
    command = [sys.executable, "-c", program + BEGIN + WAITS.replace("parent.is_echo()", "False")]
    process = start(command, stdin=terminal, stdout=subprocess.PIPE, start_new_session=True)
    try:
        process.stdout.readline()
        os.write(controller, b"\x03")
        assert process.stdout.readline() == b"2\n"
        assert process.wait(patient(20)) == 11
    finally:
        process.kill()
        process.communicate()
        os.close(controller)
        os.close(terminal)
