"""Queries drgn and crash, whose answers must be the same for a dump and for the raw vmcore."""

import subprocess
import tempfile

import drgn
from drgn.helpers.linux.module import for_each_module
from drgn.helpers.linux.pid import for_each_task
from drgn.helpers.linux.printk import get_dmesg

CRASH_COMMANDS = ["bt -a", "bt", "ps", "kmem -i", "log", "sys", "mod"]


def drgn_answers(core, vmlinux):
    """Returns tasks with the depth of their stacks, modules and the kernel log."""
    prog = drgn.Program()
    prog.set_core_dump(core)
    prog.load_debug_info([vmlinux])
    return {
        "release": prog["init_uts_ns"].name.release.string_().decode(),
        "tasks": sorted((task.pid.value_(), task.comm.string_().decode(), depth(prog, task))
                        for task in for_each_task(prog)),
        "modules": [module.name.string_().decode() for module in for_each_module(prog)],
        "log": get_dmesg(prog).decode(errors="replace"),
    }


def depth(prog, task):
    """Returns the number of frames of a task's stack: unwinding reads the stack."""
    try:
        return len(prog.stack_trace(task))
    except (ValueError, LookupError):
        return None


def crash_answers(crash, vmlinux, *core):
    """Returns what crash prints for common commands, without lines that name the file or its parts."""
    script = "\n".join(["set scroll off", *CRASH_COMMANDS, "quit", ""])
    with tempfile.NamedTemporaryFile("w", suffix=".crash") as file:
        file.write(script)
        file.flush()
        done = subprocess.run([crash, "-s", "-i", file.name, vmlinux, *core], capture_output=True, text=True,
                              errors="replace", stdin=subprocess.DEVNULL, timeout=300)
    lines = [line for line in done.stdout.splitlines()
             if not line.lstrip().startswith(("DUMPFILE:", "DUMPFILES:", "KERNEL:")) and not line.endswith("[PARTIAL DUMP]")]
    if done.returncode != 0 or len(lines) < 50:
        raise SystemExit(f"crash cannot use {core}: {done.stdout[-500:]} {done.stderr[-500:]}")
    return lines
