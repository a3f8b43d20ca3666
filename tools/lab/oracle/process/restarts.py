"""Restarts of test programs whose state is exact: each says itself whether it is whole, and goes on."""

import os
import pathlib
import re
import shutil

from .support import passed, run, skipped, tree_of
from .test_program import TestProgram


def restarted(v, program, what, seen=lambda: None, criu=()):
    """Saves, ends and restarts a program --rounds times. `seen`: what has to be the same before and after, seen from outside."""
    if not v.args.criu:
        skipped(f"{what}: CRIU does not work on this kernel")
        program.kill()
        return
    before, saw = program.goes_on("at first"), seen()
    for number in v.restarts(program.child, criu=criu):
        after = program.goes_on(f"after restart {number}")
        assert all(b >= a for a, b in zip(before, after)), f"its numbers went back in restart {number}: {before}, {after}"
        assert seen() == saw, f"restart {number} changed {saw} to {seen()}"
        before = after
    passed(f"{what}: checkpoint, end and restart, {v.args.rounds} times in a row")
    program.kill()


def writer(v):
    restarted(v, TestProgram(v, "writer", 64, 8), "a writer of 64 MiB, 8 MB/s")


def threads(v):
    program = TestProgram(v, "threads")

    def tasks():
        return sorted(os.listdir(f"/proc/{program.pid}/task"))

    assert len(tasks()) == 22, tasks()
    for options in ((), ("--snapshot",)):
        core = v.core(program.pid, *options)
        text = v.gdb(os.path.realpath(shutil.which("python3")), core, "info threads", "thread apply all backtrace 4")
        assert sorted(re.findall(r"^Thread \d+ \(.*LWP (\d+)\)", text, re.M)) == tasks(), text
        assert text.count("#1 ") == 22, text
        program.goes_on(f"after a core {options}")
        core.unlink()
    passed("python3 with 22 threads: gdb has all threads and a backtrace of each in a core and in a snapshot's core")
    restarted(v, program, "python3 with 22 threads and 10 pipes", tasks)


def events(v):
    files = v.directory / "files"
    files.mkdir()
    program = TestProgram(v, "events", files)

    def watched():
        """What epoll, signalfd and inotify wait for."""
        lines = []
        for path in pathlib.Path(f"/proc/{program.pid}/fdinfo").iterdir():
            try:
                text = path.read_text()
            except OSError:
                # A file that it makes for inotify, closed again.
                continue
            kinds = ("tfd:", "sigmask:", "inotify ")
            lines += [(path.name, line.split(" pos:")[0]) for line in text.splitlines() if line.startswith(kinds)]
        return sorted(lines)

    assert len(watched()) == 6 + 1 + 1, watched()
    restarted(v, program, "epoll with timerfd, eventfd, pipe, UNIX sockets, signalfd and inotify", watched)


def family(v):
    program = TestProgram(v, "family")
    assert len(tree_of(program.pid)) == 6, tree_of(program.pid)
    restarted(v, program, "a tree of 6 processes with shared memory and a memfd", lambda: tree_of(program.pid))


def tcp(v):
    if v.args.criu and not saves_inet_sockets(v):
        skipped("tcp: this CRIU cannot save inet sockets of this kernel")
        return
    program = TestProgram(v, "tcp")

    def connection():
        with open("/proc/net/tcp") as file:
            inodes = inodes_of(program.pid) | inodes_of(tree_of(program.pid)[1])
            # Local and remote address. Inodes are new after a restart.
            return sorted(tuple(line.split()[1:4]) for line in file if line.split()[9] in inodes)

    assert len(connection()) == 2, connection()
    restarted(v, program, "two processes with a TCP connection", connection, criu=("--tcp-established",))


def inodes_of(pid):
    links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
    return {link[len("socket:["):-1] for link in links if link.startswith("socket:[")}


def saves_inet_sockets(v):
    """CRIU 4.1 reads an option of sockets that Linux 6.16 and newer have for some families only."""
    major, minor = map(int, os.uname().release.split(".")[:2])
    version = re.search(r"Version: (\d+)\.(\d+)", run(v.args.criu, "--version").stdout)
    return (major, minor) < (6, 16) or (int(version[1]), int(version[2])) >= (4, 2)
