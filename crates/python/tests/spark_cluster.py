"""Extracts on a real Spark cluster: a master, two workers and their executors, one of which is killed in the middle.

    python spark_cluster.py check DUMPS PAGEHAUL-FLEET
    python spark_cluster.py bench PAGEHAUL-FLEET DUMP...

DUMPS has a directory `crashes`. The Python that runs it has pyspark, pyarrow and the package.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import pagehaul.spark
from pyarrow import parquet
from pyspark.sql import SparkSession

# Stands for pagehaul-fleet. Its parent is the worker of Python, whose grandparent is the executor.
DEADLY = """#!/bin/sh
parent() { awk '/^PPid:/ { print $2 }' "/proc/$1/status"; }
for dump; do :; done
case $dump in
*kills-worker) kill -KILL "$PPID"; exit 1 ;;
*kills-executor)
    if mkdir "$0.killed" 2>/dev/null; then
        executor=$(parent "$(parent "$PPID")")
        tr '\\0' ' ' <"/proc/$executor/cmdline" | grep -q CoarseGrainedExecutorBackend && kill -KILL "$executor" && touch "$0.killed/executor"
        exit 1
    fi ;;
esac
exec "$FLEET" "$@"
"""

OWN = """
import pagehaul.fleet, pyarrow

@pagehaul.fleet.table(pyarrow.schema([("warnings", pyarrow.int64())]))
def damage(dump):
    yield {"warnings": len(dump.warnings)}
