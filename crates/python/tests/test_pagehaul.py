"""Tests of the package, on the dumps of one synthetic machine in the directory that PAGEHAUL_DUMPS names."""

import concurrent.futures
import contextlib
import dataclasses
import doctest
import errno
import importlib.util
import io
import json
import os
import pathlib
import pickle
import random
import re
import struct
import subprocess
import sys
import tempfile
import threading
import typing
import unittest
import unittest.mock

import pagehaul
import pagehaul._native
import pagehaul.facts
import pagehaul.latency
import pagehaul.reclaim
import pagehaul.triage
from serving import dumps, serving

DUMPS = pathlib.Path(os.environ["PAGEHAUL_DUMPS"])
CRATES = pathlib.Path(__file__).parents[2]
PAGE = 4096
# Kernel memory that every level keeps.
KEPT = range(0x4A00, 0x4C00)


def load_segments(data):
    """Yields offset, physical address and size in the file of each PT_LOAD of an ELF file."""
    start, _, _, _, size, count = struct.unpack_from("<QQIHHH", data, 32)
    for at in range(start, start + size * count, size):
        kind, _, offset, _, paddr, in_file, _, _ = struct.unpack_from("<IIQQQQQQ", data, at)
        if kind == 1:
            yield offset, paddr, in_file


class Raw:
    """Physical memory, read from the vmcore without pagehaul."""

    def __init__(self):
        self.data = (DUMPS / "vmcore").read_bytes()
        self.segments = list(load_segments(self.data))

    def read(self, paddr, size):
        for offset, start, in_file in self.segments:
            if start <= paddr and paddr + size <= start + in_file:
                at = offset + paddr - start
                return self.data[at : at + size]
        raise LookupError(hex(paddr))


RAW = Raw()


def open_all():
    """Returns the dump in each format."""
    return {
        "vmcore": pagehaul.open(DUMPS / "vmcore"),
        "dump": pagehaul.open(str(DUMPS / "dump")),
        "flattened": pagehaul.open(DUMPS / "flattened"),
        "parts": pagehaul.open(DUMPS / "part.1", DUMPS / "part.0"),
    }


def random_reads(dump, seed, count=300):
    """Compares random reads with the vmcore, and returns the number of those that differ."""
    numbers = random.Random(seed)
    wrong = 0
    for _ in range(count):
        start = numbers.randrange(KEPT.start * PAGE, KEPT.stop * PAGE - 1)
        size = min(numbers.choice([1, 8, 64, 5000, 70000]), KEPT.stop * PAGE - start)
        wrong += dump.read(start, size, physical=True) != RAW.read(start, size)
    return wrong


