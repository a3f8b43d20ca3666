"""Runs pagehaul and makedumpfile with the same command lines, and compares statuses, pages, headers and text."""

import itertools
import re
import struct
import subprocess

import contents
import numpy
import peer
from dumps import Dump
from raw import sized

# Options, and which of makedumpfile's outputs are compared: "pages" (kept pages, first bitmap, header), "status" (only that
# both succeed: ELF holes differ by rule, see docs/differences.md).
DUMPS = [
    ("-c -d 31", "pages"), ("-l --message-level 7 -d 31", "pages"), ("-z -d 31", "pages"), ("-p -d 17", "pages"),
    ("-l --message-level 1 -d 31 --num-threads 2", "pages"), ("-ld31", "pages"), ("-l -c -d 1 -d 31 --message 7", "pages"),
    ("-d 16", "pages"), ("-c -d 31 -b 8 --cyclic-buffer 1024 --non-mmap", "pages"), ("-E -d 31", "status"),
]
# Command lines that both accept or refuse. V is the vmcore, O an output that does not exist.
CHECKED = """
-l --message-level 7 -d 31 V O
-l --message-level 7 -d 31 -F V
-ld31 V O
-l -c V O
-l V O -d 31
-d 11,31 -c V O
-F --num-threads 4 V
-L 5G V O
-R O
--dump-dmesg V O
--dump-dmesg -F V
--split V O P
--cyclic-buffer 1024 --non-mmap V O
--message-level 0 V O
--message-level 31 V O
-d 0 V O
-d x V O
--num-threads 0 V O
--show-stats --dry-run V O
-d 32 V O
-d -1 V O
--message-level 32 V O
--message-level -1 V O
-E -l V O
-E --num-threads=2 V O
--split V O
--nothing V O
-q V O
-c -d 31
-F V O
V
"""
# makedumpfile accepts these; pagehaul refuses them when parameters are checked.
REFUSED = ["--config O V O", "-X V O", "-e V O"]


