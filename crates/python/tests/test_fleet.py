"""Tests of extraction by the program that PAGEHAUL_FLEET names, on the dumps in the directory that PAGEHAUL_DUMPS names.

No Spark: Arrow batches stand for its partitions. tests/spark_cluster.py runs on a real cluster.
"""

import ctypes
import importlib
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
import unittest.mock

import pagehaul
import pagehaul.fleet

DUMPS = pathlib.Path(os.environ["PAGEHAUL_DUMPS"])
PROGRAM = os.environ["PAGEHAUL_FLEET"]
CRATES = pathlib.Path(__file__).parents[2]
RECORDINGS = [CRATES / "reclaim/tests/data/guest-6.12.pht", CRATES / "latency/tests/data/functions-6.12.pht"]


def tables(directory):
    """Returns the contents of the Parquet files in a directory, but for the manifest, which says when it was made."""
    files = {str(path.relative_to(directory)): path.read_bytes() for path in pathlib.Path(directory).rglob("*.parquet")}
    return {path: data for path, data in files.items() if not path.startswith("manifest/")}


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
        self.assertEqual((row.complete, row.size_bytes), (True, (DUMPS / "dump").stat().st_size))
        self.assertEqual(row.time, pagehaul.open(DUMPS / "dump").facts().crash_time)
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

    def test_one_table_is_made_without_the_others(self):
        dump = str(DUMPS / "dump")
        everything = self.by_command(dump)
        for only in (["log_lines"], ["page_classes"], ["tasks", "stacks"]):
            to = self.scratch / only[0]
            row = pagehaul.fleet.extract(dump, to=to, only=only, program=PROGRAM)
            self.assertEqual((set(row.tables), row.error, row.crash_id), (set(only), None, pagehaul.open(dump).crash_id))
            self.assertEqual(tables(to), {path: data for path, data in everything.items() if path.split("/")[0] in only})
        row = pagehaul.fleet.extract(RECORDINGS[0], to=self.scratch / "recording", only=["reclaim_stalls"], program=PROGRAM)
        self.assertEqual((set(row.tables), row.missing), ({"reclaim_stalls"}, []))
        # What triage needs is not read for the log: this has none of it.
        log = pagehaul.fleet.extract(DUMPS / "part.1", to=self.scratch / "part", only=["log_lines"], program=PROGRAM)
        self.assertNotIn("tasks", [missing.what for missing in log.missing])
        for wrong, why in (("manifest", "it is always made"), ("task", "no table of this name")):
            with self.assertRaisesRegex(pagehaul.Error, why):
                pagehaul.fleet.extract(dump, to=self.scratch / "wrong", only=[wrong], program=PROGRAM)

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


TEAM = """
import os, socket, subprocess, sys, tempfile
import pagehaul, pagehaul.fleet, pyarrow

outside = os.path.dirname(os.path.abspath(__file__))
text = pyarrow.schema([("what", pyarrow.string())])

@pagehaul.fleet.table(pyarrow.schema([
    ("pid", pyarrow.int32()), ("address", pyarrow.int64()), ("comm", pyarrow.string()), ("seconds", pyarrow.float64()),
    ("kernel", pyarrow.bool_()), ("seen", pyarrow.timestamp("us", "UTC")), ("names", pyarrow.list_(pyarrow.string())),
]))
def threads(dump):
    print("not an answer")
    for task in dump.triage().tasks:
        yield {"pid": task.pid, "comm": task.comm, "kernel": task.kernel_thread, "names": [task.comm, task.state]}

@pagehaul.fleet.table(text)
def attempts(dump):
    tries = {
        "a file elsewhere": lambda: open(os.path.join(outside, "outside"), "w"),
        "another table": lambda: open(os.path.join(os.environ["TMPDIR"], "../dumps/forged.parquet"), "w"),
        "a connection": lambda: socket.create_connection(("127.0.0.1", 9)),
        "a signal": lambda: os.kill(os.getppid(), 0),
        "memory": lambda: bytearray(3 << 30),
        "a secret": lambda: os.environ["AWS_SECRET_ACCESS_KEY"],
        "temporary files": lambda: tempfile.TemporaryFile(),
    }
    for what, attempt in tries.items():
        try:
            attempt()
            yield {"what": what}
        except (MemoryError, PermissionError, KeyError):
            pass

@pagehaul.fleet.table(text)
def empty(dump):
    return []

@pagehaul.fleet.table(text)
def raises(dump):
    yield {"what": "a row"}
    raise LookupError("no socket")

@pagehaul.fleet.table(text)
def dies(dump):
    os.abort()

@pagehaul.fleet.table(text)
def typo(dump):
    yield {"whta": "x"}

@pagehaul.fleet.table(text)
def wrong_type(dump):
    yield {"what": 5}

@pagehaul.fleet.table(text)
def forever(dump):
    while True:
        pass

def plain(dump):
    return []
"""


