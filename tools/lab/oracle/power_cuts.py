"""Compares dumps after a power cut or a kill, as libkdumpfile (through drgn) reads them, with the raw vmcore.

Usage: power_cuts.py VMCORE DUMP...
A page is right, refused, or wrong. No page may be wrong, and in a dump marked complete no kept page may be refused. Exits
with 1 otherwise.
"""

import sys

import drgn
import numpy
from dumps import Dump
from raw import Raw, sized

STATUS = 424
INCOMPLETE = 8
SAMPLE = 16
"""One of so many excluded pages is read too."""


def inspect(path, raw):
    """Returns (complete, right, refused kept pages, wrong)."""
    with open(path, "rb") as file:
        status = file.read(STATUS + 4)[STATUS:]
    complete = not int.from_bytes(status, "little") & INCOMPLETE
    kept = sized(Dump(path).kept, raw.pages)
    prog = drgn.Program()
    try:
        prog.set_core_dump(path)
    except Exception as error:  # noqa: BLE001: any error means that it does not open
        if complete:
            raise SystemExit(f"{path} is marked complete, but does not open: {error}") from error
        return complete, 0, int(kept.sum()), 0
    asked = kept | (raw.present & (numpy.arange(raw.pages) % SAMPLE == 0))
    right = refused = wrong = 0
    for pfn in numpy.flatnonzero(asked).tolist():
        try:
            page = prog.read(pfn * raw.page, raw.page, physical=True)
        except drgn.FaultError:
            refused += bool(kept[pfn])
            continue
        if page == raw.read(pfn):
            right += 1
        else:
            wrong += 1
    return complete, right, refused, wrong


def main(vmcore, *paths):
    raw = Raw(vmcore)
    bad = False
    for path in paths:
        complete, right, refused, wrong = inspect(path, raw)
        name = path.rsplit("/", 1)[-1]
        said = "complete" if complete else "marked incomplete"
        print(f"{name:24} {said}: libkdumpfile reads {right} pages right, {wrong} wrong, refuses {refused}")
        bad |= wrong > 0 or (complete and refused > 0)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
