"""Pre-copy: memory is copied while the processes run and write to it. Every page has to be of the moment of the checkpoint."""

import os
import pathlib
import random
import signal
import subprocess
import threading
import time

from .support import REPORT, children_of, gone, passed, run, skipped, state, tracer_of, until
from .test_program import TestProgram

KILLS = 10
"""Moments at which pagehaul is killed."""


def has_marks(v, what):
    """Returns whether pages are marked as written to, and says so if not."""
    major, minor = map(int, os.uname().release.split(".")[:2])
    if v.args.criu and (major, minor) >= (6, 7):
        return True
    skipped(f"{what}: it takes CRIU and UFFD_FEATURE_WP_ASYNC of Linux 6.7")
    return False


def copied_before(report, part=0.5):
    """Checks that more than a part of the bytes was copied while the processes ran.

    Of 200 MiB that are written to at 20 MB/s 17 % were left on an emulated machine, where a round takes seconds."""
    copy = report["pre_copy"]
    assert copy and report["no_pre_copy"] is None, report
    assert copy["running_bytes"] > part * report["image_bytes"], report
    assert not copy["copied_again"], report


def is_marked(pid):
    """Returns whether a mapping of a process is registered for marks (VmFlags uw)."""
    lines = pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines()
    return any(" uw" in line for line in lines if line.startswith("VmFlags"))


def userfaultfds(v):
    """Returns the descriptors of userfaultfd of the processes whose command line names the directory: those of this part, and of tools
    that write to it."""
    found = []
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if str(v.directory).encode() in (path / "cmdline").read_bytes():
                found += [str(fd) for fd in (path / "fd").iterdir() if "userfaultfd" in os.readlink(fd)]
        except OSError:
            pass
    return found


class Marks:
    """Looks again and again whether a process has marks."""

    def __init__(self, pid):
        self.pid, self.looks, self.over = pid, [], threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)

    def look(self):
        while not self.over.is_set():
            try:
                self.looks.append(is_marked(self.pid))
            except OSError:
                pass
            time.sleep(0.05)

    def __enter__(self):
        self.thread.start()
        return self.looks

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()


def clocked(v):
    """A process of 200 MiB that writes 20 MB/s (crates/process/examples/clocked.rs)."""
    if not has_marks(v, "clocked"):
        return
    clock, file = v.directory / "clock", v.directory / "clocked.ckpt"
    child = subprocess.Popen([v.args.clocked, "200", "20", "1", "2", clock], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, start_new_session=True)
    until(lambda: clock.exists() and any(clock.read_bytes()), "the clock")
    with Marks(child.pid) as looks:
        copied_before(v.checkpoint(child.pid, file, "--leave-running"))
    assert any(looks), f"no moment of {len(looks)} had marks"
    assert not is_marked(child.pid) and not userfaultfds(v), f"marks are left: {userfaultfds(v)}"
    passed(f"clocked, 200 MiB, 20 MB/s: pre-copy, marks in {sum(looks)} of {len(looks)} looks, none afterwards")
    child.kill()
    child.wait()
    v.restart(file)
    goes_on(clock)
    os.kill(child.pid, signal.SIGKILL)
    gone(child.pid)
    passed("clocked: it goes on after a restart")


def goes_on(clock):
    """Checks that the word of a mapped file grows from zero again."""
    with open(clock, "r+b") as words:
        words.write(bytes(8))
    until(lambda: any(clock.read_bytes()), "the clock goes on")


def running(v):
    """--leave-running is of one moment, although the process writes meanwhile."""
    if not has_marks(v, "a writer that goes on"):
        return
    program, file = TestProgram(v, "writer", 48, 8), v.directory / "running.ckpt"
    for number in range(1, v.args.rounds + 1):
        before = program.goes_on("before a checkpoint")
        # Every second one has no memory for copies.
        short = ("--max-memory", "1M") if number % 2 == 0 else ()
        report = v.checkpoint(program.pid, file, "--leave-running", *short)
        copied_before(report, 0)
        assert bool(short) == (report["pre_copy"]["spilled_bytes"] > 32 << 20), report
        program.goes_on("after --leave-running")
        program.kill()
        v.restart(file)
        REPORT.add(restart=number)
        after = program.ask(f"after restart {number}")
        assert after > before, (before, after)
    passed(f"a writer of 48 MiB, 8 MB/s: {v.args.rounds} checkpoints with --leave-running are each of one moment")
    program.kill()


