#!/usr/bin/env python3
"""Runs `pagehaul core` next to gcore, a copy of /proc/PID/mem and the bare copy loop, and `pagehaul checkpoint` next to
CRIU alone and CRIU with its images compressed, on one process of known contents.

Every command is run in turn, round after round, so that a slow minute of the machine hits all of them; medians are
compared. The pause is what the process itself sees: the longest time in which its clock thread did not run, next to what
pagehaul and CRIU say. Writes a Markdown table and the raw figures to docs/benchmarks/.
"""

import argparse
import ctypes
import datetime
import json
import mmap
import os
import pathlib
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIBC = ctypes.CDLL(None, use_errno=True)
CHUNK = 1 << 20


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def bare_copy(pid, address, length, room):
    """One pass of process_vm_readv on one thread into memory that was touched before: seconds."""
    base = ctypes.addressof(ctypes.c_char.from_buffer(room))
    start = time.monotonic()
    for done in range(0, length, CHUNK):
        size = min(CHUNK, length - done)
        local, remote = Iovec(base + done, size), Iovec(address + done, size)
        if LIBC.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) != size:
            sys.exit(f"process_vm_readv: {os.strerror(ctypes.get_errno())}")
    return time.monotonic() - start


def processes_below(pid):
    found, queue = [pid], [pid]
    while queue:
        try:
            task = queue.pop()
            for tid in os.listdir(f"/proc/{task}/task"):
                children = [int(word) for word in open(f"/proc/{task}/task/{tid}/children").read().split()]
                found += children
                queue += children
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def anonymous(pid):
    """RssAnon of a process and its children in MiB."""
    total = 0
    for each in processes_below(pid):
        try:
            for line in open(f"/proc/{each}/status"):
                if line.startswith("RssAnon:"):
                    total += int(line.split()[1])
        except (FileNotFoundError, ProcessLookupError):
            pass
    return total / 1024


class Stillness(threading.Thread):
    """The longest time in which a process's counters stood still."""

    def __init__(self, pid, counters, count):
        super().__init__(daemon=True)
        self.file = open(f"/proc/{pid}/mem", "rb", buffering=0)
        self.at, self.length, self.over, self.longest = counters, count * 16, False, 0.0

    def run(self):
        last, since = None, time.monotonic()
        while not self.over:
            self.file.seek(self.at)
            now = self.file.read(self.length)
            if now != last:
                self.longest = max(self.longest, time.monotonic() - since)
                last, since = now, time.monotonic()
            time.sleep(0.0005)
        self.longest = max(self.longest, time.monotonic() - since)


def measure(command, subject, outputs, said=lambda _: {}):
    for output in outputs:
        if output.is_dir():
            shutil.rmtree(output)
        elif output.exists():
            output.unlink()
    watcher = Stillness(subject.pid, subject.counters, subject.threads)
    watcher.start()
    before = os.times()
    start = time.monotonic()
    process = subprocess.Popen(command, shell=isinstance(command, str), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               start_new_session=True)
    peak = 0
    try:
        while process.poll() is None:
            peak = max(peak, anonymous(process.pid))
            time.sleep(0.01)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        wall = time.monotonic() - start
        watcher.over = True
        watcher.join()
    after = os.times()
    out, err = process.stdout.read(), process.stderr.read()
    if process.returncode != 0:
        sys.exit(f"{command} failed:\n{err.decode(errors='replace')[-2000:]}")
    size = 0
    for output in outputs:
        files = output.rglob("*") if output.is_dir() else [output]
        size += sum(file.stat().st_blocks * 512 for file in files if file.is_file())
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    result = {"wall": wall, "cpu": cpu, "anon_mib": peak, "bytes": size, "still": watcher.longest}
    result.update(said(out))
    for output in outputs:
        shutil.rmtree(output) if output.is_dir() else output.unlink()
    return result


class Subject:
    """The process that is saved. It ends with this program, whatever ends that."""

    def __init__(self, program, mib, threads, scratch):
        self.threads = threads
        # In a session of its own and without pipes to this process: CRIU would have to save these.
        word = scratch / "word"
        word.unlink(missing_ok=True)
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", program, str(mib), str(threads), "wait", str(word)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        self.pid = self.process.pid
        try:
            while not word.exists() or not word.read_text().endswith("\n"):
                if self.process.poll() is not None:
                    sys.exit(f"{program} {mib} {threads} ended with {self.process.returncode} before it was ready")
                time.sleep(0.05)
            _, _, address, length, counters = word.read_text().split()
        except BaseException:
            self.end()
            raise
        self.address, self.length, self.counters = int(address, 16), int(length, 16), int(counters, 16)

    def end(self):
        self.process.kill()
        self.process.wait()


