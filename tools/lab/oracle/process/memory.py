"""Kinds of memory: huge pages, and pages shared after a fork."""

import pathlib
import re
import subprocess

from . import support
from .restarts import restarted
from .support import passed, run, segments, skipped
from .test_program import TestProgram


def huge_page():
    """Returns the bytes of a huge page: 2 MiB, or 32 MiB where pages have 16 KiB."""
    return int(re.search(r"^Hugepagesize: +(\d+)", pathlib.Path("/proc/meminfo").read_text(), re.M).group(1)) << 10


def huge(v):
    """hugetlb pages, private and shared, of a test program."""
    with_huge_pages(8, lambda: huge_pages(v))


def hugetlb(v):
    """hugetlb pages, private, shared and of a memfd, of a program that is restarted."""
    # The program takes nine, and CRIU three more to read the memfd.
    with_huge_pages(12, lambda: hugetlb_pages(v))


def hugetlb_pages(v):
    program = TestProgram(v, "hugetlb")
    # Refused where the machine has no more of them than were made for this.
    if v.args.criu and huge_pages_left() == 3:
        pages = pathlib.Path("/proc/sys/vm/nr_hugepages")
        enough = pages.read_text()
        pages.write_text(str(int(enough) - 1))
        command = (v.args.pagehaul, "checkpoint", "-q", "--force", "--criu", v.args.criu, program.pid, v.directory / "refused")
        said = run(*command, ok=1).stderr
        assert "CRIU needs as many free ones to read it, of which there are 2;" in said, said
        program.goes_on("after it was refused")
        pages.write_text(enough)
    restarted(v, program, f"huge pages of {huge_page() >> 20} MiB")


def huge_pages_left():
    """Returns how many huge pages are free and not reserved."""
    text = pathlib.Path("/proc/meminfo").read_text()
    free, reserved = (int(re.search(rf"^HugePages_{name}: +(\d+)", text, re.M).group(1)) for name in ("Free", "Rsvd"))
    return free - reserved


def with_huge_pages(wanted, check):
    """Makes huge pages while a check runs."""
    pages = pathlib.Path("/proc/sys/vm/nr_hugepages")
    before = pages.read_text()
    try:
        try:
            pages.write_text(str(int(before) + wanted))
        except OSError:
            pass
        free = int(re.search(r"^HugePages_Free: +(\d+)", pathlib.Path("/proc/meminfo").read_text(), re.M).group(1))
        if free < wanted:
            skipped(f"huge pages: the machine has {free} of {wanted}")
            return
        check()
    finally:
        try:
            pages.write_text(before)
        except OSError:
            pass


def huge_pages(v):
    page = huge_page()
    code = f"""
import mmap, sys
page, huge = {page}, 0x40000
size = 4 * page
private, shared = (mmap.mmap(-1, size, flags=mmap.MAP_ANONYMOUS | kind | huge) for kind in (mmap.MAP_PRIVATE, mmap.MAP_SHARED))
for area, byte in ((private, 5), (shared, 9)):
    # The second and fourth page stay untouched.
    for number in (0, 2):
        area[number * page:(number + 1) * page] = bytes([byte + number]) * page
print('ready', flush=True)
input()
"""
    child = subprocess.Popen(["python3", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n", "the program with huge pages does not start"

    def held(core):
        """Returns the first byte of each huge page, by mapping."""
        content = {}
        with open(core, "rb") as file:
            for address, offset, stored in segments(core):
                if stored == 4 * page:
                    file.seek(offset)
                    data = file.read(stored)
                    content[data[0]] = [data[at] for at in range(0, stored, page)]
                    for at in range(0, stored, page):
                        assert data[at:at + page] == data[at:at + 1] * page, "a huge page differs"
        return content

    private, shared = {5: [5, 0, 7, 0]}, {9: [9, 0, 11, 0]}
    for options, expected in (([], private), (["--include", "huge-shared"], private | shared),
                              (["--exclude", "huge"], {}), (["--include", "huge", "--snapshot"], private | shared)):
        found = held(v.core(child.pid, *options))
        assert found == expected, f"core {options} has huge pages {found}, not {expected}"
    child.communicate("\n", timeout=support.DEADLINE)
    assert child.returncode == 0
    passed("huge pages: private and shared hugetlb mappings by coredump_filter and by --include and --exclude, in a "
           "core and in a snapshot's core")
    huge_pages_lost(v)


def huge_pages_lost(v):
    """A process that writes to its private huge pages while no other is free: the kernel takes them from its snapshot."""
    free = int(re.search(r"^HugePages_Free: +(\d+)", pathlib.Path("/proc/meminfo").read_text(), re.M).group(1))
    code = f"""
import mmap
size, page = {free} * {huge_page()}, {huge_page()}
area = mmap.mmap(-1, size, flags=mmap.MAP_ANONYMOUS | mmap.MAP_PRIVATE | 0x40000)
area[:] = bytes([7]) * size
print('ready', flush=True)
while True:
    for at in range(0, size, page):
        area[at] = 7
"""
    child = subprocess.Popen(["python3", "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n", "the program with huge pages does not start"
    core = v.directory / "lost.core"
    said = run(v.args.pagehaul, "core", "-q", "--force", "--snapshot", child.pid, core, ok=3).stderr
    assert "private huge pages" in said, said
    run(v.args.pagehaul, "verify", core, ok=3)
    run(v.args.pagehaul, "core", "-q", "--force", child.pid, core)
    run(v.args.pagehaul, "verify", core)
    child.kill()
    child.wait()
    passed("huge pages that the kernel takes from a snapshot: the core is incomplete, and says so")


def forked(v):
    """A process that shares its memory with a child: writing a core makes no copies of the shared pages."""
    code = """
import mmap, os, signal, sys
size = 64 << 20
area = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
area.write(os.urandom(size))
signal.alarm(600)
if os.fork():
    print('ready', flush=True)
sys.stdin.read()
"""
    child = subprocess.Popen(["python3", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "ready\n", "the program that forks does not start"

    def shared():
        text = pathlib.Path(f"/proc/{child.pid}/smaps_rollup").read_text()
        return int(re.search(r"^Shared_Dirty: +(\d+)", text, re.M).group(1)) << 10

    before = shared()
    assert before >= 64 << 20, "parent and child share no pages"
    v.equal_memory(child.pid, "a process that shares its memory with its child")
    # The interpreter may write to its own pages at any time.
    assert shared() >= 64 << 20, f"of {before} shared bytes {shared()} are left"
    child.communicate(timeout=support.DEADLINE)
    passed("fork: parent and child share the same pages after cores")
