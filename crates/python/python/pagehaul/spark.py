"""Extraction on a cluster with Apache Spark: the same tables as those of `pagehaul-fleet extract` on one machine.

    import pagehaul.spark

    rows = pagehaul.spark.extract(spark, paths, "/shared/tables")
    rows.where("error IS NOT NULL").show()

Workers need the package and pyarrow, and the directory of the tables. Tables of a few dumps come without files:

    spark.dataSource.register(pagehaul.spark.DumpSource)
    spark.read.format("pagehaul").option("table", "tasks").load("/dumps/*")
"""

from __future__ import annotations

import errno
import glob
import json
import os
from typing import TYPE_CHECKING, Iterable, Iterator, List, Optional, Sequence, Union

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ._arrow import MANIFEST, TABLES, Extraction
from .fleet import TableFunction

if TYPE_CHECKING:
    import pyarrow

__all__ = ["DumpSource", "extract"]

_TRIES = 3


def extract(
    spark: SparkSession,
    paths: Iterable[str],
    to: str,
    *,
    tables: Sequence[Union[TableFunction, str]] = (),
    redact: Optional[str] = None,
    time_limit: Optional[str] = None,
    tries: int = _TRIES,
    program: Optional[str] = None,
) -> DataFrame:
    """Makes the tables of dumps on all workers, and returns the rows of the manifest, which are null in `error` where it went well.

    It runs with each action on the result: call one only, such as `collect()`. `paths`, `to` and `redact` are paths on every worker;
    dumps can be URLs. The options are those of `pagehaul.fleet.extract()`. Workers import the functions in `tables` by their modules.

    Each dump is a task. One that kills its worker is tried `tries` times in all, and is a failed row then. `tries` has to be below
    `spark.task.maxFailures`, at which Spark gives up the job.
    """
    most = int(spark.conf.get("spark.task.maxFailures", "4") or 4)
    if not 0 < tries < most:
        raise ValueError(f"tries is {tries}; it has to be 1 or more, and below spark.task.maxFailures, which is {most}")
    places = tuple(function.place if isinstance(function, TableFunction) else function for function in tables)
    extraction = Extraction(to, redact, time_limit, program, tries, places)

    def run(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        return extraction.map(dumps, batches, _attempt())

    dumps = list(paths)
    # A partition each, without a shuffle, whose files would be lost with a worker.
    return spark.range(0, len(dumps), 1, max(len(dumps), 1)).mapInArrow(run, MANIFEST)


class DumpSource(DataSource):
    """The data source `pagehaul`: a table of dumps.

    `load()` takes paths, patterns and URLs, one or a list. Only what the table needs is read of a dump. The option `table` is the name of
    the table; `manifest`, its default, has a row for each dump with the reason why it has no tables. Such a dump has no rows in other
    tables. `redact` and `time_limit` are options of `extract()`.
    """

    @classmethod
    def name(cls) -> str:
        return "pagehaul"

    def schema(self) -> str:
        table = self._table()
        return MANIFEST if table == "manifest" else TABLES[table]

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self.options
        paths = json.loads(options.get("paths", "[]")) or [options.get("path", "")]
        tries = int(options.get("tries", _TRIES))
        extraction = Extraction("", options.get("redact"), options.get("time_limit"), options.get("program"), tries)
        return _Reader(self._table(), [found for path in paths for found in _expand(path)], extraction)

    def _table(self) -> str:
        table: str = self.options.get("table", "manifest")
        if table != "manifest" and table not in TABLES:
            raise ValueError(f"there is no table {table}; there are manifest, {', '.join(TABLES)}")
        return table


class _Reader(DataSourceReader):
    def __init__(self, table: str, paths: List[str], extraction: Extraction):
        self.table = table
        self.paths = paths
        self.extraction = extraction

    def partitions(self) -> List[InputPartition]:
        return [InputPartition(path) for path in self.paths]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        return self.extraction.read(partition.value, self.table, _attempt())


def _attempt() -> int:
    """Returns how often the task that runs was tried before."""
    context = TaskContext.get()
    return context.attemptNumber() if context else 0


def _expand(path: str) -> List[str]:
    if not path:
        raise ValueError("name the dumps: load(PATH)")
    if "://" in path:
        return [path]
    found = sorted(glob.glob(path))
    if not found:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return found
