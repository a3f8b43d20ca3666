#!/usr/bin/env python3
"""Times `pagehaul reclaim report` on millions of events, and the kernel's Perl script on the same text.

    bench/reclaim.py PAGEHAUL [PERL_SCRIPT] [--copies N] [--rounds N] [--json FILE]

The events are those of a committed trace.dat (version 6, 1,605 events of Linux 6.18), N times one after the other. The text is
what `trace-cmd report` makes of it. The Perl script is the kernel's Documentation/trace/postprocess/trace-vmscan-postprocess.pl, which
is not part of this project; it looks for formats in /sys/kernel/debug/tracing. Prints medians.
"""
import argparse
import gzip
import json
import os
import resource
import statistics
import struct
import subprocess
import tempfile
import time
from pathlib import Path

FIXTURE = Path(__file__).parent.parent / "crates/trace/tests/data/memcg-6.18-v6.dat.gz"
EVENTS = 1605
PAGE = 4096


def multiply(data, copies):
    """The file with its CPUs' pages repeated, each copy later than the one before."""
    at = data.index(b"flyrecord\0") + 10
    table = [struct.unpack_from("<QQ", data, at + 16 * cpu) for cpu in range(2)]
    pages = [data[offset : offset + size] for offset, size in table]
    stamps = [struct.unpack_from("<Q", cpu, page)[0] for cpu in pages for page in range(0, len(cpu), PAGE)]
    span = max(stamps) - min(stamps) + 50_000_000
    head = bytearray(data[: min(offset for offset, size in table if size)])
    out, place = [], len(head)
    for cpu, own in enumerate(pages):
        struct.pack_into("<QQ", head, at + 16 * cpu, place, len(own) * copies)
        place += len(own) * copies
        for copy in range(copies):
            block = bytearray(own)
            for page in range(0, len(own), PAGE):
                struct.pack_into("<Q", block, page, struct.unpack_from("<Q", own, page)[0] + copy * span)
            out.append(bytes(block))
    return bytes(head) + b"".join(out)


def cpu_seconds(command, stdin=None):
    """Wall and CPU seconds of a command, and its largest resident set in MiB."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    with open(stdin or os.devnull, "rb") as source:
        subprocess.run(command, stdin=source, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    wall = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pagehaul")
    parser.add_argument("perl_script", nargs="?")
    parser.add_argument("--copies", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    parser.add_argument("--folder", default=None, help="where the large files go")
    options = parser.parse_args()
    result = {"events": EVENTS * options.copies, "rounds": options.rounds}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        binary, text = Path(folder, "big.dat"), Path(folder, "big.txt")
        binary.write_bytes(multiply(gzip.decompress(FIXTURE.read_bytes()), options.copies))
        with open(text, "wb") as out:
            subprocess.run(["trace-cmd", "report", binary], stdout=out, stderr=subprocess.DEVNULL, check=True)
        native = [options.pagehaul, "reclaim", "report", "--json"]
        runs = {"trace.dat": (native + [str(binary)], None), "text": (native + [str(text)], None)}
        if options.perl_script:
            runs["perl, text"] = (["perl", options.perl_script], str(text))
        result["bytes"] = {"trace.dat": binary.stat().st_size, "text": text.stat().st_size}
        for name, (command, stdin) in runs.items():
            rounds = [cpu_seconds(command, stdin) for _ in range(1 if name.startswith("perl") else options.rounds)]
            wall, cpu = (statistics.median(column) for column in zip(*rounds))
            result[name] = {"wall_s": round(wall, 3), "cpu_s": round(cpu, 3), "events_per_cpu_s": round(result["events"] / cpu)}
            print(f"{name:12} {wall:8.2f} s wall {cpu:8.2f} s CPU {result['events'] / cpu / 1e6:8.3f} M events/s of CPU")
    if "perl, text" in result:
        print(f"text against Perl: {result['perl, text']['cpu_s'] / result['text']['cpu_s']:.1f}x")
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=2) + "\n")


main()
