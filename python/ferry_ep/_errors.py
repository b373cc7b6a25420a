"""The library's errors as exceptions: one class per status, the same text."""

from __future__ import annotations

import builtins
import enum


class ErrorCode(enum.IntEnum):
    """What the caller can do about an error; the values of ferry_status in ferry.h."""

    INVALID_ARGUMENT = 1  # fix the call
    UNAVAILABLE = 2  # a feature or a library is missing here
    NO_RESOURCE = 3  # memory, descriptors or another resource ran out
    SYSTEM = 4  # the operating system refused
    TIMEOUT = 5  # a peer is alive but late; rebuild the group
    PEER_LOST = 6  # a peer died or left; rebuild the group
    INTERNAL = 7  # a defect of the library; report it


class Error(RuntimeError):
    """Every failure of FerryEP. `code` says what the caller can do; the text is the C++ library's."""

    code: ErrorCode = ErrorCode.INTERNAL


class InvalidArgumentError(Error, ValueError):
    """The call is wrong: a shape, a dtype, a device, a value, or a use after destroy."""

    code = ErrorCode.INVALID_ARGUMENT


class UnavailableError(Error):
    """A feature or a library is missing on this machine."""

    code = ErrorCode.UNAVAILABLE


class NoResourceError(Error, MemoryError):
    """Memory, descriptors or another resource ran out."""

    code = ErrorCode.NO_RESOURCE


class SystemCallError(Error, OSError):
    """The operating system refused."""

    code = ErrorCode.SYSTEM


class TimeoutError(Error, builtins.TimeoutError):
    """A peer is alive and late; the group must be rebuilt."""

    code = ErrorCode.TIMEOUT


class PeerLostError(Error, ConnectionError):
    """A peer's process ended or it left the group; the group must be rebuilt."""

    code = ErrorCode.PEER_LOST


class InternalError(Error):
    """A defect of the library; report it."""

    code = ErrorCode.INTERNAL


_CLASS_OF = {
    kind.code: kind
    for kind in (InvalidArgumentError, UnavailableError, NoResourceError, SystemCallError,
                 TimeoutError, PeerLostError, InternalError)
}


def make_error(status: int, message: str) -> Error:
    """The exception for a status of the C ABI."""
    try:
        return _CLASS_OF[ErrorCode(status)](message)
    except ValueError:
        return InternalError(f"status {status}: {message}")
