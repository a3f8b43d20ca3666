"""Tests of dumps and recordings on servers."""

import concurrent.futures
import os
import signal
import threading
import unittest
import unittest.mock

import pagehaul
import pagehaul.latency
import pagehaul.reclaim
from serving import dumps, serving
from test_pagehaul import CRATES, DUMPS, KEPT, PAGE, random_reads

QUERY = "?X-Amz-Signature=hidden"


def in_child(check):
    """Returns whether `check` is true in a child of this process."""
    child = os.fork()
    if child == 0:
        fine = False
        try:
            # A child that waits for what will not come ends.
            signal.alarm(300)
            fine = check()
        finally:
            os._exit(0 if fine else 1)
    return os.waitpid(child, 0)[1] == 0


class Remote(unittest.TestCase):
    def test_urls_are_read_as_files(self):
        names = [["vmcore"], ["dump"], ["flattened"], ["part.1", "part.0"]]
        with serving(dumps(*sum(names, []))) as server:
            for files in names:
                local = pagehaul.open(*(DUMPS / name for name in files))
                remote = pagehaul.open(*(server.url(f"/{name}{QUERY}") for name in files))
                self.assertEqual(random_reads(remote, files[0], 100), 0, files)
                self.assertEqual(remote.format, local.format)
                self.assertEqual(remote.log().rows(), local.log().rows())
                self.assertEqual(remote.page_classes().rows(), local.page_classes().rows())
                self.assertEqual(remote.facts(), local.facts())
                self.assertEqual(remote.paths, [server.url(f"/{name}") for name in files])
                self.assertEqual(repr(remote), f"<pagehaul.Dump {', '.join(remote.paths)}>")
            self.assertEqual(remote.triage().system, local.triage().system)

    def test_little_is_fetched(self):
        with serving(dumps("dump")) as server:
            dump = pagehaul.open(server.url("/dump"))
            dump.read(KEPT.start * PAGE, 64, physical=True)
            requests = len(server.requests)
            for at in range(KEPT.start * PAGE, (KEPT.start + 1) * PAGE, 64):
                dump.read(at, 64, physical=True)
            self.assertEqual(len(server.requests), requests)
            self.assertLess(server.sent, len(server.files["/dump"]) // 4)

    def test_objects_of_a_store_are_read_with_signed_requests(self):
        keys = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "test-secret-key"}
        with serving({"/crashes/host7/dump": (DUMPS / "dump").read_bytes()}) as server:
            with unittest.mock.patch.dict(os.environ, keys, AWS_ENDPOINT_URL=server.url("")):
                dump = pagehaul.open("s3://crashes/host7/dump")
                self.assertEqual(random_reads(dump, 1, 20), 0)
                self.assertEqual(dump.paths, ["s3://crashes/host7/dump"])
                with self.assertRaisesRegex(pagehaul.OpenError, "^cannot open s3://crashes/other: the server answers 404"):
                    pagehaul.open("s3://crashes/other")
            path, query = server.requests[0]
            self.assertEqual((path, query["X-Amz-Credential"].split("/")[0]), ("/crashes/host7/dump", "AKIDEXAMPLE"))
            self.assertEqual(len(query["X-Amz-Signature"]), 64)

    def test_failures_name_the_url_without_its_signature(self):
        with serving({"/other": b"not a dump at all", **dumps("dump")}) as server:
            for name, why in (("absent", "the server answers 404"), ("other", "neither an ELF vmcore nor")):
                with self.assertRaisesRegex(pagehaul.OpenError, why) as raised:
                    pagehaul.open(server.url(f"/{name}{QUERY}"))
                self.assertIn(server.url(f"/{name}"), str(raised.exception))
                self.assertNotIn("hidden", str(raised.exception))
                self.assertEqual(raised.exception.filename, server.url(f"/{name}"))
                self.assertEqual(isinstance(raised.exception, FileNotFoundError), name == "absent")
            dump = pagehaul.open(server.url(f"/dump{QUERY}"))
            server.version = "v2"
            with self.assertRaisesRegex(pagehaul.ReadError, "the object was replaced while it was read") as raised:
                dump.read(KEPT.start * PAGE, KEPT.stop * PAGE - KEPT.start * PAGE, physical=True)
            self.assertNotIn("hidden", str(raised.exception))

    def test_recordings_are_reported(self):
        names = ("reclaim/tests/data/guest-6.12.pht", "latency/tests/data/functions-6.12.pht")
        with serving({f"/{name}": (CRATES / name).read_bytes() for name in names}) as server:
            reclaim, latency = (server.url(f"/{name}{QUERY}") for name in names)
            report = pagehaul.reclaim.report(reclaim)
            self.assertEqual((report.label, report.source.files), ("guest-6.12", [server.url(f"/{names[0]}")]))
            self.assertEqual(report.rows(), pagehaul.reclaim.report(CRATES / names[0]).rows())
            self.assertEqual(pagehaul.latency.report(latency), pagehaul.latency.report(CRATES / names[1]))
            for wrong, raised in ((server.url(f"/absent{QUERY}"), pagehaul.OpenError), (reclaim, pagehaul.TraceError)):
                with self.assertRaises(raised) as why:
                    pagehaul.latency.report(wrong, between=("sched:a", "sched:b"))
                self.assertNotIn("hidden", str(why.exception))


class Processes(unittest.TestCase):
    def test_threads_read_at_once(self):
        with serving(dumps("dump")) as server, concurrent.futures.ThreadPoolExecutor(4) as pool:
            dump = pagehaul.open(server.url("/dump"), cache_bytes=64 * PAGE)
            self.assertEqual(sum(pool.map(lambda seed: random_reads(dump, seed, 50), range(8))), 0)

    def test_children_have_connections_of_their_own(self):
        with serving(dumps("dump")) as server:
            dump = pagehaul.open(server.url("/dump"), cache_bytes=0)
            connections = server.connections
            self.assertTrue(in_child(lambda: random_reads(dump, 1, 20) == 0))
            self.assertGreater(server.connections, connections)
            self.assertEqual(random_reads(dump, 2, 20), 0)

    def test_children_read_what_parents_opened(self):
        with serving(dumps("dump")) as server:
            dump = pagehaul.open(server.url("/dump"), cache_bytes=0)
            done = threading.Event()
            wrong = []

            def read_on():
                while not done.is_set():
                    wrong.append(random_reads(dump, 1, 10))

            # Forks while other threads are inside a read.
            threads = [threading.Thread(target=read_on) for _ in range(2)]
            for thread in threads:
                thread.start()
            try:
                for seed in range(4):
                    check = lambda: random_reads(dump, seed) == 0 and dump.triage().system.release == dump.facts().release
                    self.assertTrue(in_child(check))
            finally:
                done.set()
                for thread in threads:
                    thread.join()
            self.assertEqual(sum(wrong), 0)


if __name__ == "__main__":
    unittest.main()
