"""Extraction as a function of Arrow batches, for Spark and anything else that maps batches."""

from __future__ import annotations

import dataclasses
import pathlib
import tempfile
import time
from typing import Dict, Iterable, Iterator, NamedTuple, Optional, Sequence, Tuple

import pyarrow
import pyarrow.parquet

from ._errors import Error
from .fleet import Row, extract

_TYPES: Dict[str, pyarrow.DataType] = {
    "string": pyarrow.string(),
    "int": pyarrow.int32(),
    "bigint": pyarrow.int64(),
    "double": pyarrow.float64(),
    "boolean": pyarrow.bool_(),
    "timestamp": pyarrow.timestamp("us", "UTC"),
    "array<string>": pyarrow.list_(pyarrow.string()),
    "map<string,bigint>": pyarrow.map_(pyarrow.string(), pyarrow.int64()),
    "array<struct<what:string,reason:string>>": pyarrow.list_(
        pyarrow.struct([("what", pyarrow.string()), ("reason", pyarrow.string())])
    ),
}

MANIFEST = (
    "path string, error string, crash_id string, run_id string, tables map<string,bigint>, "
    "missing array<struct<what:string,reason:string>>, seconds double"
)
"""Columns of the manifest, as SQL writes them."""

_RECORDING = (
    "format string, host string, release string, arch string, cpus int, command string, started timestamp"
)
_CRASHES = {
    "dumps": "id_weak boolean, format string, level int, complete boolean, size_bytes bigint, release string, version string, "
    "build_id string, arch string, host string, crash_time timestamp, cpus int, memory_bytes bigint, page_size bigint, "
    "kind string, title string, sig string, sig_fine string, sig_version int, sig_coarse string, coarse_version int, "
    "frames array<string>, panic string, oops_text string, task string, pid int, cpu int, taint string, hardware string, uptime_ns bigint, "
    "log_whole boolean",
    "log_lines": "seq bigint, time_ns bigint, level int, facility int, task int, cpu int, text string",
    "page_classes": "node int, zone string, class string, order int, pages bigint, in_dump_pages bigint",
    "memory_state": "node int, zone string, item string, value bigint, unit string",
    "tasks": "pid int, tgid int, ppid int, comm string, state string, cpu int, kthread boolean, since_run_ns bigint, "
    "stack_id string, crashing boolean",
    "stacks": "stack_id string, frames array<string>, depth int, reliable boolean",
    "modules": "name string, size_bytes bigint, version string, taint string",
    "slab_caches": "name string, object_bytes bigint, objects bigint, slabs bigint, bytes bigint",
    "vmalloc_callers": "caller string, areas bigint, bytes bigint",
}
_RECORDINGS = {
    "reclaim_runs": f"{_RECORDING}, elapsed_ns bigint, mglru boolean, events bigint, lost_events bigint, gaps bigint, damaged bigint, "
    "unfinished bigint, unmatched bigint, uncertain bigint, warnings array<string>",
    "reclaim_figures": "section string, figure string, unit string, run int, value double",
    "reclaim_stalls": "kind string, start_ns bigint, duration_ns bigint, node int, tid int, comm string, cgroup string, order int, "
    "throttled_ns bigint, shrinkers_ns bigint, compaction_ns bigint, scanned_pages bigint, reclaimed_pages bigint, "
    "written_folios bigint, unfinished boolean, uncertain boolean",
    "latency_runs": f"{_RECORDING}, calls bigint, lost_events bigint, ends_without_start bigint, starts_without_end bigint, "
    "open_at_gap bigint, open_at_end bigint, probe_misses bigint, dropped bigint",
    "latency_hist": "function string, low_ns bigint, high_ns bigint, count bigint",
}
TABLES = {
    name: f"{key} string, schema_version int, extractor string, {columns}"
    for key, tables in (("crash_id", _CRASHES), ("run_id", _RECORDINGS))
    for name, columns in tables.items()
}
"""Columns of each table."""


def schema(columns: str) -> pyarrow.Schema:
    """Returns the Arrow schema of columns."""
    pairs = (column.split(" ", 1) for column in columns.split(", "))
    return pyarrow.schema([(name, _TYPES[kind]) for name, kind in pairs])


class Extraction(NamedTuple):
    """How dumps are extracted."""

    to: str
    redact: Optional[str]
    time_limit: Optional[str]
    program: Optional[str]
    tries: int
    python_tables: Tuple[str, ...] = ()
    only: Tuple[str, ...] = ()

    def row(self, path: str, attempt: int) -> Row:
        """Extracts a dump. `attempt` counts from 0."""
        if attempt >= self.tries:
            return _failed(path, f"the worker that extracts it died {attempt} times")
        try:
            return extract(
                path,
                to=self.to,
                only=self.only,
                tables=self.python_tables,
                redact=self.redact,
                time_limit=self.time_limit,
                program=self.program,
            )
        except Error as why:
            return _failed(path, str(why))

    def map(
        self, paths: Sequence[str], batches: Iterable[pyarrow.RecordBatch], attempt: int
    ) -> Iterator[pyarrow.RecordBatch]:
        """Extracts the dumps whose numbers are in the column `id` of each batch, and returns their rows of the manifest."""
        for batch in batches:
            for number in batch.column("id").to_pylist():
                yield self.manifest(paths[number], attempt)

    def manifest(self, path: str, attempt: int) -> pyarrow.RecordBatch:
        """Extracts a dump, and returns its row of the manifest."""
        start = time.monotonic()
        row = self.row(path, attempt)
        value = {**dataclasses.asdict(row), "tables": list(row.tables.items()), "seconds": time.monotonic() - start}
        return pyarrow.RecordBatch.from_pylist([value], schema=schema(MANIFEST))

    def read(self, path: str, table: str, attempt: int) -> Iterator[pyarrow.RecordBatch]:
        """Returns the rows of one table of a dump, which has none if the table cannot be made."""
        with tempfile.TemporaryDirectory(prefix="pagehaul-") as directory:
            only = () if table == "manifest" else (table,)
            manifest = self._replace(to=directory, only=only).manifest(path, attempt)
            if table == "manifest":
                yield manifest
                return
            for file in pathlib.Path(directory, table).rglob("*.parquet"):
                yield from pyarrow.parquet.ParquetFile(file).read().cast(schema(TABLES[table])).to_batches()


def _failed(path: str, error: str) -> Row:
    """Returns the row of a dump without tables."""
    return Row(path=path, tables={}, missing=[], error=error)

