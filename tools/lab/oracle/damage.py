"""Tests pagehaul, drgn and crash on damaged dumps of one vmcore, and prints the table of docs/damage.md.

Usage: damage.py VMCORE OTHER VMLINUX PAGEHAUL STATES DIRECTORY [--makedumpfile PATH] [--crash PATH]
OTHER is a vmcore of another crash; STATES is crates/vmcore's example of that name.
"""

import argparse
import pathlib
import random
import re
import struct
import subprocess
import sys

import numpy
from answers import CRASH_COMMANDS
from dumps import Dump
from raw import Raw, sized

PAGE = 4096

RANDOM_CUTS = 100
# KiB of memory per block of a split: the guest is smaller than makedumpfile's 1 GiB.
SPLIT_BLOCK = "16384"

# Runs in a separate process, since the reader may crash.
DRGN = """
import sys, drgn, numpy
from raw import Raw
prog = drgn.Program()
prog.set_core_dump(sys.argv[2])
raw = Raw(sys.argv[1])
right = wrong = error = 0
for pfn in numpy.load(sys.argv[3]).tolist():
    try:
        same = prog.read(pfn << 12, 4096, physical=True) == raw.read(pfn)
        right, wrong = right + same, wrong + (not same)
    except drgn.FaultError:
        error += 1
print(right, wrong, error)
"""


