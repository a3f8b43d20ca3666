#!/usr/bin/env python3
"""The pause of a checkpoint or a core, seen from inside the process: `pagehaul checkpoint`, CRIU alone, `pagehaul core` and gcore in
turn on one process that writes to its memory at a steady rate. As root, on an idle machine.

    cargo build --release --locked -p pagehaul --bins
    cargo build --release --locked -p pagehaul-process --example clocked
    bench/pause.py --criu criu --directory /var/tmp --size 800 --rate 0 20 200 2000

Prints a Markdown table of medians, least and most, in milliseconds, and writes the raw figures to --json.
"""

import argparse
import json
import mmap
import os
import pathlib
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Target:
    """The process. It ends with this program."""

    def __init__(self, args, mib, rate, processes, threads, scratch):
        path = scratch / "clock"
        path.unlink(missing_ok=True)
        command = [args.clocked, str(mib), str(rate), str(processes), str(threads), str(path)]
        self.process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", *command], start_new_session=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not path.exists() or path.stat().st_size < 8 * processes:
            time.sleep(0.01)
        self.map = mmap.mmap(os.open(path, os.O_RDWR), 8 * processes)
        while 0 in self.words():
            if self.process.poll() is not None:
                sys.exit(f"{command} has ended")
            time.sleep(0.05)
        time.sleep(1)

    def words(self):
        return struct.unpack(f"{len(self.map) // 8}Q", self.map[:])

    def longest(self, do):
        """What `do` returns, and the longest stop of any of the processes while it ran, in milliseconds."""
        time.sleep(0.2)
        self.map[:] = bytes(len(self.map))
        result = do()
        time.sleep(0.01)
        return result, max(self.words()) / 1e6

    def end(self):
        self.process.kill()
        self.process.wait()


def command(words, scratch):
    log = scratch / "log"
    with open(log, "w") as out:
        began = time.monotonic()
        done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=out, text=True)
    if done.returncode != 0:
        sys.exit(f"{words}: status {done.returncode}: {log.read_text()[-2000:]}")
    return time.monotonic() - began, done.stdout


def clear(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def one(args, mib, rate, processes, threads, scratch):
    target = Target(args, mib, rate, processes, threads, scratch)
    pid, images, box, core = target.process.pid, scratch / "images", scratch / "box", scratch / "core"
    marked = {}

    def nothing():
        time.sleep(2)
        return {}

    def checkpoint(*options, output=box, base=None):
        def run():
            words = [args.pagehaul, "checkpoint", "-q", "--json", "--leave-running", "--criu", args.criu, *options]
            if base is not None:
                words += ["--base", base]
            seconds, out = command([*words, pid, output], scratch)
            said = json.loads(out)
            return {"seconds": seconds, "bytes": output.stat().st_size, "frozen": said.get("frozen_seconds", 0) * 1e3}
        return run

    def criu():
        images.mkdir()
        seconds, _ = command([args.criu, "dump", "-t", pid, "-D", images, "--leave-running", "-v0"], scratch)
        return {"seconds": seconds, "bytes": sum(file.stat().st_size for file in images.iterdir())}

    def cored(*words):
        def run():
            seconds, _ = command([*words], scratch)
            return {"seconds": seconds}
        return run

    runs = {"nothing": nothing, "pagehaul checkpoint": checkpoint(), "criu dump": criu}
    if processes == 1:
        runs["pagehaul core"] = cored(args.pagehaul, "core", "-q", "-c", "zstd", pid, core)
        runs["pagehaul core --snapshot"] = cored(args.pagehaul, "core", "-q", "-c", "zstd", "--snapshot", pid, core)
        if args.gcore and rate in (0, 20):
            runs["gcore"] = cored("gcore", "-o", scratch / "gcore", pid)
    figures = {name: [] for name in runs}
    base = scratch / "base"
    try:
        for _ in range(args.rounds):
            for name, run in runs.items():
                result, pause = target.longest(run)
                figures[name].append({"pause": pause, **result})
                for path in (images, box, core, scratch / f"gcore.{pid}"):
                    clear(path)
        if args.base:
            name = f"pagehaul checkpoint --base, after {args.base} s"
            whole, _ = target.longest(checkpoint("--keep-marks", output=base))
            figures[name] = []
            for number in range(args.rounds):
                time.sleep(args.base)
                following = scratch / f"base{number}"
                result, pause = target.longest(checkpoint("--keep-marks", output=following, base=base))
                figures[name].append({"pause": pause, **result, "of whole": result["bytes"] / whole["bytes"]})
                base = following
    finally:
        target.end()
        for path in scratch.iterdir():
            clear(path)
    return figures


def row(name, runs):
    def three(key, form):
        values = [run[key] for run in runs if key in run]
        return " | ".join(form(value) for value in (statistics.median(values), min(values), max(values))) if values else " | | "

    seconds = [run["seconds"] for run in runs if "seconds" in run]
    total = f"{statistics.median(seconds):.2f}" if seconds else ""
    bytes_ = [run["bytes"] for run in runs if "bytes" in run]
    size = f"{statistics.median(bytes_) / 2**20:.1f}" if bytes_ else ""
    part = [run["of whole"] for run in runs if "of whole" in run]
    size += f" ({statistics.median(part):.1%})" if part else ""
    return f"| {name} | {three('pause', lambda value: f'{value:.1f}')} | {total} | {size} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    release = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release"
    parser.add_argument("--pagehaul", default=str(release / "pagehaul"))
    parser.add_argument("--clocked", default=str(release / "examples/clocked"))
    parser.add_argument("--criu", default="criu")
    parser.add_argument("--directory", default="/var/tmp", help="where outputs go, CRIU's images too")
    parser.add_argument("--size", type=int, nargs="+", default=[800], help="MiB of each process")
    parser.add_argument("--rate", type=int, nargs="+", default=[20], help="MB of pages written to each second")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0, help="more threads of each process, which sleep")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--base", type=int, default=0, help="seconds between checkpoints with --base; 0: none")
    parser.add_argument("--gcore", action="store_true")
    parser.add_argument("--json")
    args = parser.parse_args()
    everything = []
    with tempfile.TemporaryDirectory(dir=args.directory) as scratch:
        for mib in args.size:
            for rate in args.rate:
                figures = one(args, mib, rate, args.processes, args.threads, pathlib.Path(scratch))
                load = os.getloadavg()[0]
                shape = {"mib": mib, "rate": rate, "processes": args.processes, "threads": args.threads, "load": load}
                everything.append({**shape, "figures": figures})
                print(f"\n{args.processes} × {mib} MiB, {rate} MB/s, {args.threads} more threads, {args.rounds} rounds; load {load:.1f}\n")
                print("| | pause: median | least | most | seconds | MiB |\n|---|---|---|---|---|---|")
                for name, runs in figures.items():
                    print(row(name, runs), flush=True)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
