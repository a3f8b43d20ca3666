"""Opens dumps in drgn, which then reads memory through pagehaul.

Formats that drgn does not read work as well: split sets, flattened streams and damaged dumps. drgn finds symbols as always:

    import pagehaul.drgn
    from drgn.helpers.linux import for_each_task

    prog = pagehaul.drgn.program("dump")
    prog.load_debug_info(["vmlinux"])
    for task in for_each_task(prog):
        print(task.comm.string_())
"""

from __future__ import annotations

import os
from typing import Union

import drgn

from ._dump import Dump
from ._errors import KernelError

__all__ = ["program"]

_MACHINES = {
    "x86_64": drgn.Architecture.X86_64,
    "aarch64": drgn.Architecture.AARCH64,
    "s390x": drgn.Architecture.S390X,
    "ppc64": drgn.Architecture.PPC64,
    "ppc64le": drgn.Architecture.PPC64,
    "riscv64": drgn.Architecture.RISCV64,
}
# Kernel addresses are the upper half on every 64-bit machine that pagehaul translates.
_UPPER_HALF = 1 << 63


def program(dump: Union[Dump, str, "os.PathLike[str]"], *parts: Union[str, "os.PathLike[str]"]) -> drgn.Program:
    """Returns a drgn program for the kernel in `dump`, which is an open dump, a path, a URL, or the first of the parts of a split set. It
    has no debug symbols yet: see `drgn.Program.load_debug_info()`.

    The files that it opens are closed with the program. Raises pagehaul.OpenError for those, and pagehaul.KernelError if the notes hold no
    VMCOREINFO. Reads of a dump that was closed raise pagehaul.Closed.
    """
    if not isinstance(dump, Dump):
        dump = Dump(dump, *parts)
    elif parts:
        raise TypeError("an open dump has all its parts")
    vmcoreinfo = dump.vmcoreinfo_text
    if vmcoreinfo is None:
        raise KernelError("the notes hold no VMCOREINFO, so the kernel is unknown")
    machine = dump.machine
    flags = drgn.PlatformFlags(0)
    if dump.pointer_size == 8:
        flags |= drgn.PlatformFlags.IS_64_BIT
    if dump.byte_order == "little":
        flags |= drgn.PlatformFlags.IS_LITTLE_ENDIAN
    prog = drgn.Program(drgn.Platform(_MACHINES.get(machine, drgn.Architecture.UNKNOWN), flags))
    prog.set_linux_kernel_custom(vmcoreinfo, False)
    prog.add_memory_segment(0, 2**64 - 1, dump._segment_reader(drgn.FaultError, False), True)
    if dump.has_page_tables():
        # Otherwise drgn walks the page tables through physical memory, with several reads for one.
        reader = dump._segment_reader(drgn.FaultError, True)
        prog.add_memory_segment(_UPPER_HALF, _UPPER_HALF - 1, reader, False)
    return prog
