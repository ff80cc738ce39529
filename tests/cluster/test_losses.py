"""What counts as a loss, and what would happen again."""

import errno

import pytest
from ray import exceptions as raised

from fedgps_ray.cluster.losses import is_loss
from fedgps_ray.errors import ClientFailed, Lost, Stopped, UserError


def in_a_task(cause):
    return raised.RayTaskError("work", "a traceback", cause, "ray::work", 1, "127.0.0.1")


LOSSES = [
    raised.ActorDiedError(),
    raised.ActorUnavailableError("gone", None),
    raised.OutOfMemoryError("killed"),
    raised.ObjectLostError("00" * 28, None, ""),
    raised.NodeDiedError("gone"),
    raised.LocalRayletDiedError(),
    raised.WorkerCrashedError(),
    raised.RaySystemError("the raylet is gone"),
    raised.RpcError("unavailable"),
    raised.GetTimeoutError("late"),
    BrokenPipeError(errno.EPIPE, "Broken pipe"),
    BrokenPipeError("without a number"),
    ConnectionResetError(),
    TimeoutError(),
    OSError(errno.EHOSTUNREACH, "No route to host"),
    OSError("Broken pipe"),
    OSError("failed to connect to the raylet"),
    Lost("no actor"),
]
FAULTS = [
    RuntimeError("the dog ate the gradient"),
    ValueError("Broken pipe"),
    OSError(errno.ENOENT, "No such file"),
    OSError(errno.ENOSPC, "No space left on device"),
    OSError("no magic bytes"),
    UserError("a wrong setting"),
    ClientFailed("client 2 failed"),
    Stopped(),
    raised.RuntimeEnvSetupError("no such package"),
    raised.UserCodeException("a bug"),
    None,
]


@pytest.mark.parametrize("error", LOSSES, ids=repr)
def test_losses_are_no_fault_of_a_trial(error):
    assert is_loss(error)
    assert is_loss(in_a_task(error))
    assert is_loss(in_a_task(in_a_task(error)))


@pytest.mark.parametrize("error", FAULTS, ids=repr)
def test_what_would_happen_again_is_no_loss(error):
    assert not is_loss(error)
    assert error is None or not is_loss(in_a_task(error))
