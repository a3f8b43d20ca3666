#!/usr/bin/env python3
"""Keeps the inputs of a corpus that reach more than the seeds, few and small, in tools/fuzz-targets/corpus/TARGET.

Usage: fuzz/keep.py PROGRAM SEEDS CORPUS: a built target, whose file name is the target's, and two directories. What was kept before
counts as part of the corpus.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FILES = 20
BYTES = 32 << 10
# An input costs some time, however small it is.
COST = 256


def features(program, directories):
    """Returns all features that each file reaches, as libFuzzer counts them."""
    with tempfile.TemporaryDirectory() as scratch:
        control, out = Path(scratch, "control"), Path(scratch, "out")
        out.mkdir()
        arguments = [f"-merge_control_file={control}", "-set_cover_merge=1", "-timeout=30", "-rss_limit_mb=2048", str(out)]
        run = subprocess.run([program, *arguments, *map(str, directories)], capture_output=True, cwd=scratch)
        if run.returncode:
            sys.exit(run.stderr.decode(errors="replace")[-2000:])
        lines = control.read_text().splitlines()
    files = lines[2 : 2 + int(lines[0])]
    found = {}
    for line in lines[2 + len(files) :]:
        if match := re.fullmatch(r"FT (\d+)((?: \d+)*)", line):
            found[Path(files[int(match[1])])] = set(map(int, match[2].split()))
    return found


def main():
    program, seeds, corpus = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), Path(sys.argv[3]).resolve()
    kept = Path(__file__).resolve().parent.parent / "tools/fuzz-targets/corpus" / program.name
    directories = [path for path in (seeds, corpus, kept) if path.is_dir()]
    found = features(program, directories)
    seen = set().union(*(reached for path, reached in found.items() if path.parent == seeds))
    # Fuzzing begins with copies of the seeds.
    rest = {path: reached for path, reached in found.items() if not (seeds / path.name).exists()}
    chosen, room = {}, BYTES
    while rest and len(chosen) < FILES:
        size = {path: path.stat().st_size for path in rest}
        rest = {path: reached - seen for path, reached in rest.items() if size[path] <= room and reached - seen}
        best = max(rest, key=lambda path: (len(rest[path]) / (size[path] + COST), path.name), default=None)
        if best is None:
            break
        seen |= rest.pop(best)
        room -= size[best]
        chosen[best.name[:12]] = best.read_bytes()
    shutil.rmtree(kept, ignore_errors=True)
    if chosen:
        kept.mkdir(parents=True)
    for name, contents in chosen.items():
        (kept / name).write_bytes(contents)
    every = set().union(*found.values())
    print(f"{program.name}: {len(chosen)} inputs, {BYTES - room} bytes; {len(seen)} of {len(every)} features")


main()
