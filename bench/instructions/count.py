#!/usr/bin/env python3
"""Counts the instructions that arm64 code executes, in QEMU's user emulation: the scan of struct pages with NEON and one by
one, the zero test, and encoders and decoders of pages.

Instruction counts, not times: they say nothing about caches, memory, or how many instructions a processor executes at once.
Needs qemu-aarch64 with plugins (Debian's qemu-user, not qemu-user-static), gcc, and what `scripts/setup.sh build aarch64`
installs. FILE is the source of pages to compress. Prints Markdown.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TARGET = "aarch64-unknown-linux-musl"
METHODS = "zstd,zstd:-1,zstd:3,zlib,zlib:6,lzo,snappy"
THREAD_CPU_TIME = "3"
PAGE = 4096


def build(*arguments, libraries=None):
    """Builds a program of the workspace for arm64 and returns its path. The linker also looks for libraries in a directory."""
    environment = os.environ | {
        "CC_aarch64_unknown_linux_musl": "aarch64-linux-gnu-gcc",
        "AR_aarch64_unknown_linux_musl": "aarch64-linux-gnu-ar",
        "CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER": "rust-lld",
    }
    command = ["cargo", *arguments, "--release", "--locked", "--target", TARGET, "--message-format", "json-render-diagnostics"]
    command += ["--", "-L", libraries] if libraries else []
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return re.findall(r'"executable":"([^"]+)"', done.stdout)[-1]


def count(emulator, plugin, *command):
    """Runs a program; returns its output, and the instructions of each of its timed parts."""
    with tempfile.NamedTemporaryFile("r") as log:
        program = [emulator, "-plugin", plugin, "-d", "plugin", "-D", log.name, *command]
        done = subprocess.run([str(word) for word in program], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{command[0]} failed:\n{done.stdout}{done.stderr}")
        lines = [line.split() for line in log]
    marks = [int(executed) for clock, executed in lines if clock == THREAD_CPU_TIME]
    if not marks or len(marks) % 2:
        sys.exit(f"{command[0]} read its clock {len(marks)} times")
    return done.stdout, [end - start for start, end in zip(marks[::2], marks[1::2])]


def scan(emulator, plugin):
    program = build("test", "--no-run", "-p", "pagehaul-kernel", "--lib")
    text, parts = count(emulator, plugin, program, "--ignored", "--nocapture", "--test-threads", "1", "each_way_alone")
    print("\n| struct pages | NEON | one by one | one by one / NEON |\n|---|---|---|---|")
    rows = re.findall(r"^(?:test .* \.\.\. )?(.*): (\d+) struct pages,", text, re.MULTILINE)
    for (name, pages), wide, narrow in zip(rows, parts[::2], parts[1::2], strict=True):
        print(f"| {name} | {wide / int(pages):.1f} | {narrow / int(pages):.1f} | {narrow / wide:.2f} |")


def codecs(emulator, plugin, file):
    # The example names libdl to load C libraries, of which there are none here. Rust's musl has no file for it.
    subprocess.run(["ar", "rc", plugin.with_name("libdl.a")], check=True)
    program = build("rustc", "-p", "pagehaul-codec", "--example", "codecs", libraries=plugin.parent)
    text, parts = count(emulator, plugin, program, "-m", METHODS, "-r", "1", file)
    pages, zeros = map(int, re.search(r": (\d+) pages, (\d+) of them zero", text).groups())
    zero_test, *methods = parts
    print(f"\nZero test of a page of zeros: {zero_test / (100 * (4 << 20) / PAGE):.0f} instructions.")
    print("\n| method | compression, instructions per byte | decompression |\n|---|---|---|")
    size = (pages - zeros) * PAGE
    for name, compress, decompress in zip(METHODS.split(","), methods[::2], methods[1::2], strict=True):
        print(f"| {name} | {compress / size:.2f} | {decompress / size:.2f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=pathlib.Path, help="pages to compress")
    parser.add_argument("--emulator", default="qemu-aarch64", help="QEMU's user emulator, with plugins")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        plugin = pathlib.Path(directory) / "count.so"
        source = ROOT / "bench/instructions/plugin.c"
        subprocess.run(["gcc", "-Wall", "-Wextra", "-shared", "-fPIC", "-O2", "-o", plugin, source], check=True)
        scan(args.emulator, plugin)
        codecs(args.emulator, plugin, args.file.resolve())


if __name__ == "__main__":
    main()