class OwnTables(Tables):
    def setUp(self):
        super().setUp()
        self.needs("pyarrow")
        (self.scratch / "team.py").write_text(TEAM)
        sys.path.insert(0, str(self.scratch))
        self.addCleanup(sys.path.remove, str(self.scratch))
        sys.modules.pop("team", None)
        self.team = importlib.import_module("team")
        self.addCleanup(sys.modules.pop, "team")

    def extract(self, *functions, dump=DUMPS / "dump", to="own", **options):
        return pagehaul.fleet.extract(dump, to=self.scratch / to, only=["dumps"], tables=functions, program=PROGRAM, **options)

    def rows(self, table, to="own"):
        from pyarrow import parquet

        return [row for path in (self.scratch / to / table).rglob("*.parquet") for row in parquet.ParquetFile(path).read().to_pylist()]

    def test_a_function_makes_a_table_as_any_other(self):
        self.needs("duckdb")
        dumps = self.dumps[-2:]
        for dump in dumps:
            row = self.extract(self.team.threads, dump=dump, to="command")
            self.assertEqual(row.missing, [])
            count = len(pagehaul.open(dump).triage().tasks)
            self.assertEqual(row.tables, {"dumps": 1, "threads": count} if count else {"dumps": 1})
        before = tables(self.scratch / "command")
        self.assertIn("threads", {path.split("/")[0] for path in before})
        self.assertLessEqual({path for path in before if path.startswith("threads")}, {path.replace("dumps", "threads") for path in before})
        # Doing it again gives the same bytes.
        self.extract(self.team.threads, dump=dumps[-1], to="command")
        self.assertEqual(tables(self.scratch / "command"), before)
        query = "SELECT comm, release, names, seen FROM threads JOIN dumps USING (crash_id) ORDER BY crash_id, threads.pid"
        found = self.sql(query)
        self.assertTrue(found and all(row["names"][0] == row["comm"] and row["seen"] is None for row in found), found)
        self.run_in_scratch("pagehaul-fleet compact command")
        self.assertEqual(self.sql(query), found)

    def test_what_fails_is_a_reason_and_harms_no_other_table(self):
        names = ["threads", "empty", "raises", "dies", "typo", "wrong_type"]
        row = self.extract(*(getattr(self.team, name) for name in names), "team:absent", "team:plain")
        self.assertEqual(row.tables, {"dumps": 1, "threads": len(self.rows("threads"))})
        reasons = {missing.what: missing.reason for missing in row.missing}
        self.assertEqual(list(reasons), ["raises", "dies", "typo", "wrong_type", "absent", "plain"])
        self.assertRegex(reasons["raises"], r"^LookupError: no socket \(.*team.py, line \d+\)$")
        self.assertIn("SIGABRT", reasons["dies"])
        self.assertIn("whta, which the schema lacks", reasons["typo"])
        self.assertIn("ArrowTypeError", reasons["wrong_type"])
        self.assertIn("is not decorated with pagehaul.fleet.table", reasons["plain"])
        self.assertEqual({path.split("/")[0] for path in tables(self.scratch / "own")}, {"dumps", "threads"})
        (manifest,) = self.rows("manifest")
        self.assertIn("no socket", str(manifest["missing"]))
        self.assertEqual((manifest["path"], manifest["tables"]), (str(DUMPS / "dump"), ["dumps", "threads"]))
        self.assertEqual([path for path in (self.scratch / "own").iterdir() if path.name.startswith(".tmp")], [])

    def test_functions_have_limits(self):
        row = self.extract(self.team.forever, time_limit="3s")
        self.assertEqual([missing.reason for missing in row.missing], ["it takes longer than 3s"])
        with unittest.mock.patch.dict(os.environ, AWS_SECRET_ACCESS_KEY="x"):
            row = self.extract(self.team.attempts, memory_mib=512)
        self.assertEqual(row.missing, [])
        worked = {found["what"] for found in self.rows("attempts")}
        if "a file elsewhere" in worked and not (self.scratch / "outside").exists():
            self.fail("the attempts are wrong")
        self.assertEqual(worked - {"a file elsewhere", "another table", "a connection", "a signal"}, {"temporary files"})
        if has_landlock():
            self.assertEqual(worked, {"temporary files"})

    def test_functions_that_no_process_finds_are_refused(self):
        import pyarrow

        schema = pyarrow.schema([("what", pyarrow.string())])

        @pagehaul.fleet.table(schema)
        def local(dump):
            return []

        with self.assertRaisesRegex(ValueError, "inside of another function"):
            self.extract(local)
        for wrong in ("team", "team:tasks", "team:Name", ":x"):
            with self.assertRaises(pagehaul.Error):
                self.extract(wrong)
        with self.assertRaisesRegex(pagehaul.Error, "cannot be used with"):
            self.extract("team:threads", redact=__file__)
        for column in (("a", pyarrow.uint64()), ("crash_id", pyarrow.string()), ("a b", pyarrow.string())):
            with self.assertRaises((TypeError, ValueError)):
                pagehaul.fleet.table(pyarrow.schema([column]))

    def test_the_guide_runs_as_written(self):
        text = (CRATES.parent / "docs/guide/src/fleet.md").read_text()
        (module,) = re.findall(r"```python team_tables\n([^`]*)```", text)
        (commands,) = re.findall(r"```console python-table\n([^`]*)```", text)
        (self.scratch / "team_tables.py").write_text(module)
        (self.scratch / "web1").mkdir()
        (self.scratch / "web1/dump").symlink_to(DUMPS / "dump")
        for line in commands.splitlines():
            self.run_in_scratch(line[2:])
        self.assertEqual(len(self.rows("slab_use", "tables")), len(pagehaul.open(DUMPS / "dump").triage().slab))


