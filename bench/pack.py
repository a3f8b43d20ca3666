#!/usr/bin/env python3
"""Packing at level 0 next to the bare codec loop on the same pages.

The loop compresses every page of the vmcore that is not zero, in memory, with one thread, and does nothing else; its time
is what a capture with one thread cannot undercut but by keeping the codec's thread free of everything else. Held against
it: captures with one and two threads, round after round; medians count. Writes a Markdown page to docs/benchmarks/.
"""

import argparse
import datetime
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
METHODS = "lzo,snappy,zstd:-1,zstd:1"
THREADS = (1, 2)
# The least share of the bare loop times the threads, and the least gain of two threads over one.
SHARE, GAIN = 0.90, 1.85
# What the loop holds in memory at a time.
SLICE = 512 << 20


def bare(args, methods):
    """Seconds that the loop takes for each method, over all slices of the vmcore."""
    seconds = dict.fromkeys(methods, 0.0)
    slice_ = args.scratch / f"pagehaul-bench-{os.getpid()}-slice"
    pages = 0
    try:
        with open(args.vmcore, "rb") as file:
            while part := file.read(SLICE):
                slice_.write_bytes(part)
                text = subprocess.run([args.codec_loop, "-m", ",".join(methods), "-r", "1", slice_], capture_output=True,
                                      text=True, check=True).stdout
                total, zeros = map(int, re.search(r": (\d+) pages, (\d+) of them of zeros", text).groups())
                pages += total - zeros
                for method in methods:
                    speed = float(re.search(rf"^{re.escape(method)}\s+(\d+)\s", text, re.M).group(1))
                    seconds[method] += (total - zeros) * 4096 / 1e6 / speed
    finally:
        slice_.unlink(missing_ok=True)
    return seconds, pages


def capture(args, method, threads):
    output = args.scratch / f"pagehaul-bench-{os.getpid()}-dump"
    command = [args.pagehaul, "capture", "-q", "-d", "0", "-c", method, "-t", str(threads), args.vmcore, output]
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    wall = time.monotonic() - start
    output.unlink(missing_ok=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr}")
    return wall


def verdict(value, goal):
    return f"{value:.2f} {'met' if value >= goal else '**missed**'}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("vmcore", type=pathlib.Path)
    parser.add_argument("--pagehaul", default=str(ROOT / "target/release/pagehaul"))
    parser.add_argument("--codec-loop", default=str(ROOT / "target/release/examples/codecs"))
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scratch", type=pathlib.Path, default=pathlib.Path("/dev/shm"))
    parser.add_argument("--name", default=f"{datetime.date.today().isoformat()}-pack")
    args = parser.parse_args()
    methods = args.methods.split(",")
    loop, pages = bare(args, methods)
    walls = {(method, threads): [] for method in methods for threads in THREADS}
    for number in range(args.rounds):
        for (method, threads), runs in walls.items():
            runs.append(capture(args, method, threads))
            print(f"round {number + 1}: {method}, {threads} threads: {runs[-1]:.2f} s", file=sys.stderr)
    lines = []
    for method in methods:
        one, two = (statistics.median(walls[method, threads]) for threads in THREADS)
        lines.append(f"| {method} | {loop[method]:.2f} | {one:.2f} | {two:.2f} | {verdict(loop[method] / one, SHARE)} "
                     f"| {verdict(loop[method] / two / 2, SHARE)} | {verdict(one / two, GAIN)} |")
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    text = "\n".join([
        f"# Packing and the bare codec loop, {args.name}", "",
        f"{os.cpu_count()} CPUs ({cpu}), Linux {platform.release()}; vmcore in the page cache, level 0, dumps to {args.scratch}, medians of",
        f"{args.rounds} rounds. The loop packs the same {pages / 1e6:.2f} million pages in memory, one thread, once. Command: `bench/pack.py VMCORE`.", "",
        f"| method | loop s | 1 thread s | 2 threads s | of the loop (goal {SHARE}) | of the loop times 2 (goal {SHARE}) | 2 threads over 1 (goal {GAIN}) |",
        "|---|---|---|---|---|---|---|", *lines, ""])
    (ROOT / "docs/benchmarks" / f"{args.name}.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