def generations(v):
    """Checkpoints that are based on others: by marks and by comparison."""
    if not has_marks(v, "generations"):
        return
    rate = 0.4
    for options, way in ((("--keep-marks",), "marks"), ((), "compared"), (("--max-memory", "1M"), "compared")):
        program = TestProgram(v, "writer", 32, rate)
        files = [v.directory / f"{way}{number}.ckpt" for number in range(3)]
        counts = []
        for number, file in enumerate(files):
            base = ("--base", files[number - 1]) if number else ()
            time.sleep(1)
            before = program.ask("before a generation")[0]
            report = v.checkpoint(program.pid, file, "--leave-running", *options, *base)
            counts.append((before, program.ask("after a generation")[0]))
            copied_before(report, 0)
            if number:
                assert report["base"]["way"] == way and report["base"]["unchanged_bytes"] > 8 << 20, report
        program.kill()
        for number in (2, 0, 1):
            begun = time.monotonic()
            v.restart(files[number])
            count = program.ask(f"after a restart of generation {number} ({way})")[0]
            low, high = counts[number]
            # It has gone on since the restart.
            high += (time.monotonic() - begun + 1) * rate * 1e6 / 4096
            assert low <= count <= high, f"generation {number} is of another moment: {low} <= {count} <= {high}"
            program.kill()
            REPORT.add(restart=number)
        passed(f"three generations, pages by {' '.join((*options, way))}: each restarts in its own moment, every page of it right")


def killed(v):
    """SIGKILL to pagehaul leaves the process as it was, and an earlier checkpoint."""
    if not has_marks(v, "killed"):
        return
    program, file = TestProgram(v, "writer", 48, 8), v.directory / "earlier.ckpt"
    begun = time.monotonic()
    v.checkpoint(program.pid, file, "--leave-running")
    whole = time.monotonic() - begun
    tool = [v.args.pagehaul, "checkpoint", "-q", "--force", "--leave-running", "--criu", v.args.criu, str(program.pid), str(file)]
    descriptors = sorted(os.listdir(f"/proc/{program.pid}/fd"))
    moments, ended, with_marks = random.Random(612), 0, 0
    for _ in range(KILLS):
        after = moments.uniform(0.02, 1.05 * whole)
        # A killed tool leaves its directory behind.
        child = subprocess.Popen(tool, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 env={**os.environ, "TMPDIR": str(v.directory)})
        time.sleep(after)
        with_marks += is_marked(program.pid)
        child.kill()
        ended += child.wait() == 0
        when = f"after SIGKILL at {after:.3f} s of {whole:.3f}"
        # CRIU puts the process back as it was once its pipes are closed.
        until(lambda: state(program.pid) in "RSD" and not tracer_of(program.pid) and not children_of(program.pid), f"it runs {when}")
        until(lambda: not userfaultfds(v), f"no userfaultfd is left {when}")
        assert not is_marked(program.pid), f"marks are left {when}"
        assert sorted(os.listdir(f"/proc/{program.pid}/fd")) == descriptors, f"its descriptors differ {when}"
        program.goes_on(when)
        assert "CRIUMFD" not in pathlib.Path(f"/proc/{program.pid}/maps").read_text(), f"CRIU's memory is left {when}"
        run(v.args.pagehaul, "verify", file)
    assert with_marks > 0, "no moment had marks"
    program.kill()
    v.restart(file)
    program.goes_on("after a restart of the earlier checkpoint")
    program.kill()
    passed(f"SIGKILL at {KILLS} random moments ({ended} after its end, {with_marks} with marks): the process goes on, its memory is right, "
           "no userfaultfd or mark is left, the earlier checkpoint verifies and restarts")
