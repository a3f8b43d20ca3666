"""The programs in the wheel."""

from __future__ import annotations

import errno
import pathlib


def path_of(program: str) -> pathlib.Path:
    """Returns the path of a program."""
    path = pathlib.Path(__file__).parent / "bin" / program
    if not path.exists():
        reason = f"this wheel was built without {program}; build it with `make wheel`"
        raise FileNotFoundError(errno.ENOENT, reason, str(path))
    return path