class Matrix:
    def __init__(self, args):
        self.args = args
        self.directory = pathlib.Path(args.directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.noise = random.Random(1)
        self.raw = Raw(args.vmcore)
        self.good = self.capture("good", "-c", "zlib").read_bytes()
        kept = sized(Dump(str(self.directory / "good")).kept, self.raw.pages)
        self.pfns = numpy.flatnonzero(kept)
        numpy.save(self.directory / "pfns.npy", self.pfns)
        self.truth = self.crash_lines([args.vmcore])[1] if args.crash else []

    def capture(self, name, *arguments, vmcore=None):
        path = self.directory / name
        subprocess.run([self.args.pagehaul, "capture", "-q", "--force", "-d", "31", *arguments, vmcore or self.args.vmcore, path],
                       check=True)
        return path

    def ours(self, paths):
        done = subprocess.run([self.args.states, self.args.vmcore, *paths], capture_output=True, text=True)
        if done.returncode not in (0, 1):
            sys.exit(f"pagehaul died: {done}")
        if done.returncode:
            return None
        return [int(word) for word in done.stdout.split()]

    def ours_in_words(self, paths):
        found = self.ours(paths)
        if found is None:
            return "refuses"
        right, wrong, _, missing, damaged = found
        parts = [f"{right:,} right"] + [f"{count:,} {name}" for count, name in
                 ((wrong, "**wrong**"), (missing, "missing"), (damaged, "damaged")) if count]
        return ", ".join(parts)

    def drgn(self, path):
        done = subprocess.run([sys.executable, "-c", DRGN, self.args.vmcore, path, self.directory / "pfns.npy"],
                              capture_output=True, text=True, cwd=pathlib.Path(__file__).parent)
        if done.returncode < 0:
            return f"dies of signal {-done.returncode}"
        if done.returncode:
            return "refuses"
        right, wrong, error = map(int, done.stdout.split())
        parts = [f"{right:,} right"] + [f"{count:,} {name}" for count, name in ((wrong, "**wrong**"), (error, "errors")) if count]
        return ", ".join(parts)

    def crash_lines(self, paths):
        script = self.directory / "commands"
        script.write_text("\n".join(["set scroll off", *CRASH_COMMANDS, "quit", ""]))
        try:
            done = subprocess.run([self.args.crash, "-s", "-i", script, self.args.vmlinux, *paths], capture_output=True,
                                  text=True, errors="replace", stdin=subprocess.DEVNULL, timeout=600)
        except subprocess.TimeoutExpired:
            return None, []
        lines = [line for line in done.stdout.splitlines() if not line.lstrip().startswith(("DUMPFILE", "KERNEL:"))]
        return done.returncode, lines

    def in_crash(self, paths):
        if not self.args.crash:
            return "not run"
        code, lines = self.crash_lines(paths)
        if code is None:
            return "does not end within 10 minutes"
        if code < 0:
            return f"dies of signal {-code}"
        if code or len(lines) < 50:
            return "refuses"
        same = len(set(lines) & set(self.truth))
        return "answers the same" if lines == self.truth else f"opens; {same * 100 // len(set(self.truth))} % of its answers are the same"

    def row(self, what, paths, one=None):
        paths = list(map(str, paths))
        cells = what, self.ours_in_words(paths), self.drgn(one or paths[0]), self.in_crash(paths)
        print("| " + " | ".join(cells) + " |", flush=True)

    def bytes(self, what, content):
        path = self.directory / "damaged"
        path.write_bytes(content)
        self.row(what, [path])

    def flipped(self, at):
        content = bytearray(self.good)
        content[at] ^= 1 << self.noise.randrange(8)
        return content

    def cuts(self):
        """Tests pagehaul and drgn on random damage, and returns the sums."""
        path = self.directory / "damaged"
        ours, theirs = [], []
        for _ in range(RANDOM_CUTS):
            path.write_bytes(self.good[: self.noise.randrange(len(self.good))])
            ours.append(self.ours([path]))
            theirs.append(self.drgn(path))
        total = len(self.pfns) * RANDOM_CUTS
        right = sum(found[0] for found in ours if found)
        wrong = sum(found[1] for found in ours if found)
        number = lambda name: sum(int(words.replace(",", "")) for cell in theirs for words in re.findall(rf"([\d,]+) {name}", cell))
        died = sum("dies" in cell for cell in theirs)
        print(f"| cut at {RANDOM_CUTS} random places, {total:,} pages in all | refuses {ours.count(None)}; {right:,} right, {wrong} wrong "
              f"| refuses {theirs.count('refuses')}, dies {died} times; {number('right'):,} right, {number('..wrong'):,} wrong | not run |")

    def run(self):
        print(f"{len(self.pfns):,} pages are in the whole dump, {len(self.good):,} bytes.\n")
        print("| damage | pagehaul | drgn, every page | crash, 7 commands |\n|---|---|---|---|")
        good, size = self.good, len(self.good)
        sub, bitmaps = struct.unpack_from("<II", good, 432)
        bitmap1 = (1 + sub) * PAGE
        bitmap2, descs = bitmap1 + bitmaps // 2 * PAGE, bitmap1 + bitmaps * PAGE
        data = descs + 24 * len(self.pfns)
        self.bytes("none", good)
        for where, at in (("in the header", 200), ("behind the header", PAGE), ("at bitmap 1", bitmap1), ("at bitmap 2", bitmap2),
                          ("at the descriptors", descs), ("halfway through the descriptors", (descs + data) // 2), ("at the data", data),
                          ("at a quarter", size // 4), ("at half", size // 2), ("at three quarters", size * 3 // 4),
                          ("one byte before its end", size - 1)):
            self.bytes(f"cut {where}", good[:at])
        self.cuts()
        kept = lambda bitmap: bitmap + int(self.pfns[len(self.pfns) // 2]) // 8
        middle = descs + 24 * (len(self.pfns) // 2)
        for where, at in (("signature", 3), ("header version", 8), ("status", 424), ("block size", 429), ("sub header size", 432),
                          ("bitmap blocks", 436), ("max_mapnr_64", PAGE + 97), ("place of VMCOREINFO", PAGE + 33), ("VMCOREINFO", PAGE + 1500),
                          ("bitmap 1", kept(bitmap1)), ("bitmap 2", kept(bitmap2)), ("a descriptor's offset", middle + 2),
                          ("a descriptor's size", middle + 9), ("a descriptor's flags", middle + 12), ("a page", data + (size - data) // 2)):
            self.bytes(f"bit flipped: {where}", self.flipped(at))
        flat = self.capture("flat", "-c", "zlib", "-f", "flattened").read_bytes()
        self.bytes("flattened, whole", flat)
        self.bytes("flattened, cut at half", flat[: len(flat) // 2])
        elf = self.capture("elf", "-f", "elf").read_bytes()
        self.bytes("ELF, cut at half", elf[: len(elf) // 2])
        self.split()

    def split(self):
        if not self.args.makedumpfile:
            return
        sets = []
        for name, vmcore in (("part", self.args.vmcore), ("other", self.args.other)):
            parts = [self.directory / f"{name}.{index}" for index in range(3)]
            for path in parts:
                path.unlink(missing_ok=True)
            subprocess.run([self.args.makedumpfile, "--message-level", "0", "-d", "31", "-l", "--split", "--splitblock-size",
                            SPLIT_BLOCK, vmcore, *parts],
                           check=True, stdout=subprocess.DEVNULL)
            sets.append(parts)
        parts, other = sets
        self.row("makedumpfile's split set, all three parts (drgn takes one)", parts)
        self.row("the same without the middle part", [parts[0], parts[2]])
        self.row("the middle part from another crash", [parts[0], other[1], parts[2]])
        self.row("a part twice", [*parts, parts[1]])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("vmcore", "other", "vmlinux", "pagehaul", "states", "directory"):
        parser.add_argument(name)
    parser.add_argument("--makedumpfile")
    parser.add_argument("--crash")
    Matrix(parser.parse_args()).run()


if __name__ == "__main__":
    main()
