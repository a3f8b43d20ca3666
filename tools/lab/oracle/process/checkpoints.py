"""Checkpoints and restarts with CRIU, on damaged files, full disks and with signals."""

import os
import random
import signal
import subprocess
import time

from .support import children_of, passed, run, skipped, until


def checkpoints(v):
    if not v.args.criu:
        skipped("checkpoints: CRIU does not work on this kernel")
        return
    word = v.directory / "word"
    child = subprocess.Popen([v.args.subject, "50", "3", "file", str(word)], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    pid = child.pid
    until(word.exists, "the test program reports its checksums")

    def check_running(what):
        before = word.read_text()
        # Two reports: the first may have been written before.
        for _ in range(2):
            now = until(lambda: (text := word.read_text()) != before and text, f"the test program runs {what}")
            assert now.startswith("ok "), f"its memory is wrong {what}"
            before = now

    file = v.directory / "checkpoint"
    tool = [v.args.pagehaul, "checkpoint", "-q", "--force", "--criu", v.args.criu]
    run(*tool, "--leave-running", pid, file)
    check_running("after --leave-running")
    # A snapshot's zombie, which init has yet to reap, must not block the PID.
    for number in v.restarts(child, before=lambda: v.core(pid, "--snapshot")):
        check_running(f"after restart {number}")
    passed(f"checkpoint and restart: the program's checksums match, {v.args.rounds} times in a row")
    good = file.read_bytes()
    bad = v.directory / "bad"
    for at in (4, len(good) // 3, len(good) // 2, len(good) - 100, len(good) - 30):
        damaged = bytearray(good)
        damaged[at] ^= 1 << at % 8
        bad.write_bytes(damaged)
        said = run(v.args.pagehaul, "restart", "--criu", v.args.criu, bad, ok=1).stderr
        assert "byte" in said, said
        run(v.args.pagehaul, "verify", bad, ok=3)
    run(v.args.pagehaul, "verify", file)
    bad.write_bytes(good[:len(good) // 2])
    run(v.args.pagehaul, "restart", "--criu", v.args.criu, bad, ok=1)
    passed("restart refuses flipped bits and truncated files, and names the place")
    disk = v.directory / "disk"
    disk.mkdir()
    # In this mount namespace: CRIU would save the contents of every tmpfs of another.
    run("mount", "-t", "tmpfs", "-o", "size=6m", "none", disk)
    try:
        said = run(*tool, pid, disk / "checkpoint", ok=1).stderr
    finally:
        run("umount", disk)
    assert "No space left" in said, said
    check_running("after a full disk")
    begun = time.monotonic()
    run(*tool, "--leave-running", pid, file)
    whole = time.monotonic() - begun
    # The same moments in every run, relative to the time of one checkpoint on this machine.
    moments = random.Random(50)
    for step in range(v.args.moments):
        name, after = "INT" if step % 4 == 0 else "KILL", moments.uniform(0.001, 1.1 * whole)
        # A killed tool leaves its directory behind, in which CRIU still works.
        run("timeout", "-s", name, f"{after:.4f}", *tool, "--leave-running", pid, file, ok=None,
            env={**os.environ, "TMPDIR": str(v.directory)})
        check_running(f"after SIG{name} at {after:.4f} s")
    passed("checkpoint: the program continues after a full disk, and after SIGKILL and SIGINT to pagehaul at "
           f"{v.args.moments} random moments")
    said = run(*tool, pid, file, "--", "--track-mem", ok=1).stderr
    assert "no incremental rounds" in said, said
    old = v.directory / "old"
    old.write_text("#!/bin/sh\necho Version: 3.17.1\n")
    old.chmod(0o755)
    assert "3.17.1, which is too old" in run(*tool[:-1], old, pid, file, ok=1).stderr
    assert "not there" in run(*tool[:-1], "/nonexistent/criu", pid, file, ok=1).stderr
    incremental(v, tool, pid, check_running)
    tree = subprocess.Popen(["sh", "-c", "sleep 600 & sleep 600 & wait"], stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    children = until(lambda: len(kids := children_of(tree.pid)) == 2 and kids, "two children")
    run(*tool, tree.pid, file)
    tree.wait()
    run(v.args.pagehaul, "restart", "-q", "--criu", v.args.criu, file)
    assert children_of(tree.pid) == children, "the process tree differs"
    for each in (tree.pid, *children):
        os.kill(each, signal.SIGKILL)
    passed("checkpoint and restart: a process tree keeps its PIDs")
    timer(v, tool, file)


def incremental(v, tool, pid, check_running):
    """Checkpoints of a process, each based on the one before. Ends the process."""
    files = [v.directory / f"{number}.ckpt" for number in range(4)]
    for number, file in enumerate(files):
        base = ("--base", files[number - 1]) if number else ()
        # The first two keep marks, which the second and the third use on Linux 6.7 and newer.
        leave = (("--leave-running", "--keep-marks"), ("--leave-running",), ())[(number + 1) // 2]
        run(*tool, *leave, *base, pid, file)
        if leave:
            check_running(f"after checkpoint {number} of a chain")
    assert all(file.stat().st_size < files[0].stat().st_size / 5 for file in files[1:]), [file.stat() for file in files]
    until(lambda: not os.path.exists(f"/proc/{pid}"), "the last checkpoint ends it")
    hidden = v.directory / "hidden"
    files[0].rename(hidden)
    said = run(v.args.pagehaul, "restart", "--criu", v.args.criu, files[3], ok=1).stderr
    assert f"its base {files[0]} is missing" in said, said
    hidden.rename(files[0])
    # The last one, one in the middle, and one that was made whole and needs no other.
    for number in (3, 1, 2):
        if number == 2:
            run(v.args.pagehaul, "convert", "-q", "--force", files[2], files[2])
            files[0].unlink()
            files[1].unlink()
        run(v.args.pagehaul, "verify", files[number])
        run(v.args.pagehaul, "restart", "-q", "--criu", v.args.criu, files[number])
        check_running(f"after a restart from checkpoint {number} of a chain")
        os.kill(pid, signal.SIGKILL)
        until(lambda: not os.path.exists(f"/proc/{pid}"), "it is gone")
    run(v.args.pagehaul, "verify", files[3])
    passed("checkpoints based on others: the program's checksums match after restarts from the last, the middle and a merged one")


def timer(v, tool, file):
    """A periodic timer that expires before the checkpoint and is read after the restart (CRIU's issue 3162)."""
    count = v.directory / "expirations"
    child = subprocess.Popen([v.args.subject, "1", "1", "timer", str(count)], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    until(count.exists, "the timer expires")
    run(*tool, child.pid, file)
    child.wait()
    said = run(v.args.pagehaul, "restart", "--criu", v.args.criu, file).stdout
    assert "had expired when they were saved: 1;" in said, said
    count.with_suffix(".go").touch()
    for least in (1, 2, 10):
        until(lambda: int(count.read_text()) > least, f"the timer fires {least} times after the restart")
    os.kill(child.pid, signal.SIGKILL)
    passed("checkpoint and restart: a periodic timer that had expired fires again")
