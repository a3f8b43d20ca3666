#!/usr/bin/env python3
"""Measures what encryption costs a capture: each capture in kdump format, and encrypted, in turn.

usage: bench/encryption.py PAGEHAUL VMCORE RECIPIENT [ROUNDS]

Dumps go to /dev/shm, so that no disk is measured. Ratios are medians of those of single rounds.
"""
import os
import statistics
import subprocess
import sys
import time

OUTPUT = "/dev/shm/pagehaul-bench-encryption"


def capture(pagehaul, vmcore, options):
    """Returns wall time and CPU time in seconds, and the size of the dump."""
    if os.path.exists(OUTPUT):
        os.unlink(OUTPUT)
    start = time.monotonic()
    child = subprocess.Popen([pagehaul, "capture", "-q", "-t", "2", *options, vmcore, OUTPUT])
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.monotonic() - start
    if status != 0:
        sys.exit(f"capture {' '.join(options)} failed")
    return wall, usage.ru_utime + usage.ru_stime, os.path.getsize(OUTPUT)


def main():
    pagehaul, vmcore, recipient = sys.argv[1:4]
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 21
    print("| level, codec | dump | wall, CPU in the clear | wall, CPU encrypted | wall | CPU |")
    print("|---|---|---|---|---|---|")
    for level in ("31", "0"):
        for codec in ("lzo", "zstd"):
            options = ["-d", level, "-c", codec]
            rows = []
            for _ in range(rounds):
                plain = capture(pagehaul, vmcore, options)
                rows.append((plain, capture(pagehaul, vmcore, [*options, "--encrypt-to", recipient])))

            def median(of):
                return statistics.median(map(of, rows))

            print(f"| `-d {level}`, {codec} | {rows[0][1][2] / 1e6:.0f} MB "
                  f"| {median(lambda row: row[0][0]):.2f} s, {median(lambda row: row[0][1]):.2f} s "
                  f"| {median(lambda row: row[1][0]):.2f} s, {median(lambda row: row[1][1]):.2f} s "
                  f"| {median(lambda row: row[1][0] / row[0][0]):.2f} "
                  f"| {median(lambda row: row[1][1] / row[0][1]):.2f} |", flush=True)
    os.unlink(OUTPUT)


main()
