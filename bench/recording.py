#!/usr/bin/env python3
"""What recording costs: CPU time for each event in the task that is traced and in the recorder, and events lost at several rates.

    bench/recording.py PAGEHAUL [--rounds N] [--json FILE]

The events are system calls (raw_syscalls:sys_enter and sys_exit) of `dd`, whose block size sets their rate; next to them the
events that `reclaim record` always switches on. Takes root. The recorder's CPU time is what it prints itself. Medians.
"""
import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import tempfile
import time

EVENTS = ["-e", "raw_syscalls:sys_enter", "-e", "raw_syscalls:sys_exit"]
# Block size, blocks: from as fast as system calls go to few.
WORK = [("1", 1_000_000), ("512", 500_000), ("4096", 200_000), ("65536", 20_000)]
BUFFERS = [1024, 8192]


def run(command):
    """Wall seconds, CPU seconds, what came on standard error."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    said = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=True).stderr
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, said


def number(pattern, text):
    found = re.search(pattern, text)
    return float(found[1].replace(",", "")) if found else 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pagehaul")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    options = parser.parse_args()
    rows = []
    print(f"{'block':>7} {'buffer':>8} {'events/s':>10} {'events':>10} {'lost':>9} {'task ns/event':>14} {'recorder ns/event':>18}")
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as directory:
        for size, blocks in WORK:
            work = ["dd", "if=/dev/urandom" if size != "1" else "if=/dev/zero", "of=/dev/null", f"bs={size}", f"count={blocks}"]
            for buffer in BUFFERS:
                samples = []
                for _ in range(options.rounds):
                    plain = run(work)
                    record = [options.pagehaul, "reclaim", "record", "-o", f"{directory}/x.pht", "--buffer-size", f"{buffer}K"]
                    wall, cpu, said = run(record + EVENTS + ["--"] + work)
                    events, lost = number(r": ([\d,]+) events", said), number(r"; ([\d,]+) events were LOST", said)
                    own = number(r"([\d.]+) ms of CPU", said) / 1e3
                    written = events + lost
                    samples.append((written / wall, events, lost, (cpu - own - plain[1]) / written * 1e9, own / events * 1e9))
                row = [statistics.median(column) for column in zip(*samples)]
                names = ("events_per_s", "events", "lost", "task_ns_per_event", "recorder_ns_per_event")
                rows.append({"block": int(size), "buffer_kib": buffer, **dict(zip(names, map(round, row)))})
                print(f"{size:>7} {buffer:>8} {row[0]:>10.0f} {row[1]:>10.0f} {row[2]:>9.0f} {row[3]:>14.0f} {row[4]:>18.0f}", flush=True)
    if options.json:
        with open(options.json, "w") as out:
            json.dump({"rounds": options.rounds, "rows": rows}, out, indent=2)
            out.write("\n")


main()
