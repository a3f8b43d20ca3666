"""Compares pagehaul's dumps of one vmcore with the vmcore, the kernel's debug symbols, drgn, crash and makedumpfile.

Usage: validate.py VMCORE VMLINUX MANIFEST PAGEHAUL DIRECTORY [--makedumpfile PATH] [--older NAME=PATH]
                   [--peer PATH] [--crash PATH] [--thorough]
Prints each check; exits with 1 if one fails.
"""

import argparse
import functools
import json
import pathlib
import subprocess
import sys

import answers
import command_lines
import contents
import drgn
import numpy
import peer
import reading
import riscv64
import splits
from classify import CLASSES, NUMBER, classify, excluded
from dumps import Dump
from raw import EM_RISCV, NOTES, Raw, sized
from structpages import StructPages

LEVELS = [0, 1, 2, 4, 8, 16, 31]
# Stamped classes with PFNs, and the level bits that exclude them. Not here: freed pages (the free lists tell), offline
# pages (counted), pipes and messages (PFNs unknown).
STAMPS = {
    "anon": 8, "anon-huge": 8, "anon-locked": 8, "anon-merged": 8, "anon-zero": 8, "huge-tlb": 8,
    "shmem": 6, "shmem-huge": 6, "cache": 6, "cache-private": 4, "hw-poison": 32,
}


