#!/usr/bin/env python3
"""Holds `--compress auto` against each single method on disks made as slow as asked.

Disks are throttled by the block I/O controller of control groups, version 1 or 2, which needs root; dumps are written past
the page cache, so that the limit holds from the first byte. For each speed all methods run in turn, round after round;
medians of the time to a finished dump are compared. Writes a Markdown table and the raw figures to docs/benchmarks/.
"""

import argparse
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
METHODS = "lzo,snappy,zstd:-1,zstd:1,zstd:3,zstd:6,zstd:12"
# `auto` may take so many times the time of the best single method.
GOAL = 1.10


class Throttle:
    """A control group whose members write at most so many bytes a second to the disk that `directory` is on."""

    def __init__(self, directory, rate):
        device = os.stat(directory).st_dev
        # A partition is limited by its disk.
        number = f"{os.major(device)}:{os.minor(device)}"
        disk = pathlib.Path(f"/sys/dev/block/{number}")
        if (disk / "partition").exists():
            number = (disk.resolve().parent / "dev").read_text().strip()
        if os.major(device) == 0:
            number = self.root_disk(directory)
        first = pathlib.Path("/sys/fs/cgroup/blkio")
        self.group = (first if first.is_dir() else pathlib.Path("/sys/fs/cgroup")) / f"pagehaul-bench-{os.getpid()}"
        if not first.is_dir():
            pathlib.Path("/sys/fs/cgroup/cgroup.subtree_control").write_text("+io")
        self.group.mkdir()
        if first.is_dir():
            (self.group / "blkio.throttle.write_bps_device").write_text(f"{number} {rate}")
        else:
            (self.group / "io.max").write_text(f"{number} wbps={rate}")

    @staticmethod
    def root_disk(directory):
        """File systems without a device of their own name it in the table of mounts."""
        source = subprocess.check_output(["findmnt", "-no", "SOURCE", "-T", directory], text=True).strip().split("[")[0]
        device = os.stat(source).st_rdev
        return f"{os.major(device)}:{os.minor(device)}"

    def __enter__(self):
        return lambda: (self.group / "cgroup.procs").write_text(str(os.getpid()))

    def __exit__(self, *_):
        for _ in range(100):
            try:
                self.group.rmdir()
                return
            except OSError:
                time.sleep(0.05)


def run(pagehaul, vmcore, level, method, threads, output, enter):
    command = [pagehaul, "capture", "-d", level, "-c", method, "-t", str(threads), "--json", "--force", vmcore, output]
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, preexec_fn=enter)
    wall = time.monotonic() - start
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed: {done.stderr.decode(errors='replace')}")
    report = json.loads(done.stdout)
    output.unlink()
    # Do not let one run pay for the blocks another gave back.
    os.sync()
    return {"wall": wall, "bytes": report["stored_bytes"], "methods": report["methods"]}


def table(rates, results, methods):
    lines = ["| disk | best single method | `auto` | auto / best | goal | lzo | `auto` packed with |", "|---|---|---|---|---|---|---|"]
    for rate in rates:
        of = results[rate]
        median = {method: statistics.median(run["wall"] for run in runs) for method, runs in of.items()}
        best = min((method for method in median if method != "auto"), key=median.get)
        ratio = median["auto"] / median[best]
        packed = of["auto"][-1]["methods"]
        total = sum(m["pages"] for m in packed) or 1
        mix = ", ".join(f"{m['method']} {100 * m['pages'] / total:.0f} %" for m in packed if m["pages"] * 100 >= total)
        verdict = "met" if ratio <= GOAL else "**missed**"
        lines.append(
            f"| {f'{rate} MB/s' if rate else 'unthrottled'} | {best} {median[best]:.2f} s | {median['auto']:.2f} s "
            f"| {ratio:.2f} | {GOAL:.2f} {verdict} | {median['lzo']:.2f} s | {mix} |"
        )
    every = ["", "Median seconds of each (-: not run there):", "", "| disk | " + " | ".join([*methods, "auto"]) + " |", "|---" * (len(methods) + 2) + "|"]
    for rate in rates:
        runs = [results[rate].get(method) for method in [*methods, "auto"]]
        medians = [f"{statistics.median(run['wall'] for run in of):.2f}" if of else "-" for of in runs]
        every.append(f"| {f'{rate} MB/s' if rate else 'unthrottled'} | " + " | ".join(medians) + " |")
    return "\n".join(lines + every)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vmcore", type=pathlib.Path)
    parser.add_argument("--pagehaul", default="pagehaul")
    parser.add_argument("--level", default="cache,cache-private,free")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rates", default="50,100,200,500,0", help="MB/s, 0 for no limit")
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--scratch", type=pathlib.Path, default=pathlib.Path("."), help="directory on the disk to write to")
    parser.add_argument("--out", type=pathlib.Path, help="Markdown file [default: docs/benchmarks/DATE-auto.md]")
    parser.add_argument("--add", action="store_true", help="go on with the figures of an earlier run, next to --out")
    arguments = parser.parse_args()
    out = arguments.out or ROOT / f"docs/benchmarks/{datetime.date.today()}-auto.md"
    raw = out.with_suffix(".json")
    results = {int(rate): of for rate, of in json.loads(raw.read_text()).items()} if arguments.add and raw.exists() else {}
    rates = [int(rate) for rate in arguments.rates.split(",")]
    chosen = arguments.methods.split(",")
    output = arguments.scratch / "pagehaul-bench-auto.dump"
    for rate in rates:
        of = results.setdefault(rate, {})
        for _ in range(arguments.rounds):
            for method in [*chosen, "auto"]:
                if rate:
                    with Throttle(arguments.scratch, rate * 1_000_000) as enter:
                        found = run(arguments.pagehaul, arguments.vmcore, arguments.level, method, arguments.threads, output, enter)
                else:
                    found = run(arguments.pagehaul, arguments.vmcore, arguments.level, method, arguments.threads, output, None)
                of.setdefault(method, []).append(found)
                print(f"{rate or 'unthrottled'} {method}: {found['wall']:.2f} s, {found['bytes'] >> 20} MiB", file=sys.stderr)
    raw.write_text(json.dumps(results, indent=1) + "\n")
    rates = sorted(results, key=lambda rate: rate or 1 << 30)
    methods = [method for method in METHODS.split(",") if any(method in of for of in results.values())]
    rounds = min(len(runs) for of in results.values() for runs in of.values())
    text = f"""# `--compress auto` on disks of different speeds

{datetime.date.today()}, {os.cpu_count()} CPUs, `-d {arguments.level} -t {arguments.threads}`, medians of {rounds} round(s); time to a
finished dump on the disk. Made by `bench/auto.py`.

{table(rates, results, methods)}
"""
    out.write_text(text)
    print(text)


main()
