"""Validates cores and checkpoints of real programs with gdb, lldb, elfutils, drgn and the programs' own checks.

Usage: validate_process.py PAGEHAUL SUBJECT [--criu PROGRAM] [--only large --mib 8000 --scratch DIRECTORY]

Needs gdb, lldb, elfutils, redis-server and postgresql of Debian (scripts/setup.sh test). Without CRIU it skips checkpoints, and
without huge pages in the machine their check, and says so.
"""

import argparse
import os
import pathlib
import platform
import signal
import sys
import tempfile
import time
import traceback

from process import checkpoints, memory, pause, precopy, programs, restarts, subject, support
from process.support import PASSED, REPORT, Validator

PARTS = {
    "subject": subject.subject,
    "seccomp": subject.seccomp,
    "huge": memory.huge,
    "hugetlb": memory.hugetlb,
    "forked": memory.forked,
    "python": programs.python,
    "redis": programs.redis,
    "postgres": programs.postgres,
    "threads": restarts.threads,
    "events": restarts.events,
    "family": restarts.family,
    "tcp": restarts.tcp,
    "writer": restarts.writer,
    "running": precopy.running,
    "clocked": precopy.clocked,
    "generations": precopy.generations,
    "killed": precopy.killed,
    "checkpoints": checkpoints.checkpoints,
    "pause": pause.pause,
    "large": subject.large,
}

ONLY_IF_NAMED = {"large"}


def kill_all(directory):
    """Kills programs whose command line names the directory: restarted ones are not children of this process."""
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if directory.encode() in (entry / "cmdline").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                pass


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pagehaul", type=os.path.abspath)
    parser.add_argument("subject", type=os.path.abspath)
    parser.add_argument("--clocked", type=os.path.abspath, help="crates/process/examples/clocked.rs")
    parser.add_argument("--criu", type=os.path.abspath)
    parser.add_argument("--pause", type=os.path.abspath, help="bench/pause.py")
    parser.add_argument("--only", nargs="+", choices=PARTS, help="parts to run; `large` runs only if named")
    parser.add_argument("--rounds", type=int, default=2, help="restarts of each program")
    parser.add_argument("--moments", type=int, default=50, help="signals to a checkpoint of the part `checkpoints`")
    parser.add_argument("--deadline", type=int, default=support.DEADLINE, metavar="SECONDS",
                        help="when something that should happen soon counts as failed")
    parser.add_argument("--without", nargs="+", default=[], choices=["lldb", "drgn"], help="debuggers that this machine lacks")
    parser.add_argument("--mib", type=int, default=800, help="memory of the process in the `large` part")
    parser.add_argument("--scratch", help="directory for outputs; needs twice that memory")
    parser.add_argument("--record", type=pathlib.Path, help="file to append the passed checks to")
    parser.add_argument("--report", type=pathlib.Path, help="file for a line of JSON for each check, checkpoint, restart and part")
    return parser.parse_args()


def run_part(args, part):
    """Runs a part in a directory of its own, and returns why it failed."""
    with tempfile.TemporaryDirectory(dir=args.scratch, ignore_cleanup_errors=True) as directory:
        os.chmod(directory, 0o755)
        try:
            PARTS[part](Validator(args, pathlib.Path(directory)))
        except SystemExit as why:
            return str(why)
        except Exception:
            return traceback.format_exc()
        finally:
            kill_all(directory)
    return None


def ended(number, _):
    raise KeyboardInterrupt(f"ended by {signal.Signals(number).name}")


def main():
    args = arguments()
    if os.geteuid() != 0:
        sys.exit("validate_process: other users' processes and CRIU need root")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, ended)
    support.DEADLINE = args.deadline
    if args.report:
        REPORT.file = open(args.report, "w")
    failed = []
    for part in args.only or [part for part in PARTS if part not in ONLY_IF_NAMED]:
        REPORT.part, begun = part, time.monotonic()
        print(f"== {part}", flush=True)
        try:
            why = run_part(args, part)
        except KeyboardInterrupt as signalled:
            sys.exit(str(signalled))
        REPORT.add(ended=why or "passed", seconds=round(time.monotonic() - begun, 1))
        if why:
            failed.append(part)
            print(f"FAILED: {part}: {why}", flush=True)
    print(f"{len(PASSED)} checks passed")
    if args.record:
        with open(args.record, "a") as record:
            print(f"\n{time.strftime('%Y-%m-%d')}, Linux {platform.release()}, {os.cpu_count()} CPUs:\n", file=record)
            record.writelines(f"- {text}\n" for text in PASSED)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