class Reading(unittest.TestCase):
    def test_formats_have_the_same_bytes(self):
        for name, dump in open_all().items():
            self.assertEqual(random_reads(dump, name), 0, name)

    def test_small_caches_read_the_same(self):
        for cache_bytes in (0, PAGE, 64 * PAGE):
            self.assertEqual(random_reads(pagehaul.open(DUMPS / "dump", cache_bytes=cache_bytes), cache_bytes), 0)

    def test_buffers_are_filled(self):
        dump = pagehaul.open(DUMPS / "dump")
        start, size = KEPT.start * PAGE + 100, 1500000
        buffer = bytearray(size + 2)
        self.assertEqual(dump.readinto(start, memoryview(buffer)[1:-1], physical=True), size)
        self.assertEqual(buffer, b"\0" + RAW.read(start, size) + b"\0")
        with self.assertRaises(TypeError):
            dump.readinto(start, b"cannot be written", physical=True)

    def test_virtual_addresses_are_translated(self):
        for name, dump in open_all().items():
            start = int(dump.vmcoreinfo["SYMBOL(_stext)"], 16)
            paddr = dump.translate(start)
            self.assertTrue(dump.has_page_tables())
            self.assertEqual(dump.read(start, 10000, physical=False), RAW.read(paddr, 10000), name)
            with self.assertRaises(pagehaul.NotPresent):
                dump.read(0x1234, 8, physical=False)

    def test_each_failure_has_its_exception(self):
        dump = pagehaul.open(DUMPS / "dump")
        with self.assertRaisesRegex(pagehaul.NotPresent, "^physical address 0x4000000000000 is in no memory segment$"):
            dump.read(1 << 50, 8, physical=True)
        free = next(pfn for pfn in range(0x4000, len(dump.page_map())) if dump.page_map()[pfn] == "free")
        with self.assertRaisesRegex(pagehaul.NotInDump, "is excluded from the dump$"):
            dump.read(free * PAGE, 8, physical=True)
        with self.assertRaises(pagehaul.Missing):
            pagehaul.open(DUMPS / "truncated").read(KEPT.stop * PAGE - 8, 8, physical=True)
        with self.assertRaises(pagehaul.Missing):
            pagehaul.open(DUMPS / "part.0").read(KEPT.stop * PAGE - 8, 8, physical=True)
        for wrong in ({"cache_bytes": 1 << 40}, {"cache_bytes": -1}):
            with self.assertRaises((ValueError, OverflowError)):
                pagehaul.open(DUMPS / "dump", **wrong)
        with self.assertRaises(ValueError):
            pagehaul.open()
        for size in (1 << 62, (1 << 63) - 1):
            with self.assertRaises((MemoryError, OverflowError)):
                dump.read(0, size, physical=True)
        with self.assertRaises(OverflowError):
            dump.read(0, -1, physical=True)
        with self.assertRaises(pagehaul.NotPresent):
            dump.read((1 << 64) - 4, 8, physical=True)
        self.assertEqual(dump.read(1 << 50, 0, physical=True), b"")

    def test_addresses_that_are_none_are_read_errors(self):
        dump = pagehaul.open(DUMPS / "dump")
        for wrong in (-1, 1 << 64, -(1 << 70)):
            for call in (
                lambda: dump.read(wrong, 8, physical=True),
                lambda: dump.read(wrong, 8, physical=False),
                lambda: dump.readinto(wrong, bytearray(8), physical=True),
                lambda: dump.translate(wrong),
            ):
                with self.assertRaisesRegex(pagehaul.InvalidAddress, f"^address {wrong} is outside of") as raised:
                    call()
                self.assertIsInstance(raised.exception, pagehaul.ReadError)
        with self.assertRaises(TypeError):
            dump.read("0x1000", 8, physical=True)

    def test_reads_name_their_address_space(self):
        dump = pagehaul.open(DUMPS / "dump")
        with self.assertRaisesRegex(TypeError, "physical"):
            dump.read(KEPT.start * PAGE, 8)
        with self.assertRaisesRegex(TypeError, "physical"):
            dump.readinto(KEPT.start * PAGE, bytearray(8))

    def test_incomplete_dumps_say_so(self):
        self.assertEqual(pagehaul.open(DUMPS / "dump").warnings, [])
        self.assertIn("part", pagehaul.open(DUMPS / "part.0").warnings[0])


