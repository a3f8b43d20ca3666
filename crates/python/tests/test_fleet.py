"""Tests of extraction by the program that PAGEHAUL_FLEET names, on the dumps in the directory that PAGEHAUL_DUMPS names.

No Spark: Arrow batches stand for its partitions. tests/spark_cluster.py runs on a real cluster.
"""

import importlib.util
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

import pagehaul
import pagehaul.fleet

DUMPS = pathlib.Path(os.environ["PAGEHAUL_DUMPS"])
PROGRAM = os.environ["PAGEHAUL_FLEET"]
CRATES = pathlib.Path(__file__).parents[2]
RECORDINGS = [CRATES / "reclaim/tests/data/guest-6.12.pht", CRATES / "latency/tests/data/functions-6.12.pht"]


def tables(directory):
    """Returns the contents of the Parquet files in a directory."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in pathlib.Path(directory).rglob("*.parquet")}


class Tables(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        self.dumps = sorted(map(str, DUMPS.glob("crashes/*")))
        self.assertGreater(len(self.dumps), 10)

    def needs(self, *names):
        for name in names:
            if importlib.util.find_spec(name) is None:
                # scripts/test_wheel.sh installs it for one Python.
                self.skipTest(f"{name} is not installed")

    def by_command(self, *arguments):
        """Returns the tables that the program makes on its own."""
        to = self.scratch / "command"
        subprocess.run([PROGRAM, "extract", "--to", to, *arguments], check=True, stdout=subprocess.DEVNULL)
        return tables(to)

    def run_in_scratch(self, command):
        """Runs a shell command that finds pagehaul-fleet and this Python, and returns its output."""
        programs = self.scratch / "programs"
        programs.mkdir(exist_ok=True)
        for name, path in (("pagehaul-fleet", os.path.abspath(PROGRAM)), ("python3", sys.executable)):
            if not (programs / name).exists():
                (programs / name).write_text(f'#!/bin/sh\nexec "{path}" "$@"\n')
                (programs / name).chmod(0o755)
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        ran = subprocess.run(command, shell=True, cwd=self.scratch, env=environment, stdout=subprocess.PIPE, text=True)
        self.assertEqual(ran.returncode, 0, command)
        return ran.stdout

    def sql(self, query):
        return json.loads(self.run_in_scratch(f"pagehaul-fleet sql --engine python3 --json command {shlex.quote(query)}"))


class Extraction(Tables):
    def program(self, script):
        """Returns a program that stands for pagehaul-fleet."""
        path = self.scratch / "program"
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)
        return path

    def test_tables_are_those_of_the_command(self):
        to = self.scratch / "function"
        row = pagehaul.fleet.extract(DUMPS / "dump", to=to, program=PROGRAM)
        self.assertEqual((row.path, row.error), (str(DUMPS / "dump"), None))
        self.assertEqual(row.crash_id, pagehaul.open(DUMPS / "dump").crash_id)
        self.assertEqual(row.tables["log_lines"], 1)
        self.assertEqual(tables(to), self.by_command(DUMPS / "dump"))

    def test_parts_are_one_dump(self):
        parts = [DUMPS / "part.0", DUMPS / "part.1"]
        row = pagehaul.fleet.extract(*parts, to=self.scratch / "function", program=PROGRAM)
        self.assertEqual(row.crash_id, pagehaul.open(*parts).crash_id)
        self.assertEqual(tables(self.scratch / "function"), self.by_command("--split", *parts))

    def test_what_fails_is_a_row_or_an_error(self):
        row = pagehaul.fleet.extract(__file__, to=self.scratch / "bad", program=PROGRAM)
        self.assertEqual((row.tables, row.crash_id), ({}, None))
        self.assertIn("test_fleet.py", row.error)
        with self.assertRaisesRegex(pagehaul.Error, "cannot create /dev/null/tables"):
            pagehaul.fleet.extract(DUMPS / "dump", to="/dev/null/tables", program=PROGRAM)
        with self.assertRaisesRegex(pagehaul.Error, "pagehaul-fleet ended with status -9"):
            pagehaul.fleet.extract("dump", to=self.scratch / "bad", program=self.program("kill -9 $$"))
        with self.assertRaises(ValueError):
            pagehaul.fleet.extract(to=self.scratch / "bad", program=PROGRAM)

    def test_arrow_batches_give_the_same_files(self):
        arrow = arrow_module(self)
        to = self.scratch / "batches"
        extraction = arrow.Extraction(str(to), None, None, PROGRAM, 3)
        paths = [*self.dumps, __file__]
        # One dump comes twice, as it does when its worker died.
        batches = [arrow.pyarrow.RecordBatch.from_pydict({"id": some}) for some in (range(len(paths)), [0])]
        rows = [row for batch in extraction.map(paths, batches, 0) for row in batch.to_pylist()]
        self.assertEqual([row["path"] for row in rows], paths + self.dumps[:1])
        failed = [row for row in rows if row["error"]]
        self.assertEqual([(row["path"], row["crash_id"], row["tables"]) for row in failed], [(__file__, None, [])])
        self.assertEqual(len({row["crash_id"] for row in rows}), len(self.dumps) + 1)
        self.assertEqual(tables(to), self.by_command(*self.dumps))

    def test_a_dump_that_kills_its_worker_is_a_failed_row(self):
        arrow = arrow_module(self)
        extraction = arrow.Extraction(str(self.scratch), None, None, str(self.program("kill -9 $$")), 3)
        batches = [arrow.pyarrow.RecordBatch.from_pydict({"id": [1, 0]})]
        for attempt, reason in ((2, "pagehaul-fleet ended with status -9"), (3, "the worker that extracts it died 3 times")):
            rows = [row for batch in extraction.map(["b", "a"], batches, attempt) for row in batch.to_pylist()]
            self.assertEqual([(row["path"], row["error"]) for row in rows], [("a", reason), ("b", reason)])

    def test_tables_have_the_declared_columns(self):
        arrow = arrow_module(self)
        from pyarrow import parquet

        to = self.scratch / "command"
        inputs = [*self.dumps, *map(str, RECORDINGS)]
        self.by_command(*inputs)
        self.assertEqual({path.name for path in to.iterdir()} - {"manifest"}, set(arrow.TABLES))
        extraction = arrow.Extraction("", None, None, PROGRAM, 3)
        for name, columns in arrow.TABLES.items():
            schema = arrow.schema(columns)
            stored = [parquet.ParquetFile(path).read().cast(schema) for path in sorted((to / name).rglob("*.parquet"))]
            for path in inputs[-3:]:
                read = [row for batch in extraction.read(path, name, 0) for row in batch.to_pylist()]
                self.assertIn(read, [[], *(table.to_pylist() for table in stored)])
                key = name.startswith(("reclaim", "latency"))
                self.assertEqual(bool(read), name.split("_")[0] in path if key else path == self.dumps[-1], (path, name))
        self.assertEqual(list(extraction.read(__file__, "dumps", 0)), [])


class Queries(Tables):
    def test_queries_of_the_guide_run_as_written(self):
        self.needs("duckdb")
        self.by_command(*self.dumps, *RECORDINGS)
        (self.scratch / "command").rename(self.scratch / "tables")
        text = (CRATES.parent / "docs/guide/src/fleet.md").read_text()
        queries = [line[2:] for block in re.findall(r"```console duckdb\n([^`]*)```", text) for line in block.splitlines()]
        self.assertGreater(len(queries), 3)
        answers = [self.run_in_scratch(query) for query in queries]
        self.assertIn("7.1.2-synth", answers[0])
        self.assertEqual(json.loads(answers[1]), [])
        self.assertIn("io_schedule", answers[2])
        self.assertRegex(answers[3], r"[a-z].*\d\.\d")

    def test_older_and_newer_tables_are_read_together(self):
        self.needs("duckdb", "pyarrow")
        from pyarrow import parquet

        self.by_command(*self.dumps)
        (older,) = (self.scratch / "command").glob(f"dumps/v=1/*/{pagehaul.open(self.dumps[0]).crash_id}.parquet")
        table = parquet.ParquetFile(older).read()
        release = table.column("release").to_pylist()[0]
        # As a program made it that lacked these columns, and one that knows a column more.
        parquet.write_table(table.drop_columns(["hardware", "uptime_ns", "host"]), older, compression="zstd")
        (newer,) = (self.scratch / "command").glob(f"dumps/v=1/*/{pagehaul.open(self.dumps[1]).crash_id}.parquet")
        table = parquet.ParquetFile(newer).read()
        parquet.write_table(table.append_column("firmware", table.column("release")), newer, compression="zstd")

        def check():
            found = self.sql("SELECT release, uptime_ns, firmware FROM dumps")
            self.assertEqual(len(found), len(self.dumps))
            self.assertEqual([row["release"] for row in found if row["uptime_ns"] is None], [release])
            self.assertEqual([row["release"] for row in found if row["firmware"]], table.column("release").to_pylist())
            report = json.loads(self.run_in_scratch("pagehaul-fleet report command --json"))
            self.assertEqual(report["crashes"], len(self.dumps))

        check()
        self.run_in_scratch("pagehaul-fleet compact command")
        check()


def arrow_module(test):
    """Returns what Spark calls on its workers."""
    test.needs("pyarrow")
    import pagehaul._arrow

    return pagehaul._arrow


if __name__ == "__main__":
    unittest.main()
