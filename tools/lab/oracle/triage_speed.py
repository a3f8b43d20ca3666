"""Compares the time and the memory of `pagehaul triage`, drgn and crash for the same facts: tasks, and the stacks of all of them.

Usage: triage_speed.py VMCORE VMLINUX PAGEHAUL [ROUNDS]. The programs take turns."""

import os
import statistics
import subprocess
import sys
import tempfile

DRGN = """
import sys, drgn
from drgn.helpers.linux.pid import for_each_task
prog = drgn.Program()
prog.set_core_dump(sys.argv[1])
prog.load_debug_info([sys.argv[2]])
for task in for_each_task(prog):
    print(task.pid.value_(), task.comm.string_())
    try:
        print(prog.stack_trace(task))
    except ValueError as why:
        print(why)
"""


def run(command, script):
    """Returns wall seconds, CPU seconds and peak MiB of a run, and the number of lines that it prints."""
    with tempfile.TemporaryFile() as output:
        before = os.times()
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.DEVNULL)
        process.stdin.write(script.encode())
        process.stdin.close()
        _, status, usage = os.wait4(process.pid, 0)
        wall = os.times().elapsed - before.elapsed
        if os.waitstatus_to_exitcode(status) != 0:
            raise SystemExit(f"{command}: exit status {os.waitstatus_to_exitcode(status)}")
        output.seek(0)
        lines = sum(1 for _ in output)
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, lines


def main():
    core, vmlinux, pagehaul = sys.argv[1:4]
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 5
    commands = {
        "pagehaul triage": ([pagehaul, "triage", core], ""),
        "pagehaul triage --stacks": ([pagehaul, "triage", "--stacks", core], ""),
        "drgn": ([sys.executable, "-c", DRGN, core, vmlinux], ""),
        "crash": (["crash", "-s", "--no_scroll", vmlinux, core], "ps\nforeach bt\nquit\n"),
    }
    results = {name: [] for name in commands}
    for _ in range(rounds):
        for name, (command, script) in commands.items():
            results[name].append(run(command, script))
    for name, runs in results.items():
        wall, cpu, memory, lines = (statistics.median(column) for column in zip(*runs))
        print(f"{name:26} {wall:6.2f} s, {cpu:6.2f} s of CPU, {memory:5.0f} MiB, {lines:.0f} lines")


main()
