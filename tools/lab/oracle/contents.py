"""Compares pages of a dump, as libkdumpfile (through drgn) reads them, with the raw vmcore."""

import drgn
import numpy
from raw import runs

BATCH = 256
"""Number of pages to read at once."""


def compare(dump, kept, raw):
    """Returns descriptions of kept pages that differ."""
    prog = drgn.Program()
    prog.set_core_dump(dump)
    wrong = []
    for start, end in runs(kept):
        for pfn in range(start, end, BATCH):
            count = min(BATCH, end - pfn)
            if read(prog, raw, pfn, count, wrong) not in (None, raw.read(pfn, count)):
                wrong += [f"PFN {page:#x} has other contents" for page in range(pfn, pfn + count)
                          if read(prog, raw, page, 1, wrong) != raw.read(page)]
    return wrong


def readable_excluded(dump, kept, raw):
    """Returns descriptions of excluded or nonexistent pages that libkdumpfile reads nevertheless."""
    prog = drgn.Program()
    prog.set_core_dump(dump)
    given = []
    for pfn in numpy.flatnonzero(~kept).tolist():
        try:
            prog.read(pfn * raw.page, raw.page, physical=True)
            given.append(f"PFN {pfn:#x} is excluded, but readable")
        except drgn.FaultError:
            pass
    return given


def salvaged(dump, kept, raw):
    """Returns the number of unreadable kept pages, and descriptions of those that differ."""
    prog = drgn.Program()
    prog.set_core_dump(dump)
    lost, wrong = [], []
    pfns = numpy.flatnonzero(kept).tolist()
    # The first read makes libkdumpfile look for the kernel's text, and fails if that is missing.
    read(prog, raw, pfns[0], 1, [])
    for pfn in pfns:
        if read(prog, raw, pfn, 1, lost) not in (None, raw.read(pfn)):
            wrong.append(f"PFN {pfn:#x} has other contents")
    return len(lost), wrong


def read(prog, raw, pfn, count, wrong):
    try:
        return prog.read(pfn * raw.page, count * raw.page, physical=True)
    except drgn.FaultError as error:
        wrong.append(f"PFN {pfn:#x} and {count - 1} more: {error}")
        return None