class Files(unittest.TestCase):
    def refused(self, builtin, number, path, opener=pagehaul.open):
        with self.assertRaises(builtin) as raised:
            opener(path)
        error = raised.exception
        self.assertIsInstance(error, pagehaul.OpenError)
        self.assertEqual((error.errno, error.filename, error.strerror), (number, str(path), os.strerror(number)))
        self.assertIn(str(path), str(error))
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(again), str(again), again.errno, again.filename), (type(error), str(error), number, str(path)))

    def test_files_that_cannot_be_opened_are_errors_of_the_system(self):
        openers = (pagehaul.open, pagehaul.reclaim.report, pagehaul.latency.report)
        with tempfile.TemporaryDirectory() as directory:
            loop = pathlib.Path(directory, "loop")
            loop.symlink_to(loop)
            for opener in openers:
                self.refused(FileNotFoundError, errno.ENOENT, DUMPS / "absent", opener)
                self.refused(NotADirectoryError, errno.ENOTDIR, DUMPS / "dump/absent", opener)
                self.refused(IsADirectoryError, errno.EISDIR, DUMPS, opener)
                self.refused(OSError, errno.ELOOP, loop, opener)
        if os.getuid():
            self.refused(PermissionError, errno.EACCES, "/proc/1/mem")

    def test_permission_is_refused_to_other_users(self):
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory, "dump")
            path.write_bytes(b"")
            path.chmod(0)
            script = "import os, sys, pagehaul; os.getuid() or os.setuid(65534)\ntry: pagehaul.open(sys.argv[1])\nexcept PermissionError as why: print(why.errno, why.filename)"
            os.chmod(directory, 0o755)
            ran = subprocess.run([sys.executable, "-c", script, path], stdout=subprocess.PIPE, text=True)
        self.assertEqual(ran.stdout, f"{errno.EACCES} {path}\n")

    def test_the_part_that_is_absent_is_named(self):
        with self.assertRaises(FileNotFoundError) as raised:
            pagehaul.open(DUMPS / "part.0", DUMPS / "part.10")
        self.assertEqual(raised.exception.filename, str(DUMPS / "part.10"))

    def test_files_that_are_not_dumps_are_errors_of_the_package(self):
        with self.assertRaisesRegex(pagehaul.OpenError, "test_pagehaul") as raised:
            pagehaul.open(__file__)
        self.assertEqual((raised.exception.errno, raised.exception.filename), (None, __file__))
        self.assertNotIsInstance(raised.exception, FileNotFoundError)

    def test_closed_dumps_hold_no_files_and_say_so(self):
        def held():
            links = (os.path.join("/proc/self/fd", name) for name in os.listdir("/proc/self/fd"))
            maps = pathlib.Path("/proc/self/maps").read_text()
            return sum(os.path.islink(link) and os.readlink(link).startswith(str(DUMPS)) for link in links) + maps.count(str(DUMPS))

        before = held()
        with pagehaul.open(DUMPS / "part.0", DUMPS / "part.1") as dump:
            self.assertGreater(held(), before)
            pages, log = dump.page_map(), dump.log()
            dump.read(KEPT.start * PAGE, 8, physical=True)
            self.assertFalse(dump.closed)
        self.assertTrue(dump.closed)
        self.assertEqual(held(), before)
        dump.close()
        self.assertEqual((pages[KEPT.start], len(log)), ("slab", 1))
        self.assertTrue(repr(dump).startswith("<closed pagehaul.Dump ") and dump.paths)
        stay = {"close", "closed", "paths"}
        getters = [name for name in dir(pagehaul.Dump) if isinstance(getattr(pagehaul.Dump, name), (property, type(pagehaul._native.Dump.level)))]
        calls = [lambda name=name: getattr(dump, name) for name in getters if name[0] != "_" and name not in stay]
        calls += [getattr(dump, name) for name in ("log", "page_map", "page_classes", "zones", "facts", "triage", "has_page_tables")]
        calls += [lambda: dump.read(0, 8, physical=True), lambda: dump.read(0, 8, physical=False), lambda: dump.translate(0)]
        self.assertGreater(len(calls), 20)
        for call in calls:
            with self.assertRaisesRegex(pagehaul.Closed, "part.0: the dump is closed; open it again$") as raised:
                call()
            self.assertIsInstance(raised.exception, ValueError)

    def test_a_dump_is_closed_while_threads_read(self):
        dump = pagehaul.open(DUMPS / "dump", cache_bytes=0)
        started = threading.Barrier(5)

        def read_on():
            started.wait()
            try:
                while True:
                    if random_reads(dump, 1, 5):
                        return "wrong"
            except pagehaul.Closed:
                return "closed"

        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            threads = [pool.submit(read_on) for _ in range(4)]
            started.wait()
            dump.close()
            self.assertEqual([thread.result() for thread in threads], ["closed"] * 4)

    def test_the_crash_id_is_found_once(self):
        dump = pagehaul.open(DUMPS / "dump")
        self.assertEqual(dump.crash_id, dump.facts().crash_id)
        with unittest.mock.patch.object(pagehaul.Dump, "facts", side_effect=AssertionError):
            self.assertEqual(len(dump.crash_id), 32)


class Drgn(unittest.TestCase):
    def setUp(self):
        if importlib.util.find_spec("drgn") is None:
            # scripts/test_wheel.sh installs it for one Python.
            self.skipTest("drgn is not installed")

    def test_programs_are_made_of_dumps_paths_parts_and_urls(self):
        import pagehaul.drgn

        start = KEPT.start * PAGE
        with serving(dumps("dump")) as server:
            for paths in ([pagehaul.open(DUMPS / "dump")], [DUMPS / "dump"], [str(DUMPS / "part.1"), DUMPS / "part.0"], [server.url("/dump")]):
                prog = pagehaul.drgn.program(*paths)
                self.assertEqual(prog.read(start, 64, physical=True), RAW.read(start, 64))
        with self.assertRaises(FileNotFoundError):
            pagehaul.drgn.program(DUMPS / "absent")
        with self.assertRaises(TypeError):
            pagehaul.drgn.program(pagehaul.open(DUMPS / "part.0"), DUMPS / "part.1")

    def test_reads_of_closed_dumps_say_so(self):
        import pagehaul.drgn

        with pagehaul.open(DUMPS / "dump") as dump:
            prog = pagehaul.drgn.program(dump)
        with self.assertRaisesRegex(pagehaul.Closed, "the dump is closed"):
            prog.read(KEPT.start * PAGE, 8, physical=True)


