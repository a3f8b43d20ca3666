#!/usr/bin/env python3
"""Times `pagehaul reclaim report` on millions of events, and the kernel's Perl script on the same text.

    bench/reclaim.py PAGEHAUL [--text REPORT] [--perl SCRIPT [--formats DIR]] [--trace TRACE_DAT] [--events N] [--rounds N] [--json FILE]

Binary events are those of a trace.dat of version 6 (by default a committed one of Linux 6.18), again and again, each copy later
than the one before. The text is REPORT, what `trace-cmd report` printed (`lab run tools/lab/scenarios/agree.sh` makes one), made long in
the same way: all of its events, and once more those only that the Perl script understands; others it skips. The script is the kernel's
Documentation/trace/postprocess/trace-vmscan-postprocess.pl, which is not part of this project; it looks for event formats in
/sys/kernel/debug/tracing, where it is given DIR (with events/vmscan/EVENT/format in it), those of the traced kernel, or nothing: then it
takes the patterns it has built in. This takes root. Programs run in turn, round after round; medians.
"""
import argparse
import gzip
import json
import os
import re
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
# What the script understands, of vmscan's events.
UNDERSTOOD = "direct_reclaim_begin|direct_reclaim_end|kswapd_wake|kswapd_sleep|wakeup_kswapd|lru_isolate|lru_shrink_inactive|lru_shrink_active|write_folio|writepage"


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
    """Wall and CPU seconds of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.monotonic()
    with open(stdin or os.devnull, "rb") as source:
        subprocess.run(command, stdin=source, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    wall = time.monotonic() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def lengthen(source, target, events, names=".*"):
    """Lines of events again and again, with time going on; gives the number of events written."""
    wanted = re.compile(rb".*\[\d+\].* [\d.]+: (%s): " % names.encode())
    lines = [line for line in source.read_bytes().splitlines() if wanted.match(line)]
    cut = [re.match(rb"(.*?\[\d+\].*? )(\d+)(\.\d+: .*)", line).groups() for line in lines]
    first, last = int(cut[0][1]), int(cut[-1][1])
    copies = -(-events // len(lines))
    with open(target, "wb") as out:
        for copy in range(copies):
            shift = copy * (last - first + 1)
            out.write(b"".join(b"%s%d%s\n" % (head, int(seconds) + shift, tail) for head, seconds, tail in cut))
    return copies * len(lines)


def in_turn(runs, rounds):
    """Medians of wall and CPU seconds by name."""
    times = {name: [] for name in runs}
    for _ in range(rounds):
        for name, (command, stdin) in runs.items():
            times[name].append(cpu_seconds(command, stdin))
    return {name: [statistics.median(column) for column in zip(*all)] for name, all in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pagehaul")
    parser.add_argument("--perl")
    parser.add_argument("--text", type=Path)
    parser.add_argument("--formats", type=Path)
    parser.add_argument("--trace", type=Path, default=FIXTURE)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    parser.add_argument("--scratch", default=None, help="directory for the large files")
    options = parser.parse_args()
    report = [options.pagehaul, "reclaim", "report", "--json"]
    with tempfile.TemporaryDirectory(dir=options.scratch) as directory:
        runs, events = {}, {}
        binary = Path(directory, "big.dat")
        data = options.trace.read_bytes()
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        copies = -(-options.events // EVENTS)
        binary.write_bytes(multiply(data, copies))
        runs["trace.dat"], events["trace.dat"] = (report + [str(binary)], None), EVENTS * copies
        texts = {"all events": ".*", "its events": f"mm_vmscan_({UNDERSTOOD})"} if options.text else {}
        for name, wanted in texts.items():
            text = Path(directory, name.replace(" ", "-"))
            count = lengthen(options.text, text, options.events, wanted)
            runs[f"text, {name}"], events[f"text, {name}"] = (report + [str(text)], None), count
            runs[f"stdin, {name}"], events[f"stdin, {name}"] = (report + ["-"], str(text)), count
            if options.perl:
                place = "mount -t tmpfs none /sys/kernel/debug && mkdir /sys/kernel/debug/tracing && "
                if options.formats:
                    place += f"mount --bind {options.formats} /sys/kernel/debug/tracing && "
                runs[f"perl, {name}"] = (["unshare", "-m", "sh", "-c", f"{place}exec perl {options.perl}"], str(text))
                events[f"perl, {name}"] = count
        sizes = {path.name: path.stat().st_size for path in Path(directory).iterdir()}
        result = {"bytes": sizes, "rounds": options.rounds}
        for name, (wall, cpu) in in_turn(runs, options.rounds).items():
            count = events[name]
            result[name] = {"events": count, "wall_s": round(wall, 3), "cpu_s": round(cpu, 3), "events_per_cpu_s": round(count / cpu)}
            print(f"{name:18} {count:9} events {wall:8.2f} s wall {cpu:8.2f} s CPU {count / cpu / 1e6:8.3f} M events/s of CPU")
    for name in texts if options.perl else []:
        perl, ours = result[f"perl, {name}"], result[f"text, {name}"]
        wall, cpu = perl["wall_s"] / ours["wall_s"], perl["cpu_s"] / ours["cpu_s"]
        result[f"against perl, {name}"] = {"wall": round(wall, 1), "cpu": round(cpu, 1)}
        print(f"text against the script, {name}: {wall:.1f}x wall, {cpu:.1f}x CPU")
    if options.json:
        Path(options.json).write_text(json.dumps(result, indent=2) + "\n")


main()
