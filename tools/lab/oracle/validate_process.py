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

from process import checkpoints, memory, programs, subject
from process.support import PASSED, Validator

PARTS = {
    "subject": subject.subject,
    "seccomp": subject.seccomp,
    "huge": memory.huge,
    "forked": memory.forked,
    "python": programs.python,
    "redis": programs.redis,
    "postgres": programs.postgres,
    "checkpoints": checkpoints.checkpoints,
    "large": subject.large,
}


def kill_all(directory):
    """Kills programs whose command line names the directory: restarted ones are not children of this process."""
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                if directory.encode() in (entry / "cmdline").read_bytes():
                    os.kill(int(entry.name), signal.SIGKILL)
            except OSError:
                pass


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pagehaul", type=os.path.abspath)
    parser.add_argument("subject", type=os.path.abspath)
    parser.add_argument("--criu", type=os.path.abspath)
    parser.add_argument("--only", nargs="+", choices=PARTS, help="parts to run; `large` runs only if named")
    parser.add_argument("--mib", type=int, default=800, help="memory of the process in the `large` part")
    parser.add_argument("--scratch", help="directory for outputs; needs twice that memory")
    parser.add_argument("--record", type=pathlib.Path, help="file to append the passed checks to")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("validate_process: other users' processes and CRIU need root")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(f"ended by {signal.Signals(number).name}"))
    with tempfile.TemporaryDirectory(dir=args.scratch, ignore_cleanup_errors=True) as directory:
        os.chmod(directory, 0o755)
        validator = Validator(args, pathlib.Path(directory))
        try:
            for part in args.only or [part for part in PARTS if part != "large"]:
                PARTS[part](validator)
        finally:
            kill_all(directory)
    print(f"{len(PASSED)} checks passed")
    if args.record:
        with open(args.record, "a") as record:
            print(f"\n{time.strftime('%Y-%m-%d')}, Linux {platform.release()}, {os.cpu_count()} CPUs:\n", file=record)
            record.writelines(f"- {text}\n" for text in PASSED)


if __name__ == "__main__":
    main()
