"""Makes the tables of a crash, by the program pagehaul-fleet that the package holds. docs/schema.md of pagehaul describes them.

    >>> import pagehaul.fleet
    >>> row = pagehaul.fleet.extract("dump", to="tables")
    >>> row.error is None, sorted(row.tables)[:2]
    (True, ['dumps', 'log_lines'])

A function of yours makes one more table, with a process of its own for each dump:

    import pyarrow
    import pagehaul.fleet

    @pagehaul.fleet.table(pyarrow.schema([("name", pyarrow.string()), ("bytes", pyarrow.int64())]))
    def modules_in_use(dump):
        for module in dump.triage().modules:
            yield {"name": module.name, "bytes": module.size}

    pagehaul.fleet.extract("dump", to="tables", tables=[modules_in_use])
"""

from __future__ import annotations

import functools
import inspect
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Union

from ._errors import Error
from ._objects import build
from ._programs import path_of
from .facts import MissingItem

if TYPE_CHECKING:
    import pyarrow

    from ._dump import Dump

Path = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Row:
    """What was made of a dump. The table `manifest` has it with the absolute path."""

    path: str
    """The dump, as it was named."""
    tables: Dict[str, int]
    """Numbers of rows by table."""
    missing: List[MissingItem]
    error: Optional[str] = None
    """Why there are no tables. None if there are."""
    crash_id: Optional[str] = None
    run_id: Optional[str] = None
    """Identifies a recording."""
    host: Optional[str] = None
    """Name of the host, as its tables have it: a hash with `redact`."""
    time: Optional[int] = None
    """Seconds since 1970 of the crash, or of the start of the recording."""
    size_bytes: Optional[int] = None
    complete: Optional[bool] = None
    """Whether the dump has all its pages. None if that cannot be known."""


Rows = Iterable[Mapping[str, Any]]


class TableFunction:
    """A function that makes a table. `table()` makes it of a function."""

    def __init__(self, function: "Callable[[Dump], Rows]", schema: "pyarrow.Schema"):
        functools.update_wrapper(self, function)
        self.function = function
        self.schema = schema
        self.name = function.__name__

    def __call__(self, dump: "Dump") -> Rows:
        return self.function(dump)

    @property
    def place(self) -> str:
        """Where another process finds the function: MODULE:NAME, or FILE.py:NAME of a script."""
        module = self.function.__module__
        if "<locals>" in self.function.__qualname__:
            raise ValueError(f"{self.name} is inside of another function: other processes do not find it; move it to a module")
        if module != "__main__":
            return f"{module}:{self.name}"
        file = inspect.getsourcefile(self.function)
        if file is None or not os.path.exists(file):
            raise ValueError(f"{self.name} is in no file: other processes do not find it; move it to a module")
        return f"{os.path.abspath(file)}:{self.name}"


def table(schema: "pyarrow.Schema") -> "Callable[[Callable[[Dump], Rows]], TableFunction]":
    """Makes of a function a table for `extract()`, with the name of the function and the columns of `schema`.

    The function gets the open dump, and yields a dict for each row. Columns that a row lacks are null. `crash_id`, `schema_version` and
    `extractor` come first in the table, as in all others. Types are those that every reader takes: string, int32, int64, float64, bool,
    timestamp("us", "UTC") and list_(string).
    """
    import pyarrow

    types = [pyarrow.string(), pyarrow.int32(), pyarrow.int64(), pyarrow.float64(), pyarrow.bool_()]
    types += [pyarrow.timestamp("us", "UTC"), pyarrow.list_(pyarrow.string())]
    for column in schema:
        if column.type not in types:
            raise TypeError(f"column {column.name} is {column.type}; a table has {', '.join(map(str, types))}")
        if column.name in ("crash_id", "schema_version", "extractor", "month", "v") or not column.name.isidentifier():
            raise ValueError(f"a column cannot have the name {column.name}")
    return lambda function: TableFunction(function, schema)


def extract(
    *paths: Path,
    to: Path,
    only: Sequence[str] = (),
    tables: Sequence[Union[TableFunction, str]] = (),
    redact: Optional[Path] = None,
    time_limit: Optional[str] = None,
    memory_mib: Optional[int] = None,
    program: Optional[Path] = None,
) -> Row:
    """Makes the Parquet tables of a dump, a facts file, a recording, or the parts of a split set, in the directory `to`.

    Other processes read the dump, so that it harms nothing but its row: see `pagehaul-fleet extract`, whose options `only` (names of
    tables; `manifest` is always made), `redact` (a file) and `time_limit` (such as "30s") are. `program` is that program [default: the one in the package].

    `tables` are functions that `table()` decorates, or where they are: "MODULE:NAME". Each makes one more table, in a process with the
    time limit and with `memory_mib` of memory [default: 1024]. If it fails, `missing` of the row says why, and the other tables stay.

    Raises pagehaul.Error if nothing can be written to `to`.
    """
    if not paths:
        raise ValueError("extract() needs a path")
    command = [os.fspath(program or path_of("pagehaul-fleet")), "extract", "--json", "--jobs=1", "--to", os.fspath(to)]
    memory = None if memory_mib is None else str(memory_mib)
    options: Mapping[str, Optional[Path]] = {"--redact": redact, "--time-limit": time_limit, "--python-memory": memory}
    for option, value in options.items():
        if value is not None:
            command += [option, os.fspath(value)]
    if only:
        command += ["--only", ",".join(only)]
    for function in tables:
        command += ["--python-table", function.place if isinstance(function, TableFunction) else function]
    if len(paths) > 1:
        command.append("--split")
    command += ["--", *(os.fspath(path) for path in paths)]
    # Functions are imported from where this process imports.
    environment = {**os.environ, "PAGEHAUL_PYTHON": sys.executable, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, env=environment)
    try:
        row: Dict[str, Any] = json.loads(ran.stdout)
    except ValueError:
        reason = ran.stderr.decode(errors="replace").strip() or f"pagehaul-fleet ended with status {ran.returncode}"
        raise Error(reason) from None
    row["tables"] = dict(row["tables"])
    return build(Row, row)