class Processes(unittest.TestCase):
    def test_threads_read_at_once(self):
        dump = pagehaul.open(DUMPS / "dump", cache_bytes=64 * PAGE)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertEqual(sum(pool.map(lambda seed: random_reads(dump, seed), range(16))), 0)

    def test_children_read_what_parents_opened(self):
        dump = pagehaul.open(DUMPS / "dump", cache_bytes=64 * PAGE)
        random_reads(dump, 0, 20)
        done = threading.Event()

        def read_on():
            while not done.is_set():
                random_reads(dump, 1, 10)

        # Forks while other threads are inside a read.
        threads = [threading.Thread(target=read_on) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            for seed in range(8):
                child = os.fork()
                if child == 0:
                    fine = False
                    try:
                        fresh = pagehaul.open(DUMPS / "dump")
                        fine = random_reads(dump, seed) == 0 and dump.triage().system.release == fresh.facts().release
                    finally:
                        os._exit(0 if fine else 1)
                self.assertEqual(random_reads(dump, seed + 100, 50), 0)
                self.assertEqual(os.waitpid(child, 0)[1], 0)
        finally:
            done.set()
            for thread in threads:
                thread.join()


class Describing(unittest.TestCase):
    def test_formats_say_the_same(self):
        dumps = open_all()
        self.assertEqual({name: dump.format for name, dump in dumps.items()},
                         {"vmcore": "elf", "dump": "kdump", "flattened": "flattened", "parts": "split"})
        self.assertEqual([dump.level for dump in dumps.values()], [None, 31, 31, 31])
        self.assertEqual(len({dump.crash_id for dump in dumps.values()}), 1)
        self.assertEqual(len({dump.vmcoreinfo_text for dump in dumps.values()}), 1)
        dump = dumps["dump"]
        self.assertEqual((dump.machine, dump.page_size, dump.pointer_size, dump.byte_order), ("x86_64", 4096, 8, "little"))
        self.assertEqual([path.name for path in map(pathlib.Path, dumps["parts"].paths)], ["part.1", "part.0"])
        self.assertTrue(all(start < end for start, end in dump.ranges))
        self.assertIn("VMCOREINFO", [note.name for note in dump.notes])
        cpus = dump.registers
        self.assertEqual([cpu.cpu for cpu in cpus], list(range(dump.facts().cpus)))
        self.assertEqual({"rip", "rsp", "rflags"} - set(cpus[0].registers), set())

    def test_log_and_facts_agree(self):
        dump = pagehaul.open(DUMPS / "dump")
        rows = dump.log().rows()
        self.assertEqual(len(rows), len(dump.log()))
        self.assertEqual([row["text"] for row in rows], [record.text for record in dump.facts().log])
        self.assertEqual((rows[0]["time_ns"], rows[0]["task"], rows[0]["cpu"]), (1500000000, 7, None))
        self.assertEqual(dump.facts().crash.kind, "requested")

    def test_triage_is_typed(self):
        report = pagehaul.open(DUMPS / "dump").triage(stacks=True)
        writer = next(task for task in report.tasks if task.comm == "writer")
        self.assertEqual((writer.pid, writer.state), (20, "D"))
        self.assertGreater(writer.address, 1 << 63)
        stack = next(found.stack for found in report.stacks if found.pid == 20)
        self.assertEqual([frame.function for frame in stack.frames][:3], ["__schedule", "schedule", "io_schedule"])
        self.assertEqual(report.states["D"], 1)
        self.assertIsNone(pagehaul.open(DUMPS / "dump").triage().stacks)

    def test_triage_of_a_dump_that_lost_its_symbols_says_what_is_missing(self):
        report = pagehaul.open(DUMPS / "part.1").triage()
        self.assertTrue(any(line.endswith("only symbols lead to them") for line in report.missing), report.missing)
        self.assertIn("tasks", {gap.part for gap in report.gaps})

    def test_objects_have_every_field_of_the_documents(self):
        dump = pagehaul.open(DUMPS / "dump")
        check_fields(self, pagehaul.facts.Facts, json.loads(dump._facts_json()))
        check_fields(self, pagehaul.triage.Report, json.loads(dump._triage_json(True)))


class Recordings(unittest.TestCase):
    def test_reclaim_is_reported(self):
        for name in ("guest-6.1.pht", "guest-7.2.pht", "memcg-a.pht"):
            path = CRATES / "reclaim/tests/data" / name
            report = pagehaul.reclaim.report(path)
            self.assertEqual(report.label, path.stem)
            self.assertGreater(report.source.events, 0)
            self.assertIn("Direct reclaims", report.rows())
            check_fields(self, pagehaul.reclaim.Report, json.loads(pagehaul._native._reclaim_json(path, "")))

    def test_latencies_are_reported(self):
        path = CRATES / "latency/tests/data/functions-6.12.pht"
        report = pagehaul.latency.report(path, by_function=True)
        self.assertGreater(report.histograms[0].count, 0)
        self.assertEqual(sum(bucket.count for bucket in report.histograms[0].log2), report.histograms[0].count)
        check_fields(self, pagehaul.latency.Report, json.loads(pagehaul._native._latency_json(path, ["*"], None, "task", False)))
        reclaim = CRATES / "reclaim/tests/data/guest-6.12.pht"
        between = ("vmscan:mm_vmscan_direct_reclaim_begin", "vmscan:mm_vmscan_direct_reclaim_end")
        self.assertGreater(pagehaul.latency.report(reclaim, between=between).histograms[0].count, 0)

    def test_other_files_are_errors(self):
        path = CRATES / "latency/tests/data/functions-6.12.pht"
        with self.assertRaises(pagehaul.TraceError):
            pagehaul.reclaim.report(path)
        with self.assertRaises(pagehaul.TraceError):
            pagehaul.latency.report(path, between=("sched:a", "sched:b"))
        for wrong in ("no event", "also:not:one"):
            with self.assertRaises(ValueError):
                pagehaul.latency.report(path, between=(wrong, "sched:b"))
        for path in (DUMPS / "dump", DUMPS / "absent"):
            with self.assertRaises(pagehaul.OpenError):
                pagehaul.reclaim.report(path)


def check_fields(test, kind, value):
    """Fails if a field of a JSON document has no place in the dataclass `kind`, or is of another type there."""
    if value is None or kind is typing.Any:
        return
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Union:
        check_fields(test, arguments[0], value)
    elif origin is list:
        for item in value:
            check_fields(test, arguments[0], item)
    elif origin is tuple:
        test.assertEqual(len(arguments), len(value), kind)
        for item_kind, item in zip(arguments, value):
            check_fields(test, item_kind, item)
    elif origin is dict:
        for _, item in value.items() if isinstance(value, dict) else value:
            check_fields(test, arguments[1], item)
    elif dataclasses.is_dataclass(kind):
        types = typing.get_type_hints(kind)
        test.assertEqual(set(value) - set(types), set(), kind)
        for name, item in value.items():
            check_fields(test, types[name], item)
    elif kind is int and isinstance(value, str):
        test.assertTrue(value.startswith("0x"), value)
    else:
        test.assertIsInstance(value, (int, float) if kind is float else kind)


class Pages(unittest.TestCase):
    def test_classes_add_up(self):
        dump = pagehaul.open(DUMPS / "dump")
        counts = {row["class"]: row["pages"] for row in dump.page_classes().rows()}
        pages = dump.page_map()
        existing = set()
        for start, end in dump.ranges:
            existing.update(range(start // PAGE, -(-end // PAGE)))
        named = {}
        for pfn in existing:
            named[pages[pfn]] = named.get(pages[pfn], 0) + 1
        self.assertEqual(named, counts)
        self.assertEqual({pages[pfn] for pfn in KEPT}, {"slab"})
        self.assertEqual(pages[-1], pages[len(pages) - 1])
        self.assertEqual(dump.zones().columns, ["node", "zone", "class", "pages"])
        for pfn in (len(pages), -len(pages) - 1):
            with self.assertRaises(IndexError):
                pages[pfn]
        with self.assertRaises(TypeError):
            pages["slab"]

    def test_maps_have_slices(self):
        pages = pagehaul.open(DUMPS / "dump").page_map()
        names = list(pages)
        self.assertEqual(len(names), len(pages))
        around = slice(KEPT.start - 3, KEPT.start + 3)
        for part in (around, slice(None), slice(-10, None), slice(5, 2), slice(None, None, -1), slice(10, 1000, 7), slice(1 << 40, None)):
            self.assertEqual(list(pages[part]), names[part], part)
            self.assertIsInstance(pages[part], pagehaul.PageMap)
        self.assertEqual(list(pages[around][1:]), names[around][1:])

    def test_numpy_shares_the_bytes(self):
        numpy = self.library("numpy")
        pages = pagehaul.open(DUMPS / "dump").page_map()
        array = numpy.asarray(pages)
        self.assertEqual((array.dtype, array.shape, array.flags.writeable), (numpy.uint8, (len(pages),), False))
        self.assertEqual(array.__array_interface__["data"][0], pages.__array_interface__["data"][0])
        self.assertEqual(numpy.asarray(pages[KEPT.start :])[0], array[KEPT.start])
        name = pages[KEPT.start]
        del pages
        self.assertEqual(pagehaul.PAGE_CLASSES[array[KEPT.start]], name)

    def test_arrow_takes_tables_and_maps(self):
        arrow = self.library("pyarrow")
        dump = pagehaul.open(DUMPS / "dump")
        for table in (dump.log(), dump.page_classes(), dump.zones()):
            taken = arrow.table(table)
            self.assertEqual(taken.to_pylist(), table.rows())
            self.assertEqual(arrow.schema(table), taken.schema)
        pages = dump.page_map()
        taken = arrow.array(pages)
        del dump
        self.assertEqual(taken[KEPT.start].as_py(), "slab")
        self.assertEqual(len(taken), len(pages))
        self.assertEqual(arrow.array(pages[KEPT.start : KEPT.stop : 5]).to_pylist(), list(pages[KEPT.start : KEPT.stop : 5]))
        self.assertEqual(arrow.array(pages[KEPT.start : KEPT.stop]).to_pylist(), list(pages[KEPT.start : KEPT.stop]))

    def library(self, name):
        try:
            return __import__(name)
        except ImportError:
            # scripts/test_wheel.sh installs it for one Python.
            self.skipTest(f"{name} is not installed")


class Programs(unittest.TestCase):
    def test_arguments_and_status_are_passed_on(self):
        if not (pathlib.Path(pagehaul.__file__).parent / "bin").exists():
            self.skipTest("the wheel was built without programs")
        for arguments, said in ((["info", "a b"], "pagehaul info a b\n"), (["fleet", "report"], "pagehaul-fleet report\n")):
            ran = subprocess.run([sys.executable, "-m", "pagehaul", *arguments], stdout=subprocess.PIPE, text=True)
            self.assertEqual((ran.stdout, ran.returncode), (said, 3))


class Documented(unittest.TestCase):
    def test_examples_work(self):
        previous = os.getcwd()
        os.chdir(DUMPS)
        try:
            dump = pagehaul.open("dump")
            results = [doctest.testmod(module, extraglobs={"dump": dump}) for module in (pagehaul, pagehaul._dump)]
        finally:
            os.chdir(previous)
        self.assertEqual(sum(result.failed for result in results), 0)
        self.assertGreater(sum(result.attempted for result in results), 10)

    def test_guide_works(self):
        text = (pathlib.Path(__file__).parents[3] / "docs/guide/src/python.md").read_text()
        blocks = re.findall(r"```python(.*)\n([^`]*)```", text)
        self.assertGreater(len(blocks), 4)
        names = {}
        recording = DUMPS / "reclaim.pht"
        if not recording.exists():
            recording.symlink_to(CRATES / "reclaim/tests/data/guest-6.12.pht")
        previous = os.getcwd()
        os.chdir(DUMPS)
        try:
            with serving(dumps("dump")) as server:
                for needs, block in blocks:
                    if all(map(importlib.util.find_spec, needs.split())):
                        with contextlib.redirect_stdout(io.StringIO()) as said:
                            exec(block.replace("https://crashes.example.com", server.url("")), names)
                        self.assertTrue(said.getvalue(), block)
        finally:
            os.chdir(previous)


if __name__ == "__main__":
    unittest.main()
