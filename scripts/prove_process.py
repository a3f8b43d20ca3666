#!/usr/bin/env python3
"""Cores and checkpoints of real programs, held against gdb, elfutils and drgn, and against the programs' own checks.

Usage: scripts/prove_process.py PAGEHAUL SUBJECT [--criu PROGRAM] [--drgn PYTHON] [--only large --mib 8000 --scratch DIR]

Needs gdb, lldb, elfutils, redis-server and postgresql of Debian (scripts/setup.sh); without CRIU checkpoints are left out,
without drgn its part, and huge pages where the machine gives none; all of this is said.
"""

import argparse
import hashlib
import os
import pathlib
import platform
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

DEADLINE = 60
PROVED = []


def say(text):
    PROVED.append(text)
    print(f"proved: {text}", flush=True)


def run(*command, ok=0, **options):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600, **options)
    if ok is not None and done.returncode != ok:
        sys.exit(f"{' '.join(map(str, command))} gave {done.returncode}, not {ok}:\n{done.stdout}{done.stderr}")
    return done


def until(condition, what, patience=DEADLINE):
    """Waits for something that happens soon."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.01)
    sys.exit(f"this did not happen within {patience:.0f} s: {what}")


def segments(core):
    """PT_LOADs: (address, offset, bytes in the file)."""
    with open(core, "rb") as file:
        head = file.read(64)
        table, count = struct.unpack_from("<Q", head, 32)[0], struct.unpack_from("<H", head, 56)[0]
        file.seek(table)
        for _ in range(count):
            kind, _, offset, address, _, stored, _, _ = struct.unpack("<IIQQQQQQ", file.read(56))
            if kind == 1:
                yield address, offset, stored


def same_memory(core, pid):
    """Compares a core with /proc/PID/mem of a process that is stopped. Gives the bytes compared."""
    compared = 0
    with open(core, "rb") as file, open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for address, offset, stored in segments(core):
            done = 0
            while done < stored:
                part = min(1 << 20, stored - done)
                try:
                    memory.seek(address + done)
                    there = memory.read(part)
                except OSError:
                    there = b""
                file.seek(offset + done)
                held = file.read(len(there)) if there else b""
                if there != held:
                    sys.exit(f"{core}: {part} bytes at {address + done:#x} differ from the process's")
                compared += len(there)
                done += len(there) or part
    return compared


def state(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


class Stopped:
    """Keeps a process, and its children, who may share memory with it, from changing while its core is held against it."""

    def __init__(self, pid):
        self.pid, self.pids = pid, []

    def __enter__(self):
        self.stop(self.pid)
        # It makes no more.
        for child in children_of(self.pid):
            self.stop(child)

    def stop(self, pid):
        os.kill(pid, signal.SIGSTOP)
        self.pids.append(pid)
        until(lambda: all(state(f"{pid}/task/{tid}") in "TZ" for tid in os.listdir(f"/proc/{pid}/task")), "all threads stop")

    def __exit__(self, *_):
        # Its children first: it might wait for one that has ended, whose PID is another's then.
        for pid in reversed(self.pids):
            os.kill(pid, signal.SIGCONT)


class Proof:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder

    def core(self, pid, *options, name="core"):
        path = self.folder / name
        run(self.args.pagehaul, "core", "-q", "--force", *options, pid, path)
        return path

    def whole(self, pid, what):
        """Cores of one process in every mode and form, with memory equal to the process's."""
        with Stopped(pid):
            for options in ([], ["--live"]):
                core = self.core(pid, *options)
                compared = same_memory(core, pid)
            frames = self.core(pid, name="core.zst")
            plain = self.folder / "plain"
            run("zstd", "-dqf", frames, "-o", plain)
            if plain.read_bytes() != core.read_bytes():
                # Registers and memory are the same; what the notes say of CPU time is not.
                same_memory(plain, pid)
        say(f"{what}: {compared >> 20} MiB of memory equal to /proc/PID/mem, in ELF and in zstd frames")
        core = self.core(pid, "--snapshot")
        assert state(pid) in "RSD", "it does not go on after a snapshot"
        return core

    def restarts(self, child, before=lambda: None):
        """Saves a program and restarts it, twice in a row; between them the caller looks at it."""
        file = self.folder / "checkpoint"
        for turn in ("first", "second"):
            before()
            run(self.args.pagehaul, "checkpoint", "-q", "--force", "--criu", self.args.criu, child.pid, file)
            if turn == "first":
                # Only this one was started from here.
                child.wait()
            run(self.args.pagehaul, "restart", "-q", "--criu", self.args.criu, file)
            yield turn

    def gdb(self, program, core, *commands):
        options = [word for command in commands for word in ("-ex", command)]
        return run("gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off", *options, program, core).stdout

    def subject(self):
        child = subprocess.Popen([self.args.subject, "50", "4"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        _, pid, address, length, _ = child.stdout.readline().split()
        pid = int(pid)
        core = self.whole(pid, "test program of 5 threads")
        for path in (core, self.core(pid)):
            text = self.gdb(self.args.subject, path, "thread apply all backtrace")
            threads = re.split(r"\n(?=Thread \d+ )", text)[1:]
            if len(threads) != 5:
                sys.exit(f"gdb sees {len(threads)} threads, not 5:\n{text}")
            workers = [thread for thread in threads if "worker_loop" in thread]
            if len(workers) != 4 or "read" not in threads[-1] or "main" not in threads[-1]:
                sys.exit(f"backtraces are not those of the program:\n{text}")
        say("gdb: backtraces of all 5 threads reach their functions, in a core and in a snapshot's")
        notes = run("eu-readelf", "-n", core).stdout
        for word, count in (("PRSTATUS", 5), ("X86_XSTATE", 5), ("SIGINFO", 5), ("PRPSINFO", 1), ("AUXV", 1), ("FILE", 1)):
            if len(re.findall(rf"^  \S+ +\d+  {word}$", notes, re.M)) != count:
                sys.exit(f"eu-readelf does not see {count} {word}:\n{notes}")
        stacks = run("eu-stack", "--core", core, "-e", self.args.subject, ok=None).stdout
        if stacks.count("worker_loop") != 4:
            sys.exit(f"eu-stack does not see the threads' functions:\n{stacks}")
        say("elfutils: all notes, and the stacks of all threads")
        self.lldb(core, pid, int(address, 16), int(length, 16))
        self.drgn(core, pid, int(address, 16), int(length, 16))
        child.stdin.write("check\n")
        child.stdin.flush()
        assert child.stdout.readline().startswith("ok "), "the program's own check fails"
        child.stdin.close()
        child.wait()

    def lldb(self, core, pid, address, length):
        held = self.folder / "held"
        text = run("lldb", "--batch", "--no-lldbinit", "-o", f"target create {self.args.subject} --core {core}",
                   "-o", "thread backtrace all",
                   "-o", f"memory read --force --binary --outfile {held} --count {length} {address:#x}").stdout
        threads = re.split(r"\n[ *] thread #", text)[1:]
        # Without libc6-dbg the C library's own functions have no names: threads start in the standard library's.
        workers = [thread for thread in threads if "`worker_loop" in thread and "::thread_start" in thread]
        if len(threads) != 5 or len(workers) != 4 or "`main" not in threads[0]:
            sys.exit(f"lldb does not see the backtraces of 5 threads:\n{text}")
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            assert held.read_bytes() == memory.read(length), "lldb sees other memory"
        held.unlink()
        say("lldb: backtraces of all 5 threads reach their functions, and the program's memory")

    def seccomp(self):
        """A process that its filter kills for making another; a snapshot has it make one."""
        child = subprocess.Popen([self.args.subject, "20", "2", "seccomp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 text=True)
        child.stdout.readline()
        core = self.whole(child.pid, "test program under a seccomp filter")
        text = self.gdb(self.args.subject, core, "thread apply all backtrace")
        assert text.count("worker_loop") >= 2, text
        child.stdin.write("check\n")
        child.stdin.flush()
        assert child.stdout.readline().startswith("ok "), "the program's own check fails"
        child.stdin.close()
        child.wait()
        say("seccomp: backtraces, and the program goes on after cores and snapshots")

    def huge(self):
        """hugetlb pages, private and shared, of a process of ours."""
        pages, wanted = pathlib.Path("/proc/sys/vm/nr_hugepages"), 8
        before = pages.read_text()
        try:
            try:
                pages.write_text(str(int(before) + wanted))
            except OSError:
                pass
            free = int(re.search(r"^HugePages_Free: +(\d+)", pathlib.Path("/proc/meminfo").read_text(), re.M).group(1))
            if free < wanted:
                print(f"not proved: huge pages (the machine gives {free} of {wanted})")
                return
            self.huge_pages()
        finally:
            try:
                pages.write_text(before)
            except OSError:
                pass

    def huge_pages(self):
        code = """
import mmap, sys
size, huge = 4 << 21, 0x40000
private, shared = (mmap.mmap(-1, size, flags=mmap.MAP_ANONYMOUS | kind | huge) for kind in (mmap.MAP_PRIVATE, mmap.MAP_SHARED))
for area, byte in ((private, 5), (shared, 9)):
    # The second and the fourth page are left untouched.
    for page in (0, 2):
        area[page << 21:(page + 1) << 21] = bytes([byte + page]) * (1 << 21)
print('ready', flush=True)
input()
"""
        child = subprocess.Popen(["python3", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == "ready\n", "the program with huge pages does not start"

        def held(core):
            """Bytes by mapping's kind, by what is in them."""
            content = {}
            with open(core, "rb") as file:
                for address, offset, stored in segments(core):
                    if stored == 4 << 21:
                        file.seek(offset)
                        data = file.read(stored)
                        content[data[0]] = [data[at] for at in range(0, stored, 1 << 21)]
                        for at in range(0, stored, 1 << 21):
                            assert data[at:at + (1 << 21)] == data[at:at + 1] * (1 << 21), "a huge page differs"
            return content

        private, shared = {5: [5, 0, 7, 0]}, {9: [9, 0, 11, 0]}
        for options, expected in (([], private), (["--include", "huge-shared"], private | shared),
                                  (["--exclude", "huge"], {}), (["--include", "huge", "--snapshot"], private | shared)):
            found = held(self.core(child.pid, *options))
            assert found == expected, f"core {options} has huge pages {found}, not {expected}"
        child.communicate("\n", timeout=DEADLINE)
        assert child.returncode == 0
        say("huge pages: private and shared hugetlb mappings by coredump_filter and by --include and --exclude, in a core and a "
            "snapshot's")

    def forked(self):
        """A process that shares its memory with a child: taking cores gives neither a copy of it."""
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

        def common():
            text = pathlib.Path(f"/proc/{child.pid}/smaps_rollup").read_text()
            return int(re.search(r"^Shared_Dirty: +(\d+)", text, re.M).group(1)) << 10

        before = common()
        assert before >= 64 << 20, "parent and child have nothing in common"
        self.whole(child.pid, "a parent that shares its memory with its child")
        # Pages of Python's own may be written to at any time.
        assert common() >= 64 << 20, f"of {before} bytes in common {common()} are left"
        child.communicate(timeout=DEADLINE)
        say("a core of a process that has forked leaves parent and child with the same pages")

    def large(self):
        """One process of --mib MiB: cores, a checkpoint, and two restarts."""
        word = self.folder / "word"
        mib = self.args.mib
        child = subprocess.Popen([self.args.subject, str(mib), "2", "file", str(word)], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        pid = child.pid
        patience = DEADLINE + mib / 10
        until(word.exists, "the test program says that it is well", patience)

        def goes_on(what):
            before = word.read_text()
            for _ in range(2):
                now = until(lambda: (text := word.read_text()) != before and text, f"the test program goes on {what}",
                            patience)
                assert now.startswith("ok "), f"its memory is broken {what}"
                before = now

        with Stopped(pid):
            core = self.core(pid)
            compared = same_memory(core, pid)
        text = self.gdb(self.args.subject, core, "thread apply all backtrace")
        assert text.count("worker_loop") >= 2 and len(re.findall(r"^Thread \d+ ", text, re.M)) == 3, text
        core.unlink()
        goes_on("after a core")
        say(f"{mib} MiB: {compared >> 20} MiB of memory equal to /proc/PID/mem, gdb has the backtraces of all threads")
        core = self.core(pid, "--snapshot", name="core.zst")
        plain = self.folder / "plain"
        run("zstd", "-dqf", core, "-o", plain)
        core.unlink()
        text = self.gdb(self.args.subject, plain, "thread apply all backtrace")
        assert text.count("worker_loop") >= 2 and len(re.findall(r"^Thread \d+ ", text, re.M)) == 3, text
        plain.unlink()
        goes_on("after a snapshot")
        say(f"{mib} MiB: gdb has the backtraces of a snapshot, decompressed with zstd")
        if not self.args.criu:
            print("not proved: checkpoints (no CRIU given)")
            return
        for turn in self.restarts(child):
            goes_on(f"after the {turn} restart")
        say(f"{mib} MiB: checkpoint, end, restart: the program's checksums hold, twice in a row")

    def drgn(self, core, pid, address, length):
        if not self.args.drgn:
            print("not proved: drgn (none given)")
            return
        script = """
import sys, hashlib, drgn
program = drgn.Program()
program.set_core_dump(sys.argv[1])
print(len(list(program.threads())), hashlib.sha256(program.read(int(sys.argv[2]), int(sys.argv[3]))).hexdigest())
"""
        threads, digest = run(self.args.drgn, "-c", script, core, address, length).stdout.split()
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            expected = hashlib.sha256(memory.read(length)).hexdigest()
        assert (threads, digest) == ("5", expected), "drgn sees other threads or memory"
        say("drgn: all threads, and the program's memory")

    def python(self):
        code = "import threading,time\nthings = {n: 'value %d' % n for n in range(200000)}\n" \
               "threading.Thread(target=time.sleep, args=(600,), daemon=True).start()\nprint('ready', flush=True)\ninput()"
        child = subprocess.Popen(["python3", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        child.stdout.readline()
        core = self.whole(child.pid, "python3 with 200,000 objects")
        text = self.gdb(os.path.realpath(shutil.which("python3")), core, "thread apply all backtrace 3")
        assert len(re.findall(r"^Thread \d+ ", text, re.M)) == 2 and "#1" in text, text
        child.communicate("\n", timeout=DEADLINE)
        assert child.returncode == 0
        say("python3: both threads have backtraces, and it ends as it should afterwards")

    def redis(self):
        path = self.folder / "redis.sock"
        command = ["redis-server", "--port", "0", "--unixsocket", str(path), "--save", "", "--enable-debug-command", "yes",
                   "--dir", str(self.folder), "--logfile", str(self.folder / "redis.log")]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                 start_new_session=True)

        def ask(*words):
            text = "".join([f"*{len(words)}\r\n"] + [f"${len(word)}\r\n{word}\r\n" for word in words])
            with socket.socket(socket.AF_UNIX) as link:
                link.settimeout(DEADLINE)
                link.connect(str(path))
                link.sendall(text.encode())
                answer = link.makefile("rb")
                line = answer.readline().decode().strip()
                if line.startswith("$"):
                    return answer.read(int(line[1:])).decode()
                return line

        def ask_safely(*words):
            try:
                return ask(*words)
            except OSError:
                return ""

        until(lambda: path.exists() and ask_safely("PING") == "+PONG", "redis-server starts")
        ask("DEBUG", "POPULATE", "200000", "key", "100")
        ask("SET", "last", "word")
        pid = child.pid
        digest = ask("DEBUG", "DIGEST")
        core = self.whole(pid, "redis-server with 200,000 keys")
        text = self.gdb(shutil.which("redis-server"), core, "thread apply all backtrace 3")
        assert len(re.findall(r"^Thread \d+ ", text, re.M)) == len(os.listdir(f"/proc/{pid}/task")), text
        assert (ask("DBSIZE"), ask("DEBUG", "DIGEST")) == (":200001", digest), "keys were lost"
        say("redis-server: all threads have backtraces, all keys are there afterwards")
        if self.args.criu:
            for turn in self.restarts(child):
                assert (ask("DBSIZE"), ask("GET", "last"), ask("DEBUG", "DIGEST")) == (":200001", "word", digest), \
                    f"keys were lost in the {turn} restart"
            say("redis-server: answers with all its keys after two checkpoints and restarts")
        os.kill(pid, signal.SIGKILL)
        child.wait()

    def postgres(self):
        programs = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
        if not programs:
            sys.exit("postgresql is not installed: scripts/setup.sh")
        data = self.folder / "postgres"
        data.mkdir()
        shutil.chown(data, "postgres")

        def as_postgres(program, *arguments, **options):
            return ["setpriv", "--reuid", "postgres", "--regid", "postgres", "--clear-groups",
                    str(programs[-1] / program), *map(str, arguments)]

        run(*as_postgres("initdb", "-D", data, "-A", "trust", "-N"), cwd="/")
        log = open(self.folder / "postgres.log", "w")
        child = subprocess.Popen(as_postgres("postgres", "-D", data, "-c", "listen_addresses=", "-k", data, "-F"),
                                 stdout=log, stderr=log, cwd="/")

        def sql(text, ok=0):
            return run(*as_postgres("psql", "-h", data, "-d", "postgres", "-Atc", text), ok=ok, cwd="/").stdout.strip()

        until(lambda: (data / ".s.PGSQL.5432").exists() and sql("select 1", ok=None) == "1", "postgres starts")
        sql("create table t as select n, md5(n::text) as text from generate_series(1, 100000) n")
        sums = sql("select count(*), md5(string_agg(text, '' order by n)) from t")
        core = self.whole(child.pid, "postgres with a table of 100,000 rows")
        held = sum(stored for _, _, stored in segments(core))
        assert held > 100 << 20, "shared buffers are not in the core"
        assert sql("select count(*), md5(string_agg(text, '' order by n)) from t") == sums
        text = self.gdb(programs[-1] / "postgres", core, "backtrace 3")
        assert "#1" in text, text
        child.send_signal(signal.SIGINT)
        child.wait(timeout=DEADLINE)
        say("postgres: its shared buffers are in the core, its table is whole afterwards, and it shuts down in order")

    def checkpoints(self):
        if not self.args.criu:
            print("not proved: checkpoints (no CRIU given)")
            return
        word = self.folder / "word"
        child = subprocess.Popen([self.args.subject, "50", "3", "file", str(word)], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        pid = child.pid
        until(word.exists, "the test program says that it is well")

        def goes_on(what):
            before = word.read_text()
            # Two words: the first may have been on its way.
            for _ in range(2):
                now = until(lambda: (text := word.read_text()) != before and text, f"the test program goes on {what}")
                assert now.startswith("ok "), f"its memory is broken {what}"
                before = now

        file = self.folder / "checkpoint"
        tool = [self.args.pagehaul, "checkpoint", "-q", "--force", "--criu", self.args.criu]
        run(*tool, "--leave-running", pid, file)
        goes_on("after --leave-running")
        # A snapshot's zombie, which init has yet to wait for, must not keep the PID from being used again.
        for turn in self.restarts(child, before=lambda: self.core(pid, "--snapshot")):
            goes_on(f"after the {turn} restart")
        say("checkpoint, restart: the program's checksums hold, twice in a row")
        good = file.read_bytes()
        bad = self.folder / "bad"
        for at in (4, len(good) // 3, len(good) // 2, len(good) - 100, len(good) - 30):
            damaged = bytearray(good)
            damaged[at] ^= 1 << at % 8
            bad.write_bytes(damaged)
            said = run(self.args.pagehaul, "restart", "--criu", self.args.criu, bad, ok=1).stderr
            assert "byte" in said, said
            run(self.args.pagehaul, "verify", bad, ok=3)
        run(self.args.pagehaul, "verify", file)
        bad.write_bytes(good[:len(good) // 2])
        run(self.args.pagehaul, "restart", "--criu", self.args.criu, bad, ok=1)
        say("restart refuses flipped bits and cut files, and says where")
        disk = self.folder / "disk"
        disk.mkdir()
        # In this mount namespace: CRIU would save the contents of all tmpfs of another.
        run("mount", "-t", "tmpfs", "-o", "size=6m", "none", disk)
        try:
            said = run(*tool, pid, disk / "checkpoint", ok=1).stderr
        finally:
            run("umount", disk)
        assert "No space left" in said, said
        goes_on("after a full disk")
        begun = time.monotonic()
        run(*tool, "--leave-running", pid, file)
        whole = time.monotonic() - begun
        # The same moments in every run, as shares of the time that one takes here.
        moments = random.Random(50)
        for step in range(50):
            name, after = "INT" if step % 4 == 0 else "KILL", moments.uniform(0.001, 1.1 * whole)
            # A tool that is killed leaves its folder behind, in which CRIU still works.
            run("timeout", "-s", name, f"{after:.4f}", *tool, "--leave-running", pid, file, ok=None,
                env={**os.environ, "TMPDIR": str(self.folder)})
            goes_on(f"after SIG{name} at {after:.4f} s")
        say("checkpoint: the program goes on after a full disk, and after SIGKILL and SIGINT to the tool at 50 random moments")
        said = run(*tool, pid, file, "--", "--track-mem", ok=1).stderr
        assert "no incremental rounds" in said, said
        old = self.folder / "old"
        old.write_text("#!/bin/sh\necho Version: 3.17.1\n")
        old.chmod(0o755)
        assert "3.17.1, which is too old" in run(*tool[:-1], old, pid, file, ok=1).stderr
        assert "not there" in run(*tool[:-1], "/nonexistent/criu", pid, file, ok=1).stderr
        os.kill(pid, signal.SIGKILL)
        tree = subprocess.Popen(["sh", "-c", "sleep 600 & sleep 600 & wait"], stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        children = until(lambda: len(kids := children_of(tree.pid)) == 2 and kids, "two children")
        run(*tool, tree.pid, file)
        tree.wait()
        run(self.args.pagehaul, "restart", "-q", "--criu", self.args.criu, file)
        assert children_of(tree.pid) == children, "the tree is another"
        for each in (tree.pid, *children):
            os.kill(each, signal.SIGKILL)
        say("checkpoint, restart: a process tree comes back with its PIDs")


def children_of(pid):
    return sorted(map(int, pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def end_all(folder):
    """Ends the programs whose files are in the folder: those restarted are no children of this one."""
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if folder.encode() in (entry / "cmdline").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pagehaul", type=os.path.abspath)
    parser.add_argument("subject", type=os.path.abspath)
    parser.add_argument("--criu", type=os.path.abspath)
    parser.add_argument("--drgn", help="a Python that has drgn")
    parser.add_argument("--only", nargs="+", help="parts to run; `large` runs only if it is named")
    parser.add_argument("--mib", type=int, default=800, help="memory of the `large` part's process")
    parser.add_argument("--scratch", help="folder for outputs; twice that memory has to fit")
    parser.add_argument("--record", type=pathlib.Path, help="file to which to append what was proved")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("prove_process: other users' processes and CRIU need root")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(f"ended by {signal.Signals(number).name}"))
    with tempfile.TemporaryDirectory(dir=args.scratch, ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        proof = Proof(args, pathlib.Path(folder))
        try:
            for part in args.only or ("subject", "seccomp", "huge", "forked", "python", "redis", "postgres", "checkpoints"):
                getattr(proof, part)()
        finally:
            end_all(folder)
    print(f"{len(PROVED)} things proved")
    if args.record:
        with open(args.record, "a") as record:
            print(f"\n{time.strftime('%Y-%m-%d')}, Linux {platform.release()}, {os.cpu_count()} CPUs:\n", file=record)
            record.writelines(f"- {text}\n" for text in PROVED)


if __name__ == "__main__":
    main()
