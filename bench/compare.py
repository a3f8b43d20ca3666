#!/usr/bin/env python3
"""Runs pagehaul, makedumpfile, cp and the bare codec loop side by side on one vmcore.

Every command is run in turn, round after round, so that a slow minute of the machine hits all of them; medians are
compared. Writes a Markdown table and the raw figures to docs/benchmarks/.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Codec, pagehaul's method, makedumpfile's option for the same codec and level.
CODECS = [("lzo", "lzo", "-l"), ("snappy", "snappy", "-p"), ("zstd", "zstd:1", "-z"), ("zlib", "zlib:1", "-c")]
# The least a run must gain over makedumpfile's single-threaded mode: (level, threads) -> factor per codec.
GOALS = {
    (31, 1): {"lzo": 1, "snappy": 1, "zstd": 1, "zlib": 1},
    (31, 2): {"lzo": 1.8, "snappy": 1.8, "zstd": 1.8, "zlib": 4},
    (0, 1): {"lzo": 1, "snappy": 1, "zstd": 1, "zlib": 1},
    (0, 2): {"lzo": 3, "snappy": 3, "zstd": 3, "zlib": 4},
}
# The most a dump may be larger than makedumpfile's.
SIZE_GOALS = {"lzo": 1.01, "snappy": 1.01, "zstd": 1.01, "zlib": 1.0}


def measure(command, output):
    """One run: wall and CPU seconds, peak RssAnon in MiB (sampled), bytes of the output."""
    if output.exists():
        output.unlink()
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    peak = 0
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        try:
            with open(f"/proc/{process.pid}/status") as lines:
                for line in lines:
                    if line.startswith("RssAnon:"):
                        peak = max(peak, int(line.split()[1]))
        except OSError:
            pass
        time.sleep(0.005)
    wall = time.monotonic() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{process.stderr.read().decode(errors='replace')[-2000:]}")
    size = output.stat().st_size
    output.unlink()
    return {"wall": wall, "cpu": usage.ru_utime + usage.ru_stime, "anon_mib": peak / 1024, "bytes": size}


def plan(args, output):
    """The commands: (key, argv), where key = (tool, codec, level, threads)."""
    runs = []
    for level in args.levels:
        for codec, method, option in CODECS:
            if codec not in args.codecs:
                continue
            if args.makedumpfile:
                command = [args.makedumpfile, "--message-level", "0", "-d", str(level), option]
                runs.append((("makedumpfile", codec, level, 1), [*command, args.vmcore, output]))
                runs += [(("makedumpfile", codec, level, threads),
                          [*command, "--num-threads", str(threads), args.vmcore, output])
                         for threads in args.threads if threads > 1 and codec in args.multi_threaded]
            for threads in args.threads:
                runs.append((("pagehaul", codec, level, threads),
                             [args.pagehaul, "capture", "-q", "-d", str(level), "-c", method, "-t", str(threads),
                              args.vmcore, output]))
    runs.append((("cp", "-", 0, 1), ["cp", args.vmcore, output]))
    return runs


def row(key, median, base):
    tool, codec, level, threads = key
    cells = [tool, codec, str(level), str(threads), f"{median['wall']:.2f}", f"{median['cpu']:.2f}",
             f"{median['anon_mib']:.1f}", f"{median['bytes'] / 2**20:.1f}"]
    if base is None or median is base:
        return cells + ["", "", ""]
    if median["bytes"] < base["bytes"] / 2:
        # Debian's is built without snappy, for one.
        return cells + ["makedumpfile stores all pages as they are", "", ""]
    gain = base["wall"] / median["wall"]
    if tool != "pagehaul":
        return cells + [f"{gain:.2f}x", "", ""]
    size = median["bytes"] / base["bytes"]
    goal = GOALS.get((level, threads), {}).get(codec)
    met = goal is None or gain >= goal
    text = "" if goal is None else f"{goal}x {'met' if met else 'MISSED'}"
    size_text = f"{size:.4f}{'' if size <= SIZE_GOALS[codec] else ' MISSED'}"
    return cells + [f"{gain:.2f}x", text, size_text]


def bare_loop(args):
    """The codec loop alone: one thread, the vmcore's pages from memory, nothing written."""
    if not args.codec_loop:
        return ""
    # Every method over all of it would take longer than everything else.
    sample = pathlib.Path(args.scratch) / f"pagehaul-bench-{os.getpid()}-sample"
    with open(args.vmcore, "rb") as file:
        file.seek(os.path.getsize(args.vmcore) // 2)
        sample.write_bytes(file.read(128 << 20))
    done = subprocess.run([args.codec_loop, sample], capture_output=True, text=True)
    sample.unlink()
    if done.returncode != 0:
        sys.exit(f"{args.codec_loop} failed:\n{done.stderr}")
    return f"\n## The bare codec loop, one thread, 128 MiB from the middle of the vmcore\n\n```\n{done.stdout.strip()}\n```\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("vmcore")
    parser.add_argument("--pagehaul", default=str(ROOT / "target/release/pagehaul"))
    parser.add_argument("--makedumpfile", default=shutil.which("makedumpfile"))
    parser.add_argument("--codec-loop", help="program that prints codec speeds for the pages of a file")
    parser.add_argument("--multi-threaded", nargs="*", default=["lzo"], help="codecs to measure makedumpfile --num-threads with")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--levels", type=int, nargs="+", default=[31, 0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--codecs", nargs="+", default=[codec for codec, _, _ in CODECS])
    parser.add_argument("--scratch", default="/dev/shm", help="directory for the dumps; memory, so that no disk is measured")
    parser.add_argument("--name", default=f"{datetime.date.today()}-capture", help="name of the result files")
    args = parser.parse_args()
    output = pathlib.Path(args.scratch) / f"pagehaul-bench-{os.getpid()}"
    runs = plan(args, output)
    with open(args.vmcore, "rb") as file:
        while file.read(1 << 24):
            pass
    results = {key: [] for key, _ in runs}
    for round_number in range(args.rounds):
        for key, command in runs:
            results[key].append(measure(command, output))
            print(f"round {round_number + 1}: {key}: {results[key][-1]['wall']:.2f} s", file=sys.stderr)
    medians = {key: {field: statistics.median(run[field] for run in list_) for field in list_[0]}
               for key, list_ in results.items()}
    head = ["tool", "codec", "level", "threads", "wall s", "CPU s", "RssAnon MiB", "size MiB", "gain", "goal",
            "size ratio"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for key, _ in runs:
        base = medians.get(("makedumpfile", key[1], key[2], 1))
        lines.append("| " + " | ".join(row(key, medians[key], base)) + " |")
    version = subprocess.run([args.makedumpfile, "-v"], capture_output=True, text=True).stdout.splitlines()[0] \
        if args.makedumpfile else "not found on PATH"
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    text = "\n".join([
        f"# Capture against makedumpfile, {args.name}", "",
        f"{os.cpu_count()} CPUs ({cpu}), Linux {platform.release()}; vmcore of {os.path.getsize(args.vmcore) / 2**30:.2f} GiB "
        f"in the page cache, dumps to {args.scratch}; medians of {args.rounds} interleaved rounds.",
        f"Peer: {version}; with 2 threads by `--num-threads`. Command: `bench/compare.py VMCORE --rounds {args.rounds}`.",
        "`gain` is single-threaded makedumpfile's wall time over a run's, `size ratio` pagehaul's size over makedumpfile's.",
        "", *lines, ""]) + bare_loop(args)
    directory = ROOT / "docs/benchmarks"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{args.name}.md").write_text(text)
    raw = [{"tool": key[0], "codec": key[1], "level": key[2], "threads": key[3], "runs": list_}
           for key, list_ in results.items()]
    (directory / f"{args.name}.json").write_text(json.dumps(raw, indent=1) + "\n")
    print(text)


if __name__ == "__main__":
    main()