"""


def session(master, fleet):
    """Starts Spark on loopback."""
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1", FLEET=fleet)
    builder = SparkSession.builder.master(master).appName("pagehaul").config("spark.ui.enabled", "false")
    for key in ("spark.driver.memory", "spark.executor.memory"):
        builder = builder.config(key, "512m")
    spark = builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def tables(directory):
    """Returns the contents of the Parquet files in a directory, but for the manifest, which says when it was made."""
    files = {str(path.relative_to(directory)): path.read_bytes() for path in pathlib.Path(directory).rglob("*.parquet")}
    return {path: data for path, data in files.items() if not path.startswith("manifest/")}


def by_command(fleet, dumps, to, *options):
    subprocess.run([fleet, "extract", *options, "--to", to, *dumps], check=True, stdout=subprocess.DEVNULL)
    return tables(to)


def check(scratch, dumps, fleet):
    crashes = sorted(dumps.glob("crashes/*"))
    expected = by_command(fleet, crashes, scratch / "one")
    assert len(expected) == 9 * len(crashes), len(expected)

    inputs = scratch / "dumps"
    shutil.copytree(dumps / "crashes", inputs)
    # The crash of this dump is in the tables, since its executor dies at the first try only.
    middle = inputs / crashes[len(crashes) // 2].name
    middle.rename(inputs / f"{middle.name}-kills-executor")
    shutil.copy(crashes[0], inputs / "kills-worker")
    (inputs / "bad").write_text("no dump")
    deadly = scratch / "deadly"
    deadly.write_text(DEADLY)
    deadly.chmod(0o755)

    spark = session("local-cluster[2,1,1024]", fleet)
    paths = sorted(map(str, inputs.iterdir()))
    rows = pagehaul.spark.extract(spark, paths, str(scratch / "cluster"), program=str(deadly)).collect()
    assert (scratch / "deadly.killed/executor").exists(), "no executor was killed"
    assert sorted(row.path for row in rows) == paths, rows
    failed = {pathlib.Path(row.path).name: row.error for row in rows if row.error}
    assert failed.keys() == {"bad", "kills-worker"}, failed
    assert failed["kills-worker"] == "the worker that extracts it died 3 times", failed
    assert tables(scratch / "cluster") == expected, "the tables differ"
    by_path = {row.path: row for row in rows}
    assert by_path[paths[0]].tables["dumps"] == 1 and by_path[paths[0]].seconds > 0, by_path[paths[0]]
    print(f"ok   {len(paths)} dumps, {len(expected)} files equal to those of one machine; an executor was killed")

    # A second job over the same tables changes none.
    pagehaul.spark.extract(spark, map(str, crashes), str(scratch / "cluster"), program=fleet).collect()
    assert tables(scratch / "cluster") == expected, "the second job changed tables"
    print("ok   the same after a second job")

    # Rows by crash as Spark counts them, which knows nothing of the names of files.
    def counts():
        return {
            table: {row.crash_id: row["count"] for row in spark.read.parquet(f"{scratch}/cluster/{table}/v=1").groupBy("crash_id").count().collect()}
            for table in ("dumps", "tasks")
        }

    before = counts()
    assert set(before["dumps"].values()) == {1} and len(before["dumps"]) == len(crashes), before
    cut = scratch / "cut"
    cut.write_bytes(crashes[0].read_bytes()[:-4096])
    compact = [fleet, "compact", f"{scratch}/cluster"]
    for step in (compact, crashes, [cut], crashes[:1], compact):
        if step is compact:
            subprocess.run(step, check=True, stdout=subprocess.DEVNULL)
        else:
            pagehaul.spark.extract(spark, map(str, step), str(scratch / "cluster"), program=fleet).collect()
        spark.catalog.clearCache()
        assert counts() == before, (step, counts())
    print("ok   each crash counts once after compact, a third job and a truncated copy")

    (scratch / "own.py").write_text(OWN)
    to = str(scratch / "cluster")
    rows = pagehaul.spark.extract(spark, map(str, crashes), to, tables=[f"{scratch}/own.py:damage"], program=fleet).collect()
    assert all(row.tables["damage"] == 1 for row in rows), rows
    own = spark.read.parquet(f"{to}/damage/v=1").join(spark.read.parquet(f"{to}/dumps/v=1"), "crash_id")
    assert own.where("warnings IS NOT NULL AND release IS NOT NULL").count() == len(crashes)
    print("ok   a table of a function in Python")

    spark.dataSource.register(pagehaul.spark.DumpSource)
    source = spark.read.format("pagehaul").option("program", fleet)
    for table in ("dumps", "stacks"):
        found = source.option("table", table).load(f"{dumps}/crashes/*")
        stored = spark.read.parquet(f"{scratch}/one/{table}/v=1").drop("month")
        assert found.columns == stored.columns, (table, found.columns, stored.columns)
        assert found.count() == stored.count() and found.exceptAll(stored).isEmpty(), table
    # An older file lacks a column.
    file = next((scratch / "one/dumps/v=1").rglob("*.parquet"))
    parquet.write_table(parquet.ParquetFile(file).read().drop_columns(["uptime_ns"]), file)
    merged = spark.read.option("mergeSchema", True).parquet(f"{scratch}/one/dumps/v=1")
    assert merged.count() == len(crashes) and merged.where("uptime_ns IS NULL").count() == 1
    several = source.option("table", "dumps").load([str(crashes[0]), f"{dumps}/crashes/{crashes[1].name}*"])
    assert {row.crash_id for row in several.collect()} == {by_path[str(inputs / crashes[at].name)].crash_id for at in (0, 1)}
    manifest = source.option("table", "manifest").load(f"{inputs}/*")
    assert manifest.where("error IS NOT NULL").count() == 1
    print("ok   the data source reads the same rows")

    text = (pathlib.Path(__file__).parents[3] / "docs/guide/src/fleet.md").read_text()
    blocks = re.findall(r"```python spark\n([^`]*)```", text)
    assert len(blocks) == 2, blocks
    names = {"spark": spark}
    for block in blocks:
        exec(block.replace('"/dumps/', f'"{dumps}/crashes/').replace('"/shared/tables"', repr(str(scratch / "guide"))), names)
    assert tables(scratch / "guide") == expected and names["tasks"].count() == len(crashes)
    print("ok   the guide's examples")
    spark.stop()


def bench(scratch, fleet, dumps):
    """Prints the seconds of one worker and of two."""
    for workers in (1, 2):
        spark = session(f"local-cluster[{workers},1,1024]", fleet)
        seconds = []
        # The first round starts executors and Python.
        for _ in range(3):
            shutil.rmtree(scratch / "tables", ignore_errors=True)
            start = time.monotonic()
            rows = pagehaul.spark.extract(spark, dumps, str(scratch / "tables"), program=fleet).collect()
            seconds.append(time.monotonic() - start)
            assert not any(row.error for row in rows), rows
        busy = sum(row.seconds for row in rows)
        times = " ".join(f"{value:.2f}" for value in seconds)
        print(f"{workers} workers: {times} s for {len(dumps)} dumps, {busy:.2f} s of it in tasks; load {os.getloadavg()[0]:.1f}")
        spark.stop()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        if sys.argv[1] == "check":
            check(pathlib.Path(directory), pathlib.Path(sys.argv[2]).absolute(), os.path.abspath(sys.argv[3]))
        else:
            bench(pathlib.Path(directory), os.path.abspath(sys.argv[2]), list(map(os.path.abspath, sys.argv[3:])))