def plan(args, subject, scratch):
    """(name, command, outputs, what the tool says of the pause)."""
    pid = str(subject.pid)
    core, frames, images = scratch / "core", scratch / "core.zst", scratch / "images"

    def report(out):
        said = json.loads(out)
        seconds = said["seconds"]
        return {"pause": seconds["pause"], "copy": seconds["copy"], "pages": said["page_bytes"],
                "packing": seconds["pack"] - (seconds["pause"] if said["mode"] == "stopped" else 0)}

    def core_run(name, output, *options):
        command = [args.pagehaul, "core", "-q", "--json", "--force", *options, pid, str(output)]
        return name, command, [output] if output.parent == scratch else [], report

    runs = [
        core_run("core", core),
        core_run("core .zst", frames),
        core_run("core, zstd:3, thrown away", pathlib.Path("/dev/null"), "-c", "zstd:3"),
        core_run("core .zst, zstd:-1", frames, "-c", "zstd:-1"),
        core_run("core --live .zst", frames, "--live"),
        core_run("core --snapshot .zst", frames, "--snapshot"),
    ]
    gcore = scratch / f"gcore.{pid}"
    runs.append(("gcore", ["gcore", "-o", str(scratch / "gcore"), pid], [gcore], lambda out: {}))
    copy = scratch / "mem"
    runs.append(("SIGSTOP, dd of /proc/PID/mem, SIGCONT",
                 f"kill -STOP {pid}; dd if=/proc/{pid}/mem of={copy} bs=1M iflag=skip_bytes,count_bytes,fullblock "
                 f"skip={subject.address // 4096 * 4096} count={subject.length} 2>{scratch}/dd; s=$?; kill -CONT {pid}; exit $s",
                 [copy], lambda out: {}))
    if args.criu:
        box = scratch / "checkpoint"

        def frozen(out):
            return {"pause": json.loads(out)["frozen_seconds"]}

        runs.append(("checkpoint", [args.pagehaul, "checkpoint", "-q", "--json", "--force", "--leave-running", "--criu",
                                    args.criu, pid, str(box)], [box], frozen))
        dump = f"mkdir -p {images} && {args.criu} dump -t {pid} -D {images} --leave-running -v0"
        runs.append(("criu dump", dump, [images], lambda out: {}))
        for codec in ("zstd -1 -T0", "lz4 -1"):
            if shutil.which(codec.split()[0]):
                # The images, once there: CRIU has no compression of its own in 4.1.
                runs.append((f"criu dump, then {codec}",
                             f"{dump} && tar -C {images} -c . | {codec} -q > {box} && rm -r {images}", [box], lambda out: {}))
    return runs


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pagehaul", default=str(ROOT / "target/release/pagehaul"))
    parser.add_argument("--subject", default=str(ROOT / "target/release/examples/subject"))
    parser.add_argument("--frames", default=str(ROOT / "target/release/examples/frames"), help="the bare codec")
    parser.add_argument("--criu")
    parser.add_argument("--mib", type=int, nargs="+", default=[100, 800, 4000])
    parser.add_argument("--threads", type=int, default=2, help="busy threads of the process")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scratch", default="/dev/shm", help="directory for outputs; memory, so that no disk is measured")
    parser.add_argument("--name", default=datetime.date.today().isoformat() + "-process")
    parser.add_argument("--note", default="", help="what readers should know of this run")
    parser.add_argument("--add", action="store_true", help="keep other sizes of an earlier run of this name")
    args = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Through every `finally`; an interrupt too where a shell in the background has it ignored.
        signal.signal(number, lambda number, _: sys.exit(f"ended by {signal.Signals(number).name}"))
    scratch = pathlib.Path(args.scratch) / f"pagehaul-bench-{os.getpid()}"
    scratch.mkdir()
    directory = ROOT / "docs/benchmarks"
    record = directory / f"{args.name}.json"
    sizes = json.loads(record.read_text()) if args.add and record.exists() else []
    try:
        for mib in args.mib:
            sizes = [size for size in sizes if size["mib"] != mib] + [one_size(args, mib, scratch)]
    finally:
        shutil.rmtree(scratch)
    sizes.sort(key=lambda size: size["mib"])
    directory.mkdir(parents=True, exist_ok=True)
    record.write_text(json.dumps(sizes, indent=1) + "\n")
    text = render(args.name, sizes)
    (directory / f"{args.name}.md").write_text(text)
    print(text)


def floor_text(size):
    return f"CRIU's floor: {statistics.median(size['floor']) * 1e3:.0f} ms. " if size["floor"] else ""