def has_landlock():
    """Whether this kernel enforces rules for files, connections and signals (Linux 6.12)."""
    create = {"x86_64": 444, "aarch64": 444}[os.uname().machine]
    return ctypes.CDLL(None).syscall(create, None, ctypes.c_size_t(0), 1) >= 6


class Guide(Tables):
    def test_the_guide_runs_as_written(self):
        """Its commands, on what the chapter calls web1 and web2; in scripts/test_wheel.sh with nothing but the wheel."""
        program = os.environ.get("PAGEHAUL")
        if program is None:
            self.skipTest("PAGEHAUL names no program")
        self.run_in_scratch("true")
        (self.scratch / "programs/pagehaul").symlink_to(os.path.abspath(program))
        for host in ("web1", "web2"):
            (self.scratch / host).mkdir()
            for file in (DUMPS / "hosts" / host).iterdir():
                (self.scratch / host / file.name).symlink_to(file)
            self.run_in_scratch(f"pagehaul facts {host}/dump >{host}/dump.facts.json")
        (self.scratch / "key").write_text("a secret of this site")
        (self.scratch / "reclaim.pht").symlink_to(RECORDINGS[0])
        text = (CRATES.parent / "docs/guide/src/fleet.md").read_text()
        for name in ("bugs.toml", "hours.csv", "hosts.csv"):
            (self.scratch / name).write_text(re.search(f"`{name}`.*?\n```\\w+\n(.*?)```", text, re.DOTALL)[1])
        blocks = re.findall(r"```console (\w+)\n([^`]*)```", text)
        commands = [line[2:] for needs, block in blocks if needs == "fleet" for line in block.splitlines() if line.startswith("$ ")]
        self.assertGreater(len(commands), 20)
        for command in commands:
            self.run_in_scratch(command)


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


class Counting(Tables):
    """Readers that know nothing of pagehaul count each crash once."""

    def readers(self):
        """Returns for each reader what counts the rows of a table by crash."""
        import duckdb
        import pandas
        import polars

        def by_duckdb(directory):
            query = f"SELECT crash_id, count(*) FROM read_parquet('{directory}/**/*.parquet', union_by_name=true) GROUP BY 1"
            return dict(duckdb.sql(query).fetchall())

        def by_polars(directory):
            rows = polars.scan_parquet(f"{directory}/**/*.parquet").group_by("crash_id").len().collect()
            return dict(rows.iter_rows())

        def by_pandas(directory):
            return pandas.read_parquet(directory).groupby("crash_id").size().to_dict()

        return by_duckdb, by_polars, by_pandas

    def test_each_crash_counts_once_whatever_is_done_again(self):
        self.needs("duckdb", "polars", "pandas", "pyarrow")
        names = ("dumps", "tasks", "stacks", "log_lines")
        self.by_command(*self.dumps)

        def counts():
            found = {}
            for name in names:
                several = [reader(self.scratch / "command" / name) for reader in self.readers()]
                self.assertEqual(several, [several[0]] * len(several), name)
                found[name] = several[0]
            return found

        expected = counts()
        self.assertEqual(expected["dumps"], {pagehaul.open(dump).crash_id: 1 for dump in self.dumps})
        self.assertGreater(sum(expected["tasks"].values()), 10)
        copies = []
        for at, dump in enumerate(self.dumps):
            whole = pathlib.Path(dump).read_bytes()
            for kind, copy in (
                ("truncated", whole[:-4096]),
                ("damaged", whole[: len(whole) * 2 // 3] + bytes([0xA5]) * 4096 + whole[len(whole) * 2 // 3 + 4096 :]),
            ):
                path = self.scratch / f"{kind}-{at}"
                path.write_bytes(copy)
                copies.append(str(path))
        compact = "pagehaul-fleet compact command"
        for step in (self.dumps, compact, self.dumps, self.dumps[:1], copies, compact, copies, self.dumps[1:3], compact):
            if isinstance(step, str):
                self.run_in_scratch(step)
            else:
                self.by_command(*step)
            self.assertEqual(counts(), expected, step)


def arrow_module(test):
    """Returns what Spark calls on its workers."""
    test.needs("pyarrow")
    import pagehaul._arrow

    return pagehaul._arrow


if __name__ == "__main__":
    unittest.main()
