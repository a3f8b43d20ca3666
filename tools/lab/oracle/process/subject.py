"""A multithreaded test program (crates/pagehaul/examples/subject.rs) in gdb, elfutils, lldb and drgn."""

import hashlib
import re
import subprocess
import sys

from . import support
from .support import Stopped, passed, run, same_memory, skipped, until


def subject(v):
    child = subprocess.Popen([v.args.subject, "50", "4"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    _, pid, address, length, _ = child.stdout.readline().split()
    pid = int(pid)
    core = v.equal_memory(pid, "test program of 5 threads")
    for path in (core, v.core(pid)):
        text = v.gdb(v.args.subject, path, "thread apply all backtrace")
        threads = re.split(r"\n(?=Thread \d+ )", text)[1:]
        if len(threads) != 5:
            sys.exit(f"gdb finds {len(threads)} threads, not 5:\n{text}")
        workers = [thread for thread in threads if "worker_loop" in thread]
        if len(workers) != 4 or "read" not in threads[-1] or "main" not in threads[-1]:
            sys.exit(f"the backtraces are not those of the program:\n{text}")
    passed("gdb: backtraces of all 5 threads reach their functions, in a core and in a snapshot's core")
    notes = run("eu-readelf", "-n", core).stdout
    for word, count in (("PRSTATUS", 5), ("X86_XSTATE", 5), ("SIGINFO", 5), ("PRPSINFO", 1), ("AUXV", 1), ("FILE", 1)):
        if len(re.findall(rf"^  \S+ +\d+  {word}$", notes, re.M)) != count:
            sys.exit(f"eu-readelf does not find {count} {word}:\n{notes}")
    stacks = run("eu-stack", "--core", core, "-e", v.args.subject, ok=None).stdout
    if stacks.count("worker_loop") != 4:
        sys.exit(f"eu-stack does not find the threads' functions:\n{stacks}")
    passed("elfutils: all notes, and the stacks of all threads")
    lldb(v, core, pid, int(address, 16), int(length, 16))
    drgn(v, core, pid, int(address, 16), int(length, 16))
    child.stdin.write("check\n")
    child.stdin.flush()
    assert child.stdout.readline().startswith("ok "), "the program's own checksums do not match"
    child.stdin.close()
    child.wait()


def lldb(v, core, pid, address, length):
    if "lldb" in v.args.without:
        skipped("lldb")
        return
    held = v.directory / "held"
    text = run("lldb", "--batch", "--no-lldbinit", "-o", f"target create {v.args.subject} --core {core}",
               "-o", "thread backtrace all",
               "-o", f"memory read --force --binary --outfile {held} --count {length} {address:#x}").stdout
    threads = re.split(r"\n[ *] thread #", text)[1:]
    # Without libc6-dbg the C library's own functions have no names: threads start in the standard library's.
    workers = [thread for thread in threads if "`worker_loop" in thread and "::thread_start" in thread]
    if len(threads) != 5 or len(workers) != 4 or "`main" not in threads[0]:
        sys.exit(f"lldb does not find the backtraces of 5 threads:\n{text}")
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        assert held.read_bytes() == memory.read(length), "lldb reads different memory"
    held.unlink()
    passed("lldb: backtraces of all 5 threads reach their functions, and the program's memory")


def drgn(v, core, pid, address, length):
    if "drgn" in v.args.without:
        skipped("drgn")
        return
    script = """
import sys, hashlib, drgn
program = drgn.Program()
program.set_core_dump(sys.argv[1])
print(len(list(program.threads())), hashlib.sha256(program.read(int(sys.argv[2]), int(sys.argv[3]))).hexdigest())
"""
    threads, digest = run(sys.executable, "-c", script, core, address, length).stdout.split()
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(address)
        expected = hashlib.sha256(memory.read(length)).hexdigest()
    assert (threads, digest) == ("5", expected), "drgn finds different threads or memory"
    passed("drgn: all threads, and the program's memory")


def seccomp(v):
    """A process whose seccomp filter kills it when it forks, which a snapshot makes it do."""
    child = subprocess.Popen([v.args.subject, "20", "2", "seccomp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             text=True)
    child.stdout.readline()
    core = v.equal_memory(child.pid, "test program under a seccomp filter")
    text = v.gdb(v.args.subject, core, "thread apply all backtrace")
    assert text.count("worker_loop") >= 2, text
    child.stdin.write("check\n")
    child.stdin.flush()
    assert child.stdout.readline().startswith("ok "), "the program's own checksums do not match"
    child.stdin.close()
    child.wait()
    passed("seccomp: backtraces, and the program continues after cores and snapshots")


def large(v):
    """One process of --mib MiB: cores, a checkpoint, and two restarts."""
    word = v.directory / "word"
    mib = v.args.mib
    child = subprocess.Popen([v.args.subject, str(mib), "2", "file", str(word)], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    pid = child.pid
    patience = support.DEADLINE + mib / 10
    until(word.exists, "the test program reports its checksums", patience)

    def check_running(what):
        before = word.read_text()
        for _ in range(2):
            now = until(lambda: (text := word.read_text()) != before and text, f"the test program runs {what}",
                        patience)
            assert now.startswith("ok "), f"its memory is wrong {what}"
            before = now

    with Stopped(pid):
        core = v.core(pid)
        compared = same_memory(core, pid)
    text = v.gdb(v.args.subject, core, "thread apply all backtrace")
    assert text.count("worker_loop") >= 2 and len(re.findall(r"^Thread \d+ ", text, re.M)) == 3, text
    core.unlink()
    check_running("after a core")
    passed(f"{mib} MiB: {compared >> 20} MiB of memory equal to /proc/PID/mem, gdb shows the backtraces of all threads")
    core = v.core(pid, "--snapshot", name="core.zst")
    plain = v.directory / "plain"
    run("zstd", "-dqf", core, "-o", plain)
    core.unlink()
    text = v.gdb(v.args.subject, plain, "thread apply all backtrace")
    assert text.count("worker_loop") >= 2 and len(re.findall(r"^Thread \d+ ", text, re.M)) == 3, text
    plain.unlink()
    check_running("after a snapshot")
    passed(f"{mib} MiB: gdb shows the backtraces of a snapshot, decompressed with zstd")
    if not v.args.criu:
        skipped("checkpoints: CRIU does not work on this kernel")
        return
    for number in v.restarts(child):
        check_running(f"after restart {number}")
    passed(f"{mib} MiB: checkpoint and restart: the program's checksums match, {v.args.rounds} times in a row")
