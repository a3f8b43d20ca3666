#!/usr/bin/env python3
"""Reads the same dumps with pagehaul, libkdumpfile and drgn, in turn, round after round; medians count.

libkdumpfile is the one in drgn's wheel, called through its C API by bench/peer/kdumpfile.c. Every reader says how many
pages it read and a sum of them: figures of readers that saw different things are not compared. Writes a Markdown table,
row by row: a run that was stopped goes on with `--add` and the dumps that are left. With `--crash` and `--vmlinux`, crash
searches the same range of memory for a word that is not there.
Usage: read.py VMCORE --tools DIR --pagehaul PATH [--python PYTHON]; `make bench-read` builds what it needs.
"""

import argparse
import array
import datetime
import mmap
import os
import pathlib
import random
import shlex
import statistics
import struct
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = 4096
GOALS = {"sequential": 5, "random": 2}
OPEN_GOAL = 0.050
TIB_PAGES = (1 << 40) // PAGE

DRGN = """
import array, sys, time, drgn
prog = drgn.Program()
prog.set_core_dump(sys.argv[1])
pfns = array.array("Q", open(sys.argv[2], "rb").read())
start, total, count, read = time.monotonic(), 0, 0, prog.read
for pfn in pfns:
    try:
        word = int.from_bytes(read(pfn << 12, 4096, True)[:8], "little")
    except drgn.FaultError:
        continue
    total, count = ((total << 1 | total >> 63) & (1 << 64) - 1) ^ word, count + 1
print(time.monotonic() - start, count, f"{total:016x}")
"""

# Sequential through a mount: one process, so that Python's own start is not measured.
MOUNTED = """
import mmap, os, sys, time
way, path, offset, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
file = os.open(path, os.O_RDONLY)
start = time.monotonic()
if way == "pread":
    buffer = bytearray(1 << 20)
    for at in range(offset, offset + size, len(buffer)):
        os.preadv(file, [buffer], at)
elif way == "sendfile":
    null, at = os.open("/dev/null", os.O_WRONLY), offset
    while at < offset + size:
        at += os.sendfile(null, file, at, 1 << 20)
else:
    data = memoryview(mmap.mmap(file, size, mmap.MAP_SHARED, mmap.PROT_READ, offset=offset))
    sum(data[::4096])
print(time.monotonic() - start)
"""


