"""Compares the pages of two dumps of one vmcore, except those that a device writes while the vmcore is read.

Usage: same_pages.py VMCORE DUMP DUMP ADDRESS...

A redistributor of GICv3 keeps writing to its LPI pending table, which is memory of the crashed kernel. An ADDRESS is the physical
address of such a table. Prints the pages that changed; exits with 1 if others differ.
"""

import sys

import drgn
import numpy
from dumps import Dump
from raw import Raw, sized

TABLE = 64 << 10
"""Bytes in a table for LPIs of 16 bits (LPI_PENDBASE_SZ)."""


def main(vmcore, first, second, *addresses):
    raw = Raw(vmcore)
    kept = [sized(Dump(path, raw.page).kept, raw.pages) for path in (first, second)]
    if not numpy.array_equal(*kept):
        sys.exit(f"{int((kept[0] != kept[1]).sum())} pages are in only one of both dumps")
    tables = [int(address, 16) for address in addresses]
    programs = []
    for path in (first, second):
        programs.append(drgn.Program())
        programs[-1].set_core_dump(path)
    changed = []
    for pfn in numpy.flatnonzero(kept[0]).tolist():
        contents = [program.read(pfn * raw.page, raw.page, physical=True) for program in programs]
        if contents[0] != contents[1]:
            changed.append(pfn)
            if not any(table <= pfn * raw.page < table + TABLE for table in tables):
                sys.exit(f"PFN {pfn:#x} has other contents, and is in no LPI pending table")
    print("     changed while they were read: LPI pending tables, PFNs " + ", ".join(f"{pfn:#x}" for pfn in changed))


if __name__ == "__main__":
    main(*sys.argv[1:])
