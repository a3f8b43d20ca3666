"""Exceptions. Their messages are those of the command line: one sentence that names the file or the address."""

from __future__ import annotations

import os
from typing import Any, Dict, Optional, Tuple, Type


class Error(Exception):
    """An error of pagehaul."""


class OpenError(Error, OSError):
    """A file cannot be opened, or is not a dump that pagehaul reads.

    `filename` is its path. Where the system or a server refused it, `errno` is set, and the exception is also of Python's class for that:
    FileNotFoundError, PermissionError, IsADirectoryError or another. `except OSError` and `except FileNotFoundError` work as with
    Python's own `open()`.
    """

    def __init__(self, message: str, errno: Optional[int] = None, filename: Any = None):
        super().__init__(message)
        self.errno = errno
        self.strerror = None if errno is None else os.strerror(errno)
        self.filename = filename

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> Tuple[Any, ...]:
        return open_error, (self.args[0], self.errno, self.filename)


_OPEN_ERRORS: Dict[Type[OSError], Type[OpenError]] = {OSError: OpenError}


def open_error(message: str, errno: Optional[int], filename: Any) -> OpenError:
    """Returns an OpenError that is also of Python's class for `errno`."""
    builtin = OSError if errno is None else type(OSError(errno, ""))
    if builtin not in _OPEN_ERRORS:
        # It has no name in the package: tracebacks say what to catch.
        _OPEN_ERRORS[builtin] = type("OpenError", (OpenError, builtin), {"__module__": "pagehaul", "__doc__": OpenError.__doc__})
    return _OPEN_ERRORS[builtin](message, errno, filename)


class Closed(Error, ValueError):
    """The dump is closed. Python's files raise ValueError then, too."""


class KernelError(Error):
    """The kernel of a dump is unknown, or one of its structures cannot be read."""


class TraceError(Error):
    """A trace file cannot be read to its end, or lacks the events that a report needs."""


class ReadError(Error):
    """Memory at an address is unavailable."""


class InvalidAddress(ReadError):
    """The address is negative or has more than 64 bits."""


class NotPresent(ReadError):
    """The machine has no memory at the address, or nothing is mapped there."""


class NotInDump(ReadError):
    """The memory exists, but the dump excludes it."""


class Missing(ReadError):
    """The dump should hold the memory and does not: it is truncated, incomplete, or lacks a part."""


class Damaged(ReadError):
    """The dump holds something that cannot be the memory's contents, or the file cannot be read."""


# Their public name, in tracebacks too.
for _error in (
    Error,
    OpenError,
    Closed,
    KernelError,
    TraceError,
    ReadError,
    InvalidAddress,
    NotPresent,
    NotInDump,
    Missing,
    Damaged,
):
    _error.__module__ = "pagehaul"