class CommandLines:
    """Both programs on one vmcore."""

    def __init__(self, validator, makedumpfile, name, same_pages):
        self.validator = validator
        self.directory = validator.directory
        self.theirs = [makedumpfile]
        self.ours = [validator.args.pagehaul, "makedumpfile"]
        self.name = name
        self.same_pages = same_pages
        """Whether this makedumpfile knows the kernel: older ones choose other pages."""

    def check(self, what, problems):
        self.validator.check(f"{what}, as makedumpfile of {self.name}", problems)

    def run(self, program, line, output=None, source=None):
        """Runs a program; returns its status and standard output."""
        words = [{"V": self.validator.args.vmcore, "O": str(self.path(output or "none"))}.get(word, word)
                 for word in line.split()]
        done = subprocess.run([*program, *words], stdin=source or subprocess.DEVNULL, capture_output=True)
        return done.returncode, done.stdout

    def path(self, name):
        return self.directory / f"command-{name}"

    def both(self, line):
        """Makes the same dump with both; returns their statuses and paths."""
        paths = [self.path("ours"), self.path("theirs")]
        statuses = []
        for program, path, name in ((self.ours, paths[0], "ours"), (self.theirs, paths[1], "theirs")):
            path.unlink(missing_ok=True)
            statuses.append(self.run(program, f"{line} V O", name)[0])
        return statuses, paths

    def everything(self):
        self.parameters()
        self.dumps()
        self.streams()
        self.sets()
        self.log()
        self.existing()

    def parameters(self):
        """Compares statuses of --check-params."""
        problems = []
        lines = [line for line in CHECKED.splitlines() if line]
        for line in lines:
            ours, theirs = (self.run(program, f"--check-params {line}")[0] for program in (self.ours, self.theirs))
            if ours != theirs:
                problems.append(f"{line}: {ours}, makedumpfile {theirs}")
        problems += [f"{line} is not refused" for line in REFUSED if self.run(self.ours, f"--check-params {line}")[0] != 1]
        self.check(f"--check-params answers {len(lines)} command lines", problems)

    def dumps(self):
        for options, compared in DUMPS:
            statuses, paths = self.both(options)
            died = statuses[1] < 0
            if died:
                # makedumpfile 1.7.8 with --num-threads aborts now and then.
                print(f"     {options}: makedumpfile of {self.name} dies of signal {-statuses[1]}")
            problems = [] if statuses[0] == 0 and (died or statuses[1] == 0) else [f"exit statuses {statuses}"]
            if not problems and not died and compared == "pages":
                problems = self.compare(paths)
            self.check(f"{options}", problems)

    def compare(self, paths):
        """Compares two dumps in kdump-compressed format."""
        ours, theirs = (Dump(str(path)) for path in paths)
        raw = self.validator.raw
        problems = []
        if not numpy.array_equal(sized(ours.memory, raw.pages)[raw.whole], sized(theirs.memory, raw.pages)[raw.whole]):
            problems.append("the first bitmaps differ")
        level, mine = header(paths[0])
        _, other = header(paths[1])
        if other["status"] == 0:
            # Debian builds makedumpfile without some codecs; it then stores pages uncompressed.
            other["status"] = mine["status"]
        problems += [f"{key}: {mine[key]}, makedumpfile {other[key]}" for key in mine if mine[key] != other[key]]
        if self.same_pages:
            found, _ = peer.compare(level, sized(ours.kept, raw.pages), sized(theirs.kept, raw.pages),
                                    self.validator.classes, self.validator.oracle, raw)
            problems += [f"{pages} {name} pages {direction} by makedumpfile"
                         for (direction, reason, name), pages in found.items() if not reason]
        kept = sized(ours.kept, raw.pages)
        return problems + contents.compare(str(paths[0]), kept, raw)

    def streams(self):
        """Each program rearranges both streams."""
        writers = (("pagehaul", self.ours), ("makedumpfile", self.theirs))
        for options, (writer, program) in itertools.product(("-F -c -d 31", "-F -E -d 31"), writers):
            status, stream = self.run(program, f"{options} V")
            problems = [] if status == 0 else [f"{options} exits with {status}"]
            self.path("stream").write_bytes(stream)
            files = []
            for name, reader in (("ours", self.ours), ("theirs", self.theirs)):
                self.path(name).unlink(missing_ok=True)
                with open(self.path("stream"), "rb") as source:
                    status, _ = self.run(reader, "-R O", name, source)
                problems += [] if status == 0 else [f"-R of {name} exits with {status}"]
                files.append(self.path(name).read_bytes() if self.path(name).exists() else b"")
            # Holes at the end: both files read the same.
            size = max(map(len, files))
            if files[0].ljust(size, b"\0") != files[1].ljust(size, b"\0"):
                problems.append("-R gives other bytes")
            self.check(f"{options} of {writer}, then -R: the same {size} bytes", problems)

    def sets(self):
        """pagehaul joins makedumpfile's parts; the other direction is in validate.py."""
        parts = [self.path(f"part{number}") for number in range(2)]
        for path in [*parts, self.path("ours"), self.path("theirs")]:
            path.unlink(missing_ok=True)
        parts = " ".join(map(str, parts))
        status, _ = self.run(self.theirs, f"--split -l -d 31 V {parts}")
        problems = [] if status == 0 else [f"--split exits with {status}"]
        for name, program in (("ours", self.ours), ("theirs", self.theirs)):
            status, _ = self.run(program, f"--reassemble {parts} O", name)
            problems += [] if status == 0 else [f"--reassemble of {name} exits with {status}"]
        if not problems:
            raw = self.validator.raw
            ours, theirs = (sized(Dump(str(self.path(name))).kept, raw.pages) for name in ("ours", "theirs"))
            if not numpy.array_equal(ours, theirs):
                problems.append("the joined dumps keep other pages")
            problems += contents.compare(str(self.path("ours")), ours, raw)
        self.check("--split of makedumpfile, then --reassemble", problems)

    def log(self):
        texts = []
        problems = []
        for name, program in (("ours", self.ours), ("theirs", self.theirs)):
            self.path(name).unlink(missing_ok=True)
            status, _ = self.run(program, "--dump-dmesg V O", name)
            problems += [] if status == 0 else [f"--dump-dmesg of {name} exits with {status}"]
            texts.append(self.path(name).read_bytes())
        ours, theirs = texts
        if not re.search(rb"^\[ *\d+\.\d+\] \[ *[TC]\d+\] ", theirs):
            # makedumpfile 1.7.5 and newer writes the caller of each message.
            ours = re.sub(rb"(?m)^(\[ *\d+\.\d+\] )\[ *[TC]\d+\] ", rb"\1", ours)
            ours = re.sub(rb"(?m)^" + b" " * len("[      T1] "), b"", ours)
        lines = list(zip(ours.split(b"\n"), theirs.split(b"\n")))
        problems += [f"{a!r}, makedumpfile {b!r}" for a, b in lines if a != b]
        problems += [] if len(ours) == len(theirs) else [f"{len(ours)} bytes, makedumpfile {len(theirs)}"]
        self.check(f"--dump-dmesg: the same {len(lines) - 1} lines", problems)

    def existing(self):
        """Neither replaces a file without -f."""
        problems = []
        for name, program in (("ours", self.ours), ("theirs", self.theirs)):
            self.path(name).write_text("precious")
            if self.run(program, "-l -d 31 V O", name)[0] != 1 or self.path(name).read_text() != "precious":
                problems.append(f"{name} replaces a file without -f")
            if self.run(program, "-f -l -d 31 V O", name)[0] != 0:
                problems.append(f"{name} does not replace a file with -f")
        self.check("an existing file", problems)


def header(path):
    """Returns the dump level, and the fields that the format fixes."""
    with open(path, "rb") as file:
        head = file.read(4096 + 104)
    version, = struct.unpack_from("<i", head, 8)
    seconds, = struct.unpack_from("<q", head, 408)
    status, block, sub, bitmaps, pages = struct.unpack_from("<IiiII", head, 424)
    cpus, = struct.unpack_from("<i", head, 460)
    phys_base, level = struct.unpack_from("<Qi", head, block)
    most, = struct.unpack_from("<Q", head, block + 96)
    fields = {
        "version": version, "crash time": seconds, "status": status, "block size": block, "sub header": sub,
        "bitmap blocks": bitmaps, "pages": (pages, most), "CPUs": cpus, "phys_base": phys_base, "dump level": level,
        "utsname": head[12:402],
    }
    return level, fields