class Validator:
    """One vmcore, and the class of each page."""

    def __init__(self, args):
        self.args = args
        self.failures = 0
        self.directory = pathlib.Path(args.directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.raw = Raw(args.vmcore)
        prog = drgn.Program()
        prog.set_core_dump(args.vmcore)
        if self.raw.machine == EM_RISCV:
            riscv64.attach(prog, self.raw)
        prog.load_debug_info([args.vmlinux])
        pages = StructPages(prog, self.raw)
        self.classes, heads, notes = classify(prog, pages)
        exports = self.raw.bytes.find(b"NUMBER(PG_hwpoison)=", 0, NOTES) >= 0
        self.oracle = {"heads": heads, "copies": pages.copies, "exports_poison": exports,
                       "renamed": any(m.name == "compound_info" for m in members(prog.type("struct page")))}
        self.manifest = json.loads(pathlib.Path(args.manifest).read_text())
        self.offline()
        self.check("free lists and page types agree", [f"{name}: {count}" for name, count in notes.items() if count])

    def check(self, what, problems):
        """Prints that a check passed, or its problems."""
        if problems:
            self.failures += 1
            print(f"FAIL {what}: {len(problems)} problems")
            for problem in problems[:8]:
                print(f"     {problem}")
        else:
            print(f"ok   {what}")

    def offline(self):
        """Compares the number of offline pages with the balloon's."""
        given = sum(entry["count"] for entry in self.manifest["classes"] if entry["class"] == "offline")
        found = int((self.classes == NUMBER["offline"]).sum())
        self.check(f"{found} pages are offline", [] if found == given else [f"the balloon holds {given}"])

    def capture(self, name, *arguments):
        """Makes a dump with the binary under test, and returns its path."""
        path = self.directory / name
        command = [self.args.pagehaul, "capture", "-q", "--force", *arguments, self.args.vmcore, str(path)]
        subprocess.run(command, check=True)
        return str(path)

    def pages_of(self, path):
        """Returns which pages a dump holds."""
        return sized(Dump(path, self.raw.page).kept, self.raw.pages)

    def expected(self, level):
        """Returns the pages that a dump of this level should hold, according to the debug symbols."""
        return self.raw.present & ~excluded(level)[self.classes]

    def levels(self):
        """Checks which pages each level keeps, and compares with makedumpfile."""
        for level in LEVELS:
            path = self.capture("level", "-d", str(level), "-c", "lzo")
            kept = self.pages_of(path)
            should = self.expected(level)
            problems = [f"PFN {pfn:#x} ({CLASSES[self.classes[pfn]]}) is {'kept' if kept[pfn] else 'excluded'}"
                        for pfn in numpy.flatnonzero(kept != should).tolist()]
            self.check(f"level {level}: {kept.sum()} pages kept, {(self.raw.present & ~kept).sum()} excluded, "
                       "in agreement with debug symbols", problems)
            self.check(f"level {level}: contents equal the vmcore, through libkdumpfile",
                       contents.compare(path, kept, self.raw) + contents.readable_excluded(path, kept, self.raw))
            self.compare_mounted(f"level {level}", kept, path)
            self.stamps(level, kept)
            if self.args.peer:
                self.peer(level, kept)

    def stamps(self, level, kept):
        """Checks that stamped pages are kept or excluded by their class."""
        problems = []
        count = 0
        for entry in self.manifest["classes"]:
            bits = STAMPS.get(entry["class"])
            if bits is None:
                continue
            for run in entry["ranges"]:
                for pfn in range(run["pfn"], run["pfn"] + run["pages"]):
                    count += 1
                    if kept[pfn] == bool((level | 32) & bits):
                        problems.append(f"{entry['class']} page {pfn:#x} is {'kept' if kept[pfn] else 'excluded'}")
        self.check(f"level {level}: {count} stamped pages are kept or excluded by their class", problems)

    def peer(self, level, kept):
        path = self.directory / "peer"
        path.unlink(missing_ok=True)
        subprocess.run([self.args.peer, "--message-level", "0", "-d", str(level), "-l", self.args.vmcore, path],
                       check=True, stdout=subprocess.DEVNULL)
        theirs = self.pages_of(path)
        found, example = peer.compare(level, kept, theirs, self.classes, self.oracle, self.raw)
        for (direction, reason, name), pages in sorted(found.items(), key=str):
            if reason:
                print(f"     level {level}: {pages} {name} pages {direction} by makedumpfile: "
                      f"{peer.REASONS[direction, reason]}")
        self.check(f"level {level}: every difference from makedumpfile is explained",
                   [f"{pages} {name} pages {direction} by makedumpfile, PFN {example[direction, reason, name]:#x} first"
                    for (direction, reason, name), pages in found.items() if not reason])

    def formats(self):
        """Checks that every codec and format holds the same pages, and opens in the readers."""
        truth = answers.drgn_answers(self.args.vmcore, self.args.vmlinux)
        # Without a level, zlib and zstd are built-in encoders; zstd:-1 is libzstd.
        ways = [("zstd", "kdump"), ("zstd:-1", "kdump"), ("zstd", "flattened"), ("none", "elf")]
        more = [(codec, "kdump") for codec in ("none", "zlib", "lzo", "snappy", "zstd:3")]
        for codec, format_ in ways + (more if self.args.thorough else []):
            what = f"{format_} {codec}"
            path = self.capture("format", "-d", "31", "-c", codec, "-f", format_)
            kept = self.pages_of(path)
            missing = numpy.flatnonzero(self.expected(31) & ~kept).tolist()
            self.check(f"{what}: no page of level 31 is missing", [f"PFN {pfn:#x}" for pfn in missing])
            if format_ != "elf":
                # ELF files keep short runs of other classes, and readers return zeros for holes.
                more = numpy.flatnonzero(kept & ~self.expected(31)).tolist()
                self.check(f"{what}: no other page is kept", [f"PFN {pfn:#x}" for pfn in more])
                self.check(f"{what}: excluded pages are not readable", contents.readable_excluded(path, kept, self.raw))
            self.check(f"{what}: contents equal the vmcore", contents.compare(path, kept, self.raw))
            found = answers.drgn_answers(path, self.args.vmlinux)
            self.check(f"{what}: drgn finds the same {len(truth['tasks'])} tasks, {len(truth['modules'])} modules and log",
                       [f"{name} differ" for name in truth if truth[name] != found[name]])
            if format_ != "elf":
                self.reading(what, path, kept, truth)
        for codec, format_ in [] if self.args.thorough else more:
            path = self.capture("format", "-d", "31", "-c", codec, "-f", format_)
            kept = self.pages_of(path)
            self.check(f"{format_} {codec}: contents equal the vmcore", contents.compare(path, kept, self.raw))
            self.compare_mounted(f"{format_} {codec}", kept, path)
        self.crash()

    def compare_mounted(self, what, kept, *paths):
        """Compares every page of a mounted dump."""
        if reading.can_mount():
            with reading.mounted(self.args.pagehaul, self.directory / "mnt", *paths) as vmcore:
                self.check(f"{what}: {int(kept.sum())} pages mapped from a mount equal the vmcore",
                           reading.compare(vmcore, kept, self.raw))

    def reading(self, what, path, kept, truth):
        """Checks pagehaul's own reading of a dump: the log, verify, and a mount."""
        pagehaul, log = self.args.pagehaul, truth["log"]
        self.check(f"{what}: pagehaul dmesg prints the log that drgn prints",
                   reading.log_differences(reading.log(pagehaul, path), log))
        self.check(f"{what}: pagehaul verify accepts it", reading.verify(pagehaul, path))
        if not reading.can_mount():
            print("     mounting is not validated: it needs /dev/fuse and root")
            return
        with reading.mounted(pagehaul, self.directory / "mnt", path) as vmcore:
            self.check(f"{what}: {int(kept.sum())} pages mapped from a mount equal the vmcore",
                       reading.compare(vmcore, kept, self.raw))
            found = reading.log(pagehaul, vmcore)
            self.check(f"{what}: the mounted vmcore has the same log",
                       reading.log_differences(found, log))
            answered = answers.drgn_answers(vmcore, self.args.vmlinux)
            self.check(f"{what}: drgn answers the same for the mounted vmcore",
                       [f"{name} differ" for name in truth if truth[name] != answered[name]])

    @functools.cached_property
    def crash_truth(self):
        """What crash prints for the vmcore."""
        return answers.crash_answers(self.args.crash, self.args.vmlinux, self.args.vmcore)

    def crash(self):
        if not self.args.crash:
            return
        for codec, format_ in (("zstd", "kdump"), ("zstd:-1", "kdump"), ("lzo", "kdump"), ("snappy", "kdump"),
                               ("zlib", "kdump"), ("zstd", "flattened"), ("none", "elf")):
            path = self.capture("format", "-d", "31", "-c", codec, "-f", format_)
            self.same_in_crash(f"{format_} {codec}", path)
        if reading.can_mount():
            path = self.capture("format", "-d", "31")
            with reading.mounted(self.args.pagehaul, self.directory / "mnt", path) as vmcore:
                self.same_in_crash("mounted", vmcore)

    def same_in_crash(self, what, *paths):
        truth, found = self.crash_truth, answers.crash_answers(self.args.crash, self.args.vmlinux, *paths)
        differ = [f"{a!r} became {b!r}" for a, b in zip(truth, found) if a != b]
        if len(truth) != len(found):
            differ.append(f"{len(truth)} lines became {len(found)}")
        self.check(f"{what}: crash prints the same {len(truth)} lines", differ)

    def parts(self):
        """Checks that all readers read a split set, and reassemble it."""
        paths = [self.directory / f"part-{number}" for number in range(3)]
        subprocess.run([self.args.pagehaul, "capture", "-q", "--force", "-d", "31", "-c", "lzo", self.args.vmcore, *paths],
                       check=True)
        kept = self.expected(31)
        for order in (paths, paths[1:] + paths[:1]):
            numbers = " ".join(path.name for path in order)
            self.check(f"{numbers}: contents equal the vmcore, through libkdumpfile",
                       splits.compare(order, kept, self.raw))
            if self.args.crash:
                self.same_in_crash(numbers, *order)
        whole = self.directory / "reassembled"
        whole.unlink(missing_ok=True)
        subprocess.run([self.args.pagehaul, "convert", "-q", "-c", "lzo", *paths, whole], check=True)
        self.check("parts converted to one file: contents equal the vmcore, through drgn",
                   contents.compare(str(whole), kept, self.raw) + contents.readable_excluded(str(whole), kept, self.raw))
        if self.args.makedumpfile:
            whole.unlink()
            subprocess.run([self.args.makedumpfile, "--message-level", "0", "--reassemble", *paths, whole], check=True,
                           stdout=subprocess.DEVNULL)
            self.check("parts reassembled by makedumpfile: contents equal the vmcore, through drgn",
                       contents.compare(str(whole), kept, self.raw) + contents.readable_excluded(str(whole), kept, self.raw))

    def damage(self):
        """Checks that conversion of truncated dumps keeps all intact pages, and invents none."""
        data = pathlib.Path(self.capture("whole", "-d", "31", "-c", "zlib")).read_bytes()
        truncated, salvaged = self.directory / "truncated", self.directory / "salvaged"
        for quarters in (1, 3):
            truncated.write_bytes(data[: len(data) * quarters // 4])
            done = subprocess.run([self.args.pagehaul, "convert", "-q", "--json", "--force", truncated, salvaged],
                                  capture_output=True, text=True)
            unreadable = json.loads(done.stdout)["unreadable_pages"]
            kept = self.pages_of(str(salvaged))
            lost, problems = contents.salvaged(str(salvaged), kept, self.raw)
            if (done.returncode, lost) != (3, unreadable):
                problems.append(f"convert exited with {done.returncode} and reported {unreadable} lost pages, not 3 and {lost}")
            problems += [f"PFN {pfn:#x} is in only one of both" for pfn in numpy.flatnonzero(kept != self.expected(31)).tolist()]
            saved = int(kept.sum()) - lost
            self.check(f"truncated at {quarters}/4: the {saved} salvaged pages equal the vmcore, {lost} are reported lost",
                       problems if saved else ["nothing was salvaged"])

    def command_lines(self):
        """Compares pagehaul called as makedumpfile with makedumpfile."""
        if self.args.makedumpfile:
            command_lines.CommandLines(self, self.args.makedumpfile, "Debian sid", True).everything()
        for older in self.args.older:
            name, path = older.split("=", 1)
            command_lines.CommandLines(self, path, name, False).everything()

    def threads(self):
        """Checks that any number of threads writes the same bytes."""
        for codec, format_ in (("zstd", "kdump"), ("lzo", "kdump"), ("snappy", "flattened"), ("none", "elf")):
            way = ["-c", codec, "-f", format_, "-t"]
            one = pathlib.Path(self.capture("threads-1", *way, "1")).read_bytes()
            for threads in (2, 4, 7):
                other = pathlib.Path(self.capture("threads-n", *way, str(threads))).read_bytes()
                self.check(f"{format_} {codec}: {threads} threads write the same {len(one)} bytes as one",
                           [] if one == other else ["they differ"])


def members(kind):
    """Yields the members of a struct, including those of anonymous structs and unions."""
    for member in kind.members:
        if member.name is None:
            yield from members(member.type)
        else:
            yield member


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("vmcore", "vmlinux", "manifest", "pagehaul", "directory"):
        parser.add_argument(name)
    parser.add_argument("--makedumpfile")
    parser.add_argument("--older", action="append", default=[], metavar="NAME=PATH",
                        help="another makedumpfile, which may choose other pages of a newer kernel")
    parser.add_argument("--peer", help="makedumpfile to compare only the pages of each level with [default: --makedumpfile]")
    parser.add_argument("--only-command-lines", action="store_true", help="only compare command lines with makedumpfile")
    parser.add_argument("--crash")
    parser.add_argument("--thorough", action="store_true", help="open dumps of every codec in drgn")
    args = parser.parse_args()
    args.peer = args.peer or args.makedumpfile
    validator = Validator(args)
    validator.command_lines()
    if validator.args.only_command_lines:
        sys.exit(validator.failures != 0)
    validator.levels()
    if validator.raw.machine == EM_RISCV:
        print("     readers of each format are not compared: they know no page tables of riscv64")
    else:
        validator.formats()
    validator.threads()
    validator.parts()
    validator.damage()
    print(f"{validator.failures} of the checks failed" if validator.failures else "all checks passed")
    sys.exit(validator.failures != 0)


if __name__ == "__main__":
    main()