def run(args, *command):
    """Runs one timed command and gives its output's words, line by line."""
    done = subprocess.run([*shlex.split(args.prefix), *map(str, command)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed: {done.stderr}")
    return [line.split() for line in done.stdout.splitlines()]


def load_segments(path):
    """(offset, physical address, bytes) of each PT_LOAD."""
    with open(path, "rb") as file:
        data = file.read(1 << 20)
    (table,), (size, count) = struct.unpack_from("<Q", data, 32), struct.unpack_from("<HH", data, 54)
    heads = (struct.unpack_from("<IIQQQQQQ", data, table + at * size) for at in range(count))
    return [(offset, paddr, length) for kind, _, offset, _, paddr, length, _, _ in heads if kind == 1]


class Bench:
    def __init__(self, args):
        self.args = args
        self.directory = pathlib.Path(args.scratch)
        self.directory.mkdir(parents=True, exist_ok=True)
        # The largest segment; the kernel image has one of its own that shows the same bytes.
        self.segment = max(load_segments(args.vmcore), key=lambda segment: segment[2])
        first, count = self.segment[1] // PAGE, self.segment[2] // PAGE
        self.range = range(first + count // 4, first + count // 4 + min(args.pages, count // 2))
        picked = random.Random(7)
        self.random = self.list("random", (picked.randrange(first, first + count) for _ in range(args.reads)))
        self.ordered = self.list("ordered", self.range)

    def row(self, *cells):
        """Goes to the record at once."""
        line = "| " + " | ".join(cells) + " |"
        print(line, flush=True)
        with self.args.output.open("a") as file:
            file.write(line + "\n")

    def list(self, name, pfns):
        path = self.directory / name
        path.write_bytes(array.array("Q", pfns).tobytes())
        return path

    def medians(self, ways):
        """Seconds of each way; ways that read the same must have seen the same."""
        found = {name: [] for name in ways}
        seen = set()
        for _ in range(self.args.rounds):
            for name, command in ways.items():
                ((seconds, *what),) = run(self.args, *command)
                found[name].append(float(seconds))
                seen.add(tuple(what))
        if len(seen) != 1:
            sys.exit(f"readers disagree: {seen}")
        return {name: statistics.median(times) for name, times in found.items()}

    def format(self, name, dump):
        """One dump, read by all."""
        args = self.args
        peer = [args.tools / "kdumpfile", args.libkdumpfile, "read", dump]
        reading, threads = args.tools / "reading", os.cpu_count()
        drgn = [args.python, "-c", DRGN, dump]
        for what, pfns, ours in (
            ("random", self.random, [reading, "read", dump, 1, self.random]),
            ("sequential", self.ordered,
             [reading, "sweep", dump, threads, self.range.start, self.range.stop]),
        ):
            ways = {"libkdumpfile": [*peer, pfns], "drgn": [*drgn, pfns], "pagehaul": ours}
            if what == "sequential":
                ways["one thread"] = [reading, "sweep", dump, 1, self.range.start, self.range.stop]
            times = self.medians(ways)
            count = pfns.stat().st_size // 8
            figure = (lambda s: f"{s / count * 1e6:.2f} us") if what == "random" else (
                lambda s: f"{count * PAGE / s / (1 << 20):,.0f} MiB/s")
            gain = times["libkdumpfile"] / times["pagehaul"]
            goal = GOALS[what]
            self.row(name, what, *(figure(times[way]) if way in times else "" for way in
                                   ("libkdumpfile", "drgn", "one thread", "pagehaul")),
                     f"{gain:.1f}x", f"{goal}x: " + ("met" if gain >= goal else "**missed**"))
        size = sum(length for _, _, length in load_segments(args.vmcore))
        times = []
        for _ in range(args.rounds):
            start = time.monotonic()
            run(args, args.pagehaul, "verify", dump)
            times.append(time.monotonic() - start)
        self.row(name, "verify", "", "", "", f"{size / statistics.median(times) / (1 << 20):,.0f} MiB/s", "", "")
        if args.crash:
            self.crash(name, dump)

    def crash(self, name, dump):
        """crash looking for a word in the same range, without what it takes to start."""
        script, seconds = self.directory / "commands", []
        span = f"-s {self.range.start * PAGE:#x} -e {self.range.stop * PAGE:#x}"
        for commands in ("quit", f"search -p {span} 0x7e57ab1e0ddba115\nquit"):
            script.write_text(commands + "\n")
            times = []
            for _ in range(self.args.rounds):
                start = time.monotonic()
                run(self.args, self.args.crash, "-s", "-i", script, self.args.vmlinux, dump)
                times.append(time.monotonic() - start)
            seconds.append(statistics.median(times))
        rate = len(self.range) * PAGE / (seconds[1] - seconds[0]) / (1 << 20)
        self.row(name, "crash: `search -p`", f"crash: {rate:,.0f} MiB/s", "", "", "", "", "")

    def mount(self, dump):
        """The same range through a mount and from the vmcore itself."""
        directory = self.directory / "mnt"
        directory.mkdir(exist_ok=True)
        for way in ("pread", "mmap", "sendfile"):
            times = {"raw": [], "mounted": []}
            for _ in range(self.args.rounds):
                # Mounted anew, so that nothing is in the page cache.
                command = [*shlex.split(self.args.prefix), self.args.pagehaul, "mount", "--background", dump, directory]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                try:
                    for name, path in (("mounted", directory / "vmcore"), ("raw", self.args.vmcore)):
                        offset, paddr, _ = max(load_segments(path), key=lambda segment: segment[2])
                        at = offset + self.range.start * PAGE - paddr
                        ((seconds,),) = run(self.args, sys.executable, "-c", MOUNTED, way, path, at, len(self.range) * PAGE)
                        times[name].append(float(seconds))
                finally:
                    subprocess.run(["umount", directory], check=True)
            raw, mounted = (len(self.range) * PAGE / statistics.median(times[name]) / (1 << 20) for name in ("raw", "mounted"))
            self.row("zstd, mounted", f"{way}, first time", "", "", "", f"{mounted:,.0f} MiB/s",
                     f"{mounted / raw:.2f}x the raw file's {raw:,.0f} MiB/s", "")

    def terabyte(self, dump):
        """Opening a dump of 1 TiB whose bitmaps look like those of a real one."""
        path = self.directory / "1TiB"
        stretched(dump, path)
        peer = [self.args.tools / "kdumpfile", self.args.libkdumpfile, "open", path, 7]
        ours = [self.args.tools / "reading", "open", path, 7]
        theirs, own = (statistics.median(float(line[0]) for line in run(self.args, *way)) for way in (peer, ours))
        path.unlink()
        self.row("1 TiB, level 31", "open", f"{theirs * 1e3:.1f} ms", "", "", f"{own * 1e3:.1f} ms",
                 f"{theirs / own:.1f}x", f"{OPEN_GOAL * 1e3:.0f} ms: " + ("met" if own < OPEN_GOAL else "**missed**"))


def stretched(dump, path):
    """A dump with the bitmaps of `dump` over and over, up to 1 TiB, and descriptors of nothing but a page of zeros."""
    with open(dump, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    sub, bitmaps = struct.unpack_from("<II", data, 432)
    headers = bytearray(data[: (1 + sub) * PAGE])
    (pages,) = struct.unpack_from("<Q", headers, PAGE + 96)
    half, bytes_ = bitmaps // 2 * PAGE, TIB_PAGES // 8
    parts = [data[(1 + sub) * PAGE + half * part :][: pages // 8] for part in (0, 1)]
    parts = [(part * (bytes_ // len(part) + 1))[:bytes_] for part in parts]
    struct.pack_into("<II", headers, 436, 2 * bytes_ // PAGE, min(TIB_PAGES, (1 << 32) - 1))
    struct.pack_into("<Q", headers, PAGE + 96, TIB_PAGES)
    count = int.from_bytes(parts[1], "little").bit_count()
    table = len(headers) + 2 * bytes_
    zeros = table + count * 24
    descriptor = struct.pack("<qIIQ", zeros, PAGE, 0, 0)
    with open(path, "wb") as file:
        file.write(headers + parts[0] + parts[1] + descriptor * 512)
        file.seek(zeros - 512 * 24)
        file.write(descriptor * 512 + bytes(PAGE))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vmcore")
    parser.add_argument("--tools", type=pathlib.Path, required=True, help="directory with kdumpfile and reading")
    parser.add_argument("--pagehaul", required=True)
    parser.add_argument("--python", default=sys.executable, help="one that has drgn")
    parser.add_argument("--dumps", default="zstd:-1,zstd:1,lzo,snappy,zlib:1,none,ELF,mount,1TiB",
                        help="codecs; the vmcore itself; the default codec mounted; opening a dump of 1 TiB")
    parser.add_argument("--add", action="store_true", help="add rows to the record, do not begin a new one")
    parser.add_argument("--crash", help="crash, where it can open the vmcore with --vmlinux")
    parser.add_argument("--vmlinux")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--reads", type=int, default=50_000, help="random reads")
    parser.add_argument("--pages", type=int, default=262_144, help="pages read in order")
    parser.add_argument("--scratch", default="/dev/shm/pagehaul-read")
    parser.add_argument("--prefix", default="", help="command that timed commands are run with")
    parser.add_argument("--output", type=pathlib.Path,
                        default=ROOT / f"docs/benchmarks/{datetime.date.today()}-read.md")
    args = parser.parse_args()
    found = subprocess.run([args.python, "-c", "import drgn; print(drgn.__path__[0])"], check=True, capture_output=True, text=True)
    (args.libkdumpfile,) = pathlib.Path(found.stdout.strip()).parent.glob("drgn.libs/libkdumpfile*")
    bench = Bench(args)
    if not args.add:
        args.output.unlink(missing_ok=True)
        head = ["dump", "what", "libkdumpfile", "drgn", "pagehaul, 1 thread", f"pagehaul, {os.cpu_count()} CPUs", "gain", "goal"]
        bench.row(*head)
        bench.row(*["---"] * len(head))
    dump = bench.directory / "dump"
    for what in args.dumps.split(","):
        if what == "ELF":
            bench.format(what, args.vmcore)
            continue
        way = {"mount": ["-d", "0"], "1TiB": ["-d", "31"]}.get(what, ["-d", "0", "-c", what])
        subprocess.run([args.pagehaul, "capture", "-q", "--force", *way, args.vmcore, dump], check=True)
        if what == "1TiB":
            bench.terabyte(dump)
        elif what != "mount":
            bench.format(what, dump)
        elif os.geteuid() == 0:
            bench.mount(dump)
        dump.unlink()


if __name__ == "__main__":
    main()
