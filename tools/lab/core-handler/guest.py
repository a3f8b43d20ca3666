# Runs in a Debian 13 guest with systemd-coredump: processes crash, first with it, then with pagehaul-core, then with that removed. Says what
# core_handler.rs expects, in lines that begin with PHLAB. /lab/settings.json has what is measured, and how often.
import json
import os
import re
import signal
import subprocess
import threading
import time
import traceback

OURS = "/var/lib/pagehaul/core"
THEIRS = "/var/lib/systemd/coredump"
MESSAGE_ID = "fc2e22bc6ee647b6b90729ab34a250b1"
HANDLER = "/usr/lib/pagehaul/core-handler"
# The same program by the name under which it reads cores.
PAGEHAUL = "/lab/pagehaul"
CONFIG = "/etc/pagehaul/core.conf"
# systemd-coredump@.service is ended after 300 s.
PATIENCE = 420
STORM = 8
STORM_MIB = 128
STORM_BUDGET_MIB = 256


def say(what, **detail):
    print(f"\nPHLAB {what} {json.dumps(detail)}", flush=True)


def run(*command, check=True):
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    if check and done.returncode:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stdout}")
    return done.stdout


def wait_for(what, condition, patience=PATIENCE, interval=0.01):
    end = time.monotonic() + patience
    while not (found := condition()):
        if time.monotonic() > end:
            raise RuntimeError(f"{what}: not within {patience} s")
        time.sleep(interval)
    return found


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


def child_of(pid):
    return int(read(f"/proc/{pid}/task/{pid}/children").split()[0])


class Subject:
    """A child with memory that waits for a signal."""

    number = 0

    def __init__(self, mib, pages="huge", contained=False):
        Subject.number += 1
        ready = f"/run/subject.{Subject.number}"
        command = ["/usr/bin/python3", "/lab/subject.py", str(mib), pages, ready]
        if contained:
            # A shell that has more to do does not become the subject, which as number 1 would ignore the signal.
            command = ["unshare", "-pfu", "--mount-proc", "sh", "-c", '"$@"; exit 0', "sh", *command]
        self.child = subprocess.Popen(command)
        self.inner = int(wait_for("a subject", lambda: read(ready)))
        self.pid = child_of(child_of(self.child.pid)) if contained else self.child.pid

    def signal(self, number=signal.SIGSEGV):
        self.at = time.monotonic()
        os.kill(self.pid, number)

    def wait(self):
        """Returns how long it took until it was gone, and whether it dumped core."""
        _, status = os.waitpid(self.child.pid, 0)
        self.child.returncode = status
        return time.monotonic() - self.at, os.WCOREDUMP(status)


def entries(pid):
    lines = run("journalctl", "-q", "-a", "-o", "json", f"MESSAGE_ID={MESSAGE_ID}", f"COREDUMP_PID={pid}", check=False)
    return [json.loads(line) for line in lines.splitlines() if line.startswith("{")]


def entry(pid):
    """The journal's entry of a crash, once it is there: the core is written by then."""
    return wait_for(f"the journal's entry of {pid}", lambda: entries(pid), interval=1)[-1]


def cores(directory=OURS):
    return [f"{directory}/{name}" for name in os.listdir(directory)] if os.path.isdir(directory) else []


def empty():
    """Removes all cores, so that no limit on their sum is reached."""
    for path in cores(OURS) + cores(THEIRS):
        os.remove(path)


def is_whole(path):
    return subprocess.run([PAGEHAUL, "verify", path], capture_output=True).returncode == 0


