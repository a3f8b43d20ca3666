"""Pauses of checkpoints and cores, by bench/pause.py."""

import json
import statistics
import sys

from .support import REPORT, passed, run, skipped


def pause(v):
    if not v.args.criu:
        skipped("pauses: CRIU does not work on this kernel")
        return
    result = v.directory / "pause.json"
    run(sys.executable, v.args.pause, "--pagehaul", v.args.pagehaul, "--clocked", v.args.clocked, "--criu", v.args.criu,
        "--directory", v.directory, "--size", 200, "--rate", 20, "--rounds", v.args.rounds, "--json", result, timeout=600 * v.args.rounds)
    figures = json.loads(result.read_text())[0]["figures"]
    for name, runs in figures.items():
        pauses = [each["pause"] for each in runs]
        REPORT.add(pause=name, milliseconds=pauses)
        print(f"     {name}: median {statistics.median(pauses):.1f} ms, {min(pauses):.1f} to {max(pauses):.1f}", flush=True)
    passed(f"pauses of a process of 200 MiB that writes 20 MB/s, {v.args.rounds} rounds")
