"""Reads dumps with pagehaul: the log, verify, and every page mapped from a mount."""

import contextlib
import mmap
import os
import pathlib
import re
import subprocess

from raw import load_segments, runs

BATCH = 256
"""Number of pages to compare at once."""


def log(pagehaul, dump):
    """Returns the kernel's log as text."""
    done = subprocess.run([pagehaul, "dmesg", dump], check=True, capture_output=True)
    return done.stdout.decode(errors="replace")


def log_differences(ours, theirs):
    """Returns differing lines. drgn prints the time on the first line of a record only, the kernel and pagehaul on each."""
    ours, theirs = ours.strip().splitlines(), theirs.strip().splitlines()
    if len(ours) != len(theirs):
        return [f"{len(ours)} lines, not {len(theirs)}"]
    plain = lambda line: re.sub(r"^\[ *\d+\.\d+\] ", "", line)
    return [f"{one!r}, not {other!r}" for one, other in zip(ours, theirs) if other not in (one, plain(one))]


def verify(pagehaul, *dumps):
    """Returns the problems that `pagehaul verify` reports for a dump or a split set."""
    done = subprocess.run([pagehaul, "verify", *dumps], capture_output=True, text=True)
    return [] if done.returncode == 0 else (done.stdout + done.stderr).splitlines()


def can_mount():
    """Returns whether FUSE mounts work: they need the device, and root if there is no fusermount."""
    return os.access("/dev/fuse", os.R_OK | os.W_OK) and os.geteuid() == 0


@contextlib.contextmanager
def mounted(pagehaul, directory, *dumps):
    """Mounts a dump or a split set, and yields the path of the vmcore."""
    directory = pathlib.Path(directory)
    directory.mkdir(exist_ok=True)
    subprocess.run([pagehaul, "mount", "--background", *dumps, directory], check=True, stdout=subprocess.DEVNULL)
    try:
        yield str(directory / "vmcore")
    finally:
        subprocess.run(["umount", directory], check=True)


def compare(vmcore, kept, raw):
    """Maps a mounted vmcore, and returns descriptions of kept pages that differ."""
    wrong, size = [], raw.page
    with open(vmcore, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    # The kernel image has a second segment with the same bytes.
    places = {}
    for offset, paddr, in_file, _ in load_segments(data):
        for page in range(paddr // size, (paddr + in_file + size - 1) // size):
            places[page] = (offset - paddr % size) + (page - paddr // size) * size
    for start, end in runs(kept):
        for pfn in range(start, end, BATCH):
            count = min(BATCH, end - pfn)
            # Pages of a run are not consecutive in the file if two segments meet.
            found = b"".join(data[places[page] : places[page] + size] for page in range(pfn, pfn + count))
            if found != raw.read(pfn, count):
                wrong.append(f"PFN {pfn:#x} and {count - 1} more have other contents")
    data.close()
    return wrong