def medians(runs):
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def render(name, sizes):
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    lines = [
        f"# Cores and checkpoints of live processes, {name}", "",
        f"{os.cpu_count()} CPUs ({cpu}), Linux {platform.release()}; a process of busy threads whose memory is 40 % random, "
        "40 % text, 20 % zeros; medians of interleaved rounds. Command: `make bench-process`.", "",
        "`pause` is what the tool says, `still` the longest time the process's counters stood still, seen from outside "
        "(sampled; other programs' turns on the CPU are in it); `bare` the process's memory copied once with "
        "process_vm_readv on one thread into memory that is there; `anon` anonymous memory of the tool and its children at "
        "most. Pauses of gcore, CRIU and the copy are what is `still`. CRIU without pagehaul has no pipe for its images: they are "
        "compressed once they are there. Packing competes with the process's busy threads, as the bare codec does; `to a file` it "
        "writes as well, on the same CPUs, which the bare codec does not. `floor` is the pause of a CRIU that has 1 MiB to save: "
        "what it takes for everything but memory, which no pages streamed faster can shorten.", "",
        "## Goals and results", "",
        "| MiB | pause / bare: core (goal 1.3) | snapshot | gcore / core (goal 3) | CRIU / core (goal 3) | "
        "CRIU / checkpoint (goal 3) | floor / checkpoint | packing / bare codec x threads (goal 90 %) | to a file | size (goal 45 %) |",
        "|" + "---|" * 10]
    for size in sizes:
        run = {name: medians(runs) for name, runs in size["runs"].items()}
        bare, frames = statistics.median(size["bare"]), statistics.median(size["frames"])
        pause = run["core .zst"]["pause"]
        # The pages of the core are a little more than the known memory that the bare codec had.
        rates = [run[name]["pages"] / run[name]["packing"] / (size["mib"] * 2**20 / frames)
                 for name in ("core, zstd:3, thrown away", "core .zst")]
        ratio = run["core .zst"]["bytes"] / run["core .zst"]["pages"]
        criu = run.get("criu dump", {}).get("still")
        box = run.get("checkpoint", {}).get("still")
        floor = statistics.median(size["floor"]) if size["floor"] else None
        lines.append(f"| {size['mib']} | {pause / bare:.2f} | {run['core --snapshot .zst']['pause'] / bare:.2f} "
                     f"| {run['gcore']['still'] / pause:.1f} | {f'{criu / pause:.1f}' if criu else ''} "
                     f"| {f'{criu / box:.1f}' if criu and box else ''} | {f'{floor / box:.2f}' if floor and box else ''} "
                     f"| {rates[0]:.0%} | {rates[1]:.0%} | {ratio:.1%} |")
    for size in sizes:
        bare = statistics.median(size["bare"])
        lines += ["", f"## {size['mib']} MiB", "",
                  f"Bare copy: {bare * 1e3:.0f} ms ({size['mib'] / 1024 / bare:.1f} GiB/s). {floor_text(size)}{size['rounds']} rounds, outputs to "
                  f"{size['scratch']}, {size['threads']} busy threads. {size['note']}".rstrip(), "",
                  "| | pause ms | still ms | pause / bare | wall s | CPU s | anon MiB | size MiB | of memory |", "|" + "---|" * 9]
        for name, runs in size["runs"].items():
            median = medians(runs)
            pause = median.get("pause")
            told = f"{pause * 1e3:.0f}" if pause is not None else ""
            ratio = f"{(pause if pause is not None else median['still']) / bare:.2f}"
            lines.append(f"| {name} | {told} | {median['still'] * 1e3:.0f} | {ratio} | {median['wall']:.2f} "
                         f"| {median['cpu']:.2f} | {median['anon_mib']:.0f} | {median['bytes'] / 2**20:.0f} "
                         f"| {median['bytes'] / 2**20 / size['mib']:.1%} |")
    return "\n".join(lines + [""])


def bare_codec(args, subject, scratch):
    """The process's memory in frames on every CPU, and thrown away: seconds."""
    content = scratch / "content"
    with open(f"/proc/{subject.pid}/mem", "rb", buffering=0) as memory, open(content, "wb") as file:
        # Enough for the rate; all of it would take the room of the outputs.
        share = min(subject.length, 400 << 20)
        memory.seek(subject.address)
        for _ in range(0, share, CHUNK):
            file.write(memory.read(CHUNK))
    done = subprocess.run([args.frames, content, "3", str(os.cpu_count())], check=True, capture_output=True, text=True)
    content.unlink()
    return float(done.stdout.split()[0]) * subject.length / share


def criu_floor(args, scratch):
    """CRIU's pause where there is next to no memory: seconds. It freezes and examines the process, and puts code in it."""
    if not args.criu:
        return []
    subject = Subject(args.subject, 1, args.threads, scratch)
    try:
        images = scratch / "images"
        command = f"mkdir -p {images} && {args.criu} dump -t {subject.pid} -D {images} --leave-running -v0"
        return [measure(command, subject, [images])["still"] for _ in range(max(args.rounds, 3))]
    finally:
        subject.end()


def one_size(args, mib, scratch):
    floor = criu_floor(args, scratch)
    subject = Subject(args.subject, mib, args.threads, scratch)
    try:
        runs = plan(args, subject, scratch)
        results = {name: [] for name, *_ in runs}
        bare, frames = [], []
        for _ in range(args.rounds):
            room = mmap.mmap(-1, subject.length)
            for at in range(0, subject.length, 4096):
                room[at] = 1
            bare.append(bare_copy(subject.pid, subject.address, subject.length, room))
            del room
            frames.append(bare_codec(args, subject, scratch))
            for name, command, outputs, said in runs:
                results[name].append(measure(command, subject, outputs, said))
                print(f"{mib} MiB: {name}: {results[name][-1]}", file=sys.stderr)
    finally:
        subject.end()
    return {"mib": mib, "floor": floor, "bare": bare, "frames": frames, "runs": results, "rounds": args.rounds, "scratch": args.scratch,
            "threads": args.threads, "note": args.note}


if __name__ == "__main__":
    main()
