"""Standard streams that whoever started the program has closed."""

import subprocess
import sys

PROGRAM = """
import os, sys
from fedgps_ray.__main__ import open_closed_streams
open_closed_streams()
numbers = [stream.fileno() for stream in (sys.stdin, sys.stdout, sys.stderr)]
assert numbers == [0, 1, 2], numbers
assert os.open(os.devnull, os.O_RDONLY) > 2
"""


def test_closed_streams_are_opened_under_their_own_numbers():
    closed = ["sh", "-c", '"$0" -c "$1" <&- >&- 2>&-', sys.executable, PROGRAM]
    assert subprocess.run(closed, check=False).returncode == 0
