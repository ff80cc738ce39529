"""What is a loss of the infrastructure, and so never the fault of a trial."""

import errno
import re

from ray.exceptions import (
    AuthenticationError,
    CrossLanguageError,
    ObjectLostError,
    OutOfMemoryError,
    RayActorError,
    RayError,
    RayTaskError,
    RuntimeEnvSetupError,
    UnserializableException,
    UserCodeException,
)

from fedgps_ray.errors import Lost

LOST = (RayActorError, OutOfMemoryError, ObjectLostError)  # what it means to lose an actor
WOULD_HAPPEN_AGAIN = (
    *(AuthenticationError, CrossLanguageError, RuntimeEnvSetupError),
    *(UnserializableException, UserCodeException),
)
BROKEN = {
    getattr(errno, name)
    for name in (
        *("EPIPE", "ECONNRESET", "ECONNREFUSED", "ECONNABORTED", "ENOTCONN", "ESHUTDOWN"),
        *("ETIMEDOUT", "EHOSTUNREACH", "EHOSTDOWN", "ENETUNREACH", "ENETDOWN", "ENETRESET"),
    )
}
# Ray's core raises errors of the operating system without their number
CONNECTION = re.compile(r"broken pipe|connection|socket|raylet|\bgcs\b|plasma", re.IGNORECASE)


def is_loss(error: BaseException | None) -> bool:
    """Say whether an error comes from lost processes, nodes or connections.

    Anything else would happen again, and ends its trial as failed.
    """
    if isinstance(error, RayTaskError):
        return is_loss(error.cause)
    if isinstance(error, RayError):
        return not isinstance(error, WOULD_HAPPEN_AGAIN)
    if isinstance(error, OSError):
        return _is_broken_connection(error)
    return isinstance(error, Lost)


def _is_broken_connection(error: OSError) -> bool:
    if isinstance(error, (ConnectionError, TimeoutError)):
        return True
    if error.errno is None:
        return bool(CONNECTION.search(str(error)))
    return error.errno in BROKEN
