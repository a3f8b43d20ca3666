"""The process of `pagehaul-fleet extract --python-table`: makes the table of one function and one dump.

pagehaul-fleet calls `main()`, limits its memory, its time and its rights, and reads the line of JSON that it prints.
"""

from __future__ import annotations

import datetime
import importlib
import importlib.util
import itertools
import json
import os
import sys
import tempfile
import traceback
from types import ModuleType
from typing import Any, Dict, Iterable, Iterator, List

from ._dump import Dump
from .fleet import TableFunction

_BATCH = 1 << 16


def load(place: str) -> TableFunction:
    """Returns the function at MODULE:NAME or FILE.py:NAME."""
    source, name = place.rsplit(":", 1)
    module = _from_file(source) if source.endswith(".py") else importlib.import_module(source)
    function = getattr(module, name)
    if not isinstance(function, TableFunction):
        raise TypeError(f"{place} is not decorated with pagehaul.fleet.table")
    if function.name != name:
        raise TypeError(f"{place} is the function {function.name} under another name")
    return function


def _from_file(path: str) -> ModuleType:
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(path))[0], path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def write(function: TableFunction, dump: Dump, to: str) -> int:
    """Writes the table of a dump where pagehaul-fleet would, and returns the number of rows."""
    import pyarrow
    import pyarrow.parquet

    facts = dump.facts()
    key = {"crash_id": facts.crash_id, "schema_version": facts.schema_version, "extractor": f"{function.__module__}:{function.name}"}
    types = {"crash_id": pyarrow.string(), "schema_version": pyarrow.int32(), "extractor": pyarrow.string()}
    schema = pyarrow.schema([*types.items(), *function.schema])
    month = "unknown"
    if facts.crash_time is not None:
        month = datetime.datetime.fromtimestamp(facts.crash_time, datetime.timezone.utc).strftime("%Y-%m")
    directory = os.path.join(to, function.name, f"v={facts.schema_version}", f"month={month}")
    path = os.path.join(directory, f"{facts.crash_id}.parquet")
    rows = iter(function(dump))
    first = _batch(rows, function, key)
    if not first:
        # What an older function made of this crash.
        if os.path.exists(path):
            os.unlink(path)
        return 0
    os.makedirs(directory, exist_ok=True)
    count = 0
    # Readers see all of the file or nothing.
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".tmp", delete=False) as file:
        try:
            with pyarrow.parquet.ParquetWriter(file, schema, compression="zstd", compression_level=3) as writer:
                while first:
                    writer.write_batch(pyarrow.RecordBatch.from_pylist(first, schema))
                    count += len(first)
                    first = _batch(rows, function, key)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o600)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
    return count


def _batch(rows: Iterator[Any], function: TableFunction, key: Dict[str, Any]) -> List[Dict[str, Any]]:
    names = set(function.schema.names)
    batch = []
    for row in itertools.islice(rows, _BATCH):
        unknown = set(row) - names
        if unknown:
            raise KeyError(f"a row has {', '.join(sorted(map(str, unknown)))}, which the schema lacks")
        batch.append({**row, **key})
    return batch


def _reason(why: BaseException) -> str:
    """Returns the exception and the last line of the user's code that raised it."""
    text = "".join(traceback.format_exception_only(type(why), why)).strip().replace("\n", "; ")
    own = os.path.dirname(os.path.abspath(__file__))
    frames = [frame for frame in traceback.extract_tb(why.__traceback__) if not frame.filename.startswith((own, "<"))]
    return f"{text} ({frames[-1].filename}, line {frames[-1].lineno})" if frames else text


def main(to: str, place: str, paths: Iterable[str]) -> None:
    """Makes a table, and prints the number of its rows or why there is none."""
    answer = os.fdopen(os.dup(1), "w")
    # What the function prints is no answer.
    os.dup2(2, 1)
    rows, error = 0, None
    try:
        function = load(place)
        with Dump(*paths) as dump:
            rows = write(function, dump, to)
    except BaseException as why:
        error = _reason(why)
    with answer:
        json.dump({"rows": rows, "error": error}, answer)
    # Threads of the function do not hold the process.
    os._exit(0)
