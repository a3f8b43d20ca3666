"""Makes the tables of a crash, by the program pagehaul-fleet that the package holds. docs/schema.md of pagehaul describes them.

    >>> import pagehaul.fleet
    >>> row = pagehaul.fleet.extract("dump", to="tables")
    >>> row.error is None, sorted(row.tables)[:2]
    (True, ['dumps', 'log_lines'])
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Union

from ._errors import Error
from ._objects import build
from ._programs import path_of

Path = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Missing:
    """What is absent."""

    what: str
    reason: str


@dataclass(frozen=True)
class Row:
    """A row of the manifest: what was made of a dump."""

    path: str
    """The dump, as it was named."""
    tables: Dict[str, int]
    """Numbers of rows by table."""
    missing: List[Missing]
    error: Optional[str] = None
    """Why there are no tables. None if there are."""
    crash_id: Optional[str] = None
    run_id: Optional[str] = None
    """Identifies a recording."""


def extract(
    *paths: Path,
    to: Path,
    redact: Optional[Path] = None,
    time_limit: Optional[str] = None,
    program: Optional[Path] = None,
) -> Row:
    """Makes the Parquet tables of a dump, a facts file, a recording, or the parts of a split set, in the directory `to`.

    Other processes read the dump, so that it harms nothing but its row: see `pagehaul-fleet extract`, whose options `redact` (a file)
    and `time_limit` (such as "30s") are. `program` is that program [default: the one in the package].

    Raises pagehaul.Error if nothing can be written to `to`.
    """
    if not paths:
        raise ValueError("extract() needs a path")
    command = [os.fspath(program or path_of("pagehaul-fleet")), "extract", "--json", "--jobs=1", "--to", os.fspath(to)]
    options: Mapping[str, Optional[Path]] = {"--redact": redact, "--time-limit": time_limit}
    for option, value in options.items():
        if value is not None:
            command += [option, os.fspath(value)]
    if len(paths) > 1:
        command.append("--split")
    command += ["--", *(os.fspath(path) for path in paths)]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True)
    try:
        row: Dict[str, Any] = json.loads(ran.stdout)
    except ValueError:
        reason = ran.stderr.decode(errors="replace").strip() or f"pagehaul-fleet ended with status {ran.returncode}"
        raise Error(reason) from None
    row["tables"] = dict(row["tables"])
    return build(Row, row)
