import os
import random
import subprocess
import sys

import numpy as np
import pytest

from fedgps_ray.seeds import number, stream

KEY = {"seed": 1, "purpose": "order", "round_index": 2, "client": 3}


def test_the_number_is_the_start_of_a_sha256():
    start = bytes.fromhex("bae275d61b2c3a01c2c598fb98958186")  # printf 1/order/2/3 | sha256sum
    assert number(**KEY) == int.from_bytes(start, "little")


def test_first_draws_are_the_recorded_ones():
    rng = stream(**KEY)
    assert rng.integers(2**32, size=3).tolist() == [1212928951, 3431905320, 3692578061]
    assert stream(0, "order").random() == 0.05455012409790627


def test_another_process_draws_the_same():
    code = "from fedgps_ray.seeds import stream; print(stream(1, 'order', 2, 3).random(2).tolist())"
    for hash_seed in ("1", "2"):  # which changes hash() of strings
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == str(stream(**KEY).random(2).tolist())


def test_equal_arguments_give_fresh_equal_streams():
    one, same = stream(**KEY), stream(1, "order", 2, 3)
    assert one.random(5).tolist() == same.random(5).tolist()
    assert one.random() != stream(**KEY).random()  # the first went on, a fresh one starts over


@pytest.mark.parametrize(
    "change", [{"seed": 2}, {"purpose": "crops"}, {"round_index": 3}, {"client": 2}]
)
def test_each_part_of_the_key_changes_every_draw(change):
    draws, others = (stream(**key).random(100) for key in (KEY, {**KEY, **change}))
    assert not set(draws) & set(others)
    assert abs(np.corrcoef(draws, others)[0, 1]) < 0.4  # four deviations of 1 / sqrt(100)


def test_round_and_client_are_zero_unless_given():
    assert number(5, "partition") == number(5, "partition", 0, 0)


def test_neighbouring_keys_do_not_run_together():
    keys = [(1, "a", 1, 11), (1, "a", 11, 1), (11, "a", 1, 1), (1, "a1", 1, 1), (-1, "a", 1, 1)]
    assert len({number(*key) for key in keys}) == len(keys)


def test_global_generators_are_left_alone():
    before = random.getstate(), np.random.get_state()[1].tobytes()
    stream(**KEY).permutation(100)
    assert before == (random.getstate(), np.random.get_state()[1].tobytes())
