"""watch: what its keys do, and what stays when there are none."""

import io
import os
import pty

import pytest
from rich.console import Console

from fedgps_ray.cli import keys
from fedgps_ray.cli.commands import watch
from fedgps_ray.cli.commands.watch import answer
from fedgps_ray.cli.declared import Watch
from fedgps_ray.sweep.view import Look
from fedgps_ray.tools.fabricate import Size, fabricate


def after(*pressed, **look):
    chosen = Look(**look)
    for key in pressed:
        assert answer(chosen, key)
    return chosen


def test_scrolling():
    assert after("j", "down", "j", "k").top == 2
    assert after("page down", "up").top == 9
    assert after("k", "up").top == 0


def test_pages_are_opened_and_closed_by_the_same_key():
    assert after("f").page == "failures"
    assert after("f", "f").page == "overview"
    assert after("f", "t").page == "trials"
    assert after("t", "\x1b").page == "overview"


def test_a_filter_is_typed_until_enter():
    look = after("/", *"fedq", "\x7f", "j", "\n", "j")
    assert (look.wanted, look.is_typing, look.top) == ("fedj", False, 1)
    assert after("/", "x", "\x1b").wanted == ""
    assert after("/", "x", "\n", "/").wanted == ""


def test_sorting_goes_round():
    assert after("s").order == "best"
    assert after(*"ssss").order == "mean"


def test_q_leaves_but_not_while_a_filter_is_typed():
    assert not answer(Look(), "q")
    assert after("/", "q").wanted == "q"


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        ("jjk", ["j", "j", "k"]),
        ("\x1b[A\x1b[Bj", ["up", "down", "j"]),
        ("\x1b", ["\x1b"]),
        ("\x1b[5~\x1b[15~", ["page up"]),  # a function key means nothing here
    ],
)
def test_keys_that_a_terminal_sends(sent, found):
    assert keys.split(sent) == found


@pytest.fixture
def terminal(monkeypatch):
    """Make a terminal of two ends; the program reads from one of them."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "r+b", buffering=0) as file:
        monkeypatch.setattr("sys.stdin", file)
        yield ours
    os.close(ours)


def test_keys_are_read_at_once_and_the_terminal_is_put_back(terminal):
    before = keys.termios.tcgetattr(terminal)
    assert keys.can_read()
    with keys.pressed() as wait:
        os.write(terminal, b"js")
        assert [wait(5.0), wait(0.0), wait(0.0)] == ["j", "s", None]
    assert keys.termios.tcgetattr(terminal) == before


def test_no_keys_without_a_terminal(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("q"))
    assert not keys.can_read()


@pytest.fixture
def screen(monkeypatch):
    console = Console(file=io.StringIO(), width=100, height=30, force_terminal=True)
    monkeypatch.setattr(watch, "out", console)
    return console.file


@pytest.fixture
def folder(tmp_path):
    fabricate(tmp_path / "made", Size(trials=30, running=2, failed=1))
    return tmp_path / "made"


def test_browsing_ends_with_q_and_leaves_the_last_picture(folder, screen, terminal):
    os.write(terminal, b"tq")
    watch.watch(Watch(folder=folder))
    text = screen.getvalue()
    assert "status" in text  # the page of the trials was shown
    assert "best so far" in text.rpartition("\x1b[?1049l")[2]  # after the whole screen was left


def test_without_keys_a_folder_that_nobody_drives_is_shown_once(folder, screen, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO())
    watch.watch(Watch(folder=folder))
    assert "not running; last seen" in screen.getvalue()


def test_picture_as_svg_has_no_link_to_fonts(folder, screen, tmp_path):
    watch.watch(Watch(folder=folder, svg=tmp_path / "live.svg"))
    drawn = (tmp_path / "live.svg").read_text()
    assert "FedGPS-CF" in drawn
    assert "@font-face" not in drawn
