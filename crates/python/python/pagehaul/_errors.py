"""Exceptions. Their messages are those of the command line: one sentence that names the file or the address."""


class Error(Exception):
    """An error of pagehaul."""


class OpenError(Error, OSError):
    """A file cannot be opened, or is no dump that pagehaul reads."""


class KernelError(Error):
    """The kernel of a dump is unknown, or one of its structures cannot be read."""


class TraceError(Error):
    """A trace file cannot be read to its end, or lacks the events that a report needs."""


class ReadError(Error):
    """Memory at an address is unavailable."""


class NotPresent(ReadError):
    """The machine has no memory at the address, or nothing is mapped there."""


class NotInDump(ReadError):
    """The memory exists, but the dump excludes it."""


class Missing(ReadError):
    """The dump should hold the memory and does not: it is truncated, incomplete, or lacks a part."""


class Damaged(ReadError):
    """The dump holds something that cannot be the memory's contents, or the file cannot be read."""


# Their public name, in tracebacks too.
for _error in (Error, OpenError, KernelError, TraceError, ReadError, NotPresent, NotInDump, Missing, Damaged):
    _error.__module__ = "pagehaul"