def warm():
    """Has QEMU allocate the guest's memory: a page that is touched for the first time takes many times as long."""
    available = int(re.search(r"MemAvailable:\s*(\d+)", read("/proc/meminfo"))[1]) << 10
    memory = bytearray(available * 9 // 10)
    for start in range(0, len(memory), 4096):
        memory[start] = 1


def measure(by, mib, pages, rounds):
    for _ in range(rounds):
        empty()
        run("sync")
        subject = Subject(mib, pages)
        subject.signal()
        gone, dumped = subject.wait()
        said = {"by": by, "mib": mib, "pages": pages, "gone": gone, "dumped": dumped}
        try:
            found = entry(subject.pid)
        except RuntimeError as why:
            say("measured", **said, why=str(why))
            continue
        file = found.get("COREDUMP_FILENAME", "")
        held = re.search(r"let it go after ([0-9.]+) s", found["MESSAGE"])
        say(
            "measured",
            **said,
            whole=int(found["__MONOTONIC_TIMESTAMP"]) / 1e6 - subject.at,
            bytes=os.stat(file).st_size if os.path.exists(file) else 0,
            held=float(held[1]) if held else None,
            truncated="COREDUMP_TRUNCATED" in found,
            message=found["MESSAGE"][:300],
        )


def copies(mib, pages, rounds):
    """What copies of the memory take, and the end of a process without a core."""
    for _ in range(rounds):
        fresh, touched, kernel = map(float, run("/usr/bin/python3", "/lab/subject.py", str(mib), pages).split())
        subject = Subject(mib, pages)
        subject.signal(signal.SIGKILL)
        killed, _ = subject.wait()
        say("copied", mib=mib, pages=pages, fresh=fresh, touched=touched, kernel=kernel, killed=killed)


def service(by):
    """A crash of a service that systemd starts again."""
    ready = f"/run/service.{by}"
    with open("/run/systemd/system/subject.service", "w") as unit:
        unit.write(
            f"[Service]\nExecStart=/usr/bin/python3 /lab/subject.py 256 huge {ready}\nRestart=always\nRestartSec=0\n"
        )
    run("systemctl", "daemon-reload")
    run("systemctl", "start", "subject")
    pid = int(wait_for("the service", lambda: read(ready)))
    os.remove(ready)

    def shown():
        lines = run("systemctl", "show", "subject", "-p", "NRestarts,InactiveEnterTimestampMonotonic,ActiveEnterTimestampMonotonic")
        return {key: int(value) for key, value in (line.split("=") for line in lines.split())}

    at = time.monotonic()
    os.kill(pid, signal.SIGSEGV)
    wait_for("the restart", lambda: shown()["NRestarts"] == 1, interval=0.2)
    after = shown()
    serves = int(wait_for("the service that restarted", lambda: read(ready))) != pid
    found = entry(pid)
    run("systemctl", "stop", "subject")
    say(
        "service",
        by=by,
        gone=after["InactiveEnterTimestampMonotonic"] / 1e6 - at,
        started=after["ActiveEnterTimestampMonotonic"] / 1e6 - at,
        whole=int(found["__MONOTONIC_TIMESTAMP"]) / 1e6 - at,
        restarts=after["NRestarts"],
        serves=serves,
        unit=found.get("COREDUMP_UNIT"),
    )


def shown(by, contained=False):
    """What coredumpctl and gdb say of a core."""
    empty()
    subject = Subject(64, contained=contained)
    subject.signal(signal.SIGABRT)
    subject.wait()
    found = entry(subject.pid)
    pid = str(subject.pid)
    arguments = "--debugger-arguments=-batch -ex bt -ex 'info threads' -ex 'p $_siginfo.si_signo'"
    say(
        "shown",
        by=by,
        contained=contained,
        pid=subject.pid,
        inner=subject.inner,
        list=run("coredumpctl", "list", "--no-pager", "--no-legend", pid, check=False),
        info=run("coredumpctl", "info", "--no-pager", pid, check=False),
        debug=run("coredumpctl", "debug", arguments, pid, check=False)[-3000:],
        fields={key: str(value)[:200] for key, value in found.items() if key.startswith("COREDUMP_")},
        priority=found.get("PRIORITY"),
        file=found.get("COREDUMP_FILENAME", ""),
        whole=is_whole(found.get("COREDUMP_FILENAME", "")),
    )


def handlers():
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    return [int(pid) for pid in pids if read(f"/proc/{pid}/comm").strip() == "core-handler"]


def storm():
    """Crashes at once, with memory for two of them."""
    empty()
    with open(CONFIG, "a") as config:
        config.write(f"max_memory = {STORM_BUDGET_MIB}M\n")
    subjects = [Subject(STORM_MIB) for _ in range(STORM)]
    most = {"reserved": 0, "resident": 0, "handlers": 0}
    over = threading.Event()

    def watch():
        while not over.is_set():
            running = handlers()
            status = [re.search(r"RssAnon:\s*(\d+)", read(f"/proc/{pid}/status")) for pid in running]
            runtime = "/run/pagehaul/core"
            names = os.listdir(runtime) if os.path.isdir(runtime) else []
            reserved = [read(f"{runtime}/{name}").strip() for name in names if name.startswith("memory.")]
            for what, now in (
                ("reserved", sum(int(bytes) for bytes in reserved if bytes)),
                ("resident", sum(int(found[1]) << 10 for found in status if found)),
                ("handlers", len(running)),
            ):
                most[what] = max(most[what], now)
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for subject in subjects:
        subject.signal()
    gone = [subject.wait()[0] for subject in subjects]
    files = [entry(subject.pid).get("COREDUMP_FILENAME", "") for subject in subjects]
    over.set()
    watcher.join()
    least = [line for line in read(CONFIG).splitlines() if not line.startswith("max_memory")]
    with open(CONFIG, "w") as config:
        config.write("\n".join(least) + "\n")
    whole = sum(is_whole(file) for file in set(files))
    say("storm", crashes=STORM, budget=STORM_BUDGET_MIB << 20, whole=whole, gone=max(gone), **most)


def killed(moment):
    """The handler is killed while it copies, or while it writes."""
    empty()
    subject = Subject(256, "small")
    subject.signal()
    handler = wait_for("the handler", handlers, interval=0)[0]
    if moment == "writing":
        wait_for("a core", lambda: any(os.stat(path).st_size > 4 << 20 for path in cores()), interval=0)
    os.kill(handler, signal.SIGKILL)
    gone, _ = subject.wait()
    wait_for("the handler's end", lambda: handler not in handlers())
    left = [{"path": path, "bytes": os.stat(path).st_size, "whole": is_whole(path)} for path in cores()]
    say("killed", moment=moment, gone=gone, left=left, journalled=len(entries(subject.pid)))
    # What is left counts for nothing, and is in nobody's way.
    subject = Subject(64)
    subject.signal()
    subject.wait()
    say("next", moment=moment, whole=is_whole(entry(subject.pid).get("COREDUMP_FILENAME", "")))


def pattern():
    return read("/proc/sys/kernel/core_pattern").strip()


def main():
    # Neither the kernel nor systemd writes into the lines of the console from here on.
    run("dmesg", "-n", "1")
    os.kill(1, signal.SIGRTMIN + 21)
    run("dpkg-deb", "-x", "/lab/pagehaul-core.deb", "/run/package")
    run("cp", f"/run/package{HANDLER}", PAGEHAUL)
    settings = json.loads(read("/lab/settings.json"))
    cases = [(case["mib"], case["pages"], case["rounds"]) for case in settings["cases"]]
    huge = read("/sys/kernel/mm/transparent_hugepage/enabled").strip()
    say("guest", kernel=os.uname().release, systemd=run("systemctl", "--version").splitlines()[0], huge_pages=huge)
    say("pattern", when="before", pattern=pattern())
    warm()
    for case in cases:
        copies(*case)
    for case in cases:
        measure("systemd-coredump", *case)
    service("systemd-coredump")
    shown("systemd-coredump")
    os.makedirs(os.path.dirname(CONFIG), exist_ok=True)
    with open(CONFIG, "w") as config:
        config.write("rate = none\n")
    run("dpkg", "-i", "/lab/pagehaul-core.deb")
    say("pattern", when="installed", pattern=pattern())
    for case in cases:
        measure("pagehaul", *case)
    service("pagehaul")
    shown("pagehaul")
    shown("pagehaul", contained=True)
    storm()
    killed("copying")
    killed("writing")
    run("dpkg", "-r", "pagehaul-core")
    say("pattern", when="removed", pattern=pattern())
    shown("removed")
    say("done")


try:
    main()
except BaseException:
    print("\nPHLAB error", " | ".join(traceback.format_exc().splitlines()), flush=True)
run("sync")
os.system("poweroff -f")
