#!/usr/bin/env python3
"""The scan of struct pages: next to a plain sum over the same bytes, and to makedumpfile's on the same vmcore.

makedumpfile is asked for a dry run that says how long each step took; its scan is the steps that exclude pages. Ours is
the scan phase of a dry run with one thread. Both read the vmcore from the page cache; rounds are interleaved, medians
count. Writes a Markdown page to docs/benchmarks/.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOAL = 4.0
STRUCT_PAGE = 64
# What pagehaul reads at a time.
BLOCK = 128 << 10
# Progress may overwrite the end of a line.
STEP = re.compile(r"STEP \[([^\]]*)\]\s*: ([0-9.]+) s")


def run(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{command[0]} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout + done.stderr


def peer_scan(args):
    text = run([args.makedumpfile, "--dry-run", "-d", "31", "--message-level", "31", args.vmcore, "/dev/null/none"])
    steps = [(name.strip(), float(seconds)) for name, seconds in STEP.findall(text)]
    return sum(seconds for name, seconds in steps if name.startswith(("Excluding", "Checking for memory holes")))


def own_scan(args):
    command = [args.pagehaul, "capture", "--dry-run", "--json", "-q", "-t", "1", "-d", "31", args.vmcore]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    report = json.loads(done.stdout)
    return report["seconds"]["scan"], report["memory_bytes"] / 4096


def copy(args, pages):
    """Seconds that reading the bytes of as many struct pages takes: no tool that reads its vmcore scans it in less."""
    buffer = bytearray(BLOCK)
    with open(args.vmcore, "rb", buffering=0) as file:
        start = time.perf_counter()
        for _ in range(int(pages) * STRUCT_PAGE // BLOCK):
            file.readinto(buffer)
        return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("vmcore")
    parser.add_argument("--pagehaul", default=str(ROOT / "target/release/pagehaul"))
    parser.add_argument("--scan-rate", default=str(ROOT / "target/release/examples/scan_rate"))
    parser.add_argument("--makedumpfile", default=shutil.which("makedumpfile"))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--name", default=f"{datetime.date.today().isoformat()}-scan")
    args = parser.parse_args()
    with open(args.vmcore, "rb") as file:
        while file.read(1 << 24):
            pass
    rates = run([args.scan_rate, args.vmcore]).strip()
    peer, own, copied, pages = [], [], [], 0
    for _ in range(args.rounds):
        seconds, pages = own_scan(args)
        own.append(seconds)
        peer.append(peer_scan(args))
        copied.append(copy(args, pages))
    own_median, peer_median = statistics.median(own), statistics.median(peer)
    copy_median = statistics.median(copied)
    gain = peer_median / own_median
    version = run([args.makedumpfile, "-v"]).splitlines()[0]
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    text = "\n".join([
        f"# The scan, {args.name}", "",
        f"{os.cpu_count()} CPUs ({cpu}), Linux {platform.release()}. Command: `bench/scan.py VMCORE`.", "",
        "## In memory", "", "```", rates, "```", "",
        "## On a vmcore in the page cache", "",
        f"{pages / 1e6:.2f} million pages, level 31, one thread, medians of {args.rounds} interleaved rounds. Peer: {version}, its steps",
        "that check for holes and exclude pages, of a dry run.", "",
        "| tool | scan s | million struct pages/s | gain | goal |", "|---|---|---|---|---|",
        f"| makedumpfile | {peer_median:.4f} | {pages / peer_median / 1e6:.0f} | | |",
        f"| pagehaul | {own_median:.4f} | {pages / own_median / 1e6:.0f} | {gain:.2f}x | {GOAL:g}x {'met' if gain >= GOAL else 'MISSED'} |",
        f"| read() of as many bytes, nothing else | {copy_median:.4f} | {pages / copy_median / 1e6:.0f} | {peer_median / copy_median:.2f}x | |",
        ""])
    (ROOT / "docs/benchmarks" / f"{args.name}.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
