"""Shows a dump with drgn: the kernel, tasks, modules, the end of the log and the stack that crashed.

Usage: show.py DUMP VMLINUX
"""

import sys

import drgn
from drgn.helpers.linux.module import for_each_module
from drgn.helpers.linux.pid import for_each_task
from drgn.helpers.linux.printk import get_dmesg


def main(dump, vmlinux):
    prog = drgn.Program()
    prog.set_core_dump(dump)
    prog.load_debug_info([vmlinux])
    print(f"drgn {drgn.__version__}: Linux {prog['init_uts_ns'].name.release.string_().decode()}")
    tasks = [f"{task.pid.value_()} {task.comm.string_().decode()}" for task in for_each_task(prog)]
    modules = [module.name.string_().decode() for module in for_each_module(prog)]
    print(f"{len(tasks)} tasks: {', '.join(tasks[:6])} …")
    print(f"{len(modules)} modules: {', '.join(modules)}")
    print("end of the log:")
    for line in get_dmesg(prog).decode(errors="replace").splitlines()[-4:]:
        print(f"  {line}")
    crashed = prog.crashed_thread()
    print(f"task {crashed.object.pid.value_()} crashed:")
    for frame in list(crashed.stack_trace())[:8]:
        print(f"  {frame.name}")


if __name__ == "__main__":
    main(*sys.argv[1:])
