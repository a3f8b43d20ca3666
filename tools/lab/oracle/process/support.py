"""What the checks of processes share: running programs, waiting, comparing memory, reporting."""

import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import sys
import time

DEADLINE = 60
"""Seconds until something that should happen soon counts as failed (--deadline)."""

PASSED = []
"""Descriptions of all checks that passed."""


class Report:
    """What was found, as it was found: lines of JSON, each of which names its part."""

    def __init__(self):
        self.file, self.part = None, None

    def add(self, **found):
        if self.file:
            self.file.write(json.dumps({"part": self.part, **found}) + "\n")
            self.file.flush()


REPORT = Report()


def passed(text):
    PASSED.append(text)
    REPORT.add(passed=text)
    print(f"ok   {text}", flush=True)


def skipped(text):
    REPORT.add(skipped=text)
    print(f"skip {text}", flush=True)


def run(*command, ok=0, timeout=600, **options):
    """Runs a command; fails unless it exits with `ok` (None: any code)."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout, **options)
    if ok is not None and done.returncode != ok:
        sys.exit(f"{' '.join(map(str, command))} exited with {done.returncode}, not {ok}:\n{done.stdout}{done.stderr}")
    return done


def until(condition, what, patience=None):
    """Waits until a condition returns something true, and returns that."""
    patience = patience or DEADLINE
    end = time.monotonic() + patience
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.01)
    sys.exit(f"did not happen within {patience:.0f} s: {what}")


def segments(core):
    """Yields (address, offset, bytes in the file) of each PT_LOAD."""
    with open(core, "rb") as file:
        head = file.read(64)
        table, count = struct.unpack_from("<Q", head, 32)[0], struct.unpack_from("<H", head, 56)[0]
        file.seek(table)
        for _ in range(count):
            kind, _, offset, address, _, stored, _, _ = struct.unpack("<IIQQQQQQ", file.read(56))
            if kind == 1:
                yield address, offset, stored


def same_memory(core, pid):
    """Compares a core with /proc/PID/mem of a stopped process, and returns the number of bytes compared."""
    compared = 0
    with open(core, "rb") as file, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for address, offset, stored in segments(core):
            done = 0
            while done < stored:
                part = min(1 << 20, stored - done)
                try:
                    memory.seek(address + done)
                    expected = memory.read(part)
                except OSError:
                    expected = b""
                file.seek(offset + done)
                found = file.read(len(expected)) if expected else b""
                if expected != found:
                    sys.exit(f"{core}: {part} bytes at {address + done:#x} differ from the process's memory")
                compared += len(expected)
                done += len(expected) or part
    return compared


def state(pid):
    """Returns the state letter of a process or thread."""
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


def children_of(pid):
    return sorted(map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def tree_of(pid):
    """Returns a process and all its descendants, parents first."""
    return [pid] + [each for child in children_of(pid) for each in tree_of(child)]


def gone(pid):
    """Waits until a process is gone, a zombie too: a restart needs its number."""
    until(lambda: not os.path.exists(f"/proc/{pid}"), f"process {pid} is gone")


def tracer_of(pid):
    return int(re.search(r"^TracerPid:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M).group(1))


class Stopped:
    """Stops a process, and its children, which may share memory with it, while its core is compared with it."""

    def __init__(self, pid):
        self.pid, self.pids = pid, []

    def __enter__(self):
        self.stop(self.pid)
        # A stopped process makes no more children.
        for child in children_of(self.pid):
            self.stop(child)

    def stop(self, pid):
        os.kill(pid, signal.SIGSTOP)
        self.pids.append(pid)
        until(lambda: all(state(f"{pid}/task/{tid}") in "TZ" for tid in os.listdir(f"/proc/{pid}/task")), "all threads stop")

    def __exit__(self, *_):
        # Children first: the parent could reap one that has ended, and its PID be used again.
        for pid in reversed(self.pids):
            os.kill(pid, signal.SIGCONT)


class Validator:
    """The program under test, and a directory for its outputs."""

    def __init__(self, args, directory):
        self.args, self.directory = args, directory

    def core(self, pid, *options, name="core"):
        """Writes a core of a process and returns its path."""
        path = self.directory / name
        run(self.args.pagehaul, "core", "-q", "--force", *options, pid, path)
        return path

    def equal_memory(self, pid, what):
        """Checks that the memory in a process's cores equals the process's, in every mode and format. Returns a snapshot's core."""
        with Stopped(pid):
            for options in ([], ["--live"]):
                core = self.core(pid, *options)
                compared = same_memory(core, pid)
            frames = self.core(pid, name="core.zst")
            plain = self.directory / "plain"
            run("zstd", "-dqf", frames, "-o", plain)
            if plain.read_bytes() != core.read_bytes():
                # Registers and memory are the same; the CPU times in the notes differ.
                same_memory(plain, pid)
        passed(f"{what}: {compared >> 20} MiB of memory equal to /proc/PID/mem, in ELF and in zstd frames")
        core = self.core(pid, "--snapshot")
        assert state(pid) in "RSD", "the process does not continue after a snapshot"
        return core

    def checkpoint(self, pid, file, *options, criu=()):
        """Saves a process, and returns pagehaul's report. `criu`: arguments for CRIU."""
        words = [self.args.pagehaul, "checkpoint", "-q", "--json", "--force", "--criu", self.args.criu, *options, pid, file]
        done = run(*words, *(["--", *criu] if criu else []), ok=None)
        if done.returncode != 0:
            text = f"{' '.join(map(str, words))} exited with {done.returncode}:\n{done.stdout}{done.stderr}"
            left = f"state {state(pid)}, tracer {tracer_of(pid)}" if os.path.exists(f"/proc/{pid}") else "gone"
            sys.exit(f"{text}the process: {left}")
        report = json.loads(done.stdout)
        REPORT.add(checkpoint=report)
        return report

    def restart(self, file, criu=()):
        """Verifies a checkpoint and starts its processes again."""
        run(self.args.pagehaul, "verify", file)
        run(self.args.pagehaul, "restart", "-q", "--criu", self.args.criu, file, *(["--", *criu] if criu else []))

    def restarts(self, child, before=lambda: None, criu=()):
        """Saves, ends and restarts a program --rounds times; yields the number of each restart."""
        file = self.directory / "checkpoint"
        for number in range(1, self.args.rounds + 1):
            before()
            self.checkpoint(child.pid, file, criu=criu)
            if number == 1:
                # Only the original process is a child of this one.
                child.wait()
            gone(child.pid)
            self.restart(file, criu)
            REPORT.add(restart=number)
            yield number

    def gdb(self, program, core, *commands):
        """Returns what gdb prints for commands on a core."""
        options = [word for command in commands for word in ("-ex", command)]
        return run("gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", *options, program, core).stdout
