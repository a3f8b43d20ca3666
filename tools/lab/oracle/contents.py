"""Pages of a dump as libkdumpfile (through drgn) reads them, against the raw vmcore."""

import drgn
import numpy
from raw import PAGE, runs

BATCH = 256
"""Pages read at once."""


def compare(dump, kept, raw):
    """Sentences about kept pages that differ, and pages left out that are read all the same."""
    prog = drgn.Program()
    prog.set_core_dump(dump)
    wrong = []
    for start, end in runs(kept):
        for pfn in range(start, end, BATCH):
            count = min(BATCH, end - pfn)
            if read(prog, pfn, count, wrong) not in (None, raw.read(pfn, count)):
                wrong += [f"PFN {page:#x} has other contents" for page in range(pfn, pfn + count)
                          if read(prog, page, 1, wrong) != raw.read(page)]
    return wrong


def left_out(dump, kept, raw):
    """Pages left out, or of no memory, that libkdumpfile gives contents for all the same."""
    prog = drgn.Program()
    prog.set_core_dump(dump)
    given = []
    for pfn in numpy.flatnonzero(~kept).tolist():
        try:
            prog.read(pfn * PAGE, PAGE, physical=True)
            given.append(f"PFN {pfn:#x} was left out, but is read")
        except drgn.FaultError:
            pass
    return given


def salvaged(dump, kept, raw):
    """How many kept pages cannot be read, and sentences about those that differ."""
    prog = drgn.Program()
    prog.set_core_dump(dump)
    lost, wrong = [], []
    pfns = numpy.flatnonzero(kept).tolist()
    # libkdumpfile looks for the kernel's text at the first read, which fails where that is missing.
    read(prog, pfns[0], 1, [])
    for pfn in pfns:
        if read(prog, pfn, 1, lost) not in (None, raw.read(pfn)):
            wrong.append(f"PFN {pfn:#x} has other contents")
    return len(lost), wrong


def read(prog, pfn, count, wrong):
    try:
        return prog.read(pfn * PAGE, count * PAGE, physical=True)
    except drgn.FaultError as error:
        wrong.append(f"PFN {pfn:#x} and {count - 1} more: {error}")
        return None
