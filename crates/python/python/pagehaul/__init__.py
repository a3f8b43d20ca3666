"""Reads kernel crash dumps: memory, log, registers, page classes, and the triage report as objects.

>>> import pagehaul
>>> dump = pagehaul.open("dump")
>>> dump.facts().release
'6.12.30-synth'
>>> dump.facts().crash.title
'requested: sysrq triggered crash'
>>> dump.vmcoreinfo["PAGESIZE"]
'4096'

Memory is read by physical or by kernel virtual address:

>>> len(dump.read(0x4A00000, 64, physical=True))
64
>>> start = int(dump.vmcoreinfo["SYMBOL(_stext)"], 16)
>>> dump.read(start, 16, physical=False) == dump.read(dump.translate(start), 16, physical=True)
True
>>> dump.read(1 << 50, 8, physical=True)
Traceback (most recent call last):
pagehaul.NotPresent: physical address 0x4000000000000 is in no memory segment

Tables go to pyarrow, pandas, polars or DuckDB without copying; `rows()` needs none of them:

>>> dump.log()
<pagehaul.Table: 1 rows of seq, time_ns, level, facility, task, cpu, text>
>>> dump.log().rows()[0]["text"]
'Kernel panic - not syncing: sysrq triggered crash'
>>> dump.page_map()[0x4A00]
'slab'
>>> set(dump.page_map()[0x4A00:0x4A10])
{'slab'}

Files are closed with the object, by `close()`, or by `with`:

>>> with pagehaul.open("dump") as other:
...     print(other.crash_id == dump.crash_id)
True
>>> other.crash_id
Traceback (most recent call last):
pagehaul.Closed: dump: the dump is closed; open it again

`open()` takes URLs, too: `https://`, `http://` and `s3://BUCKET/KEY`. It fetches what is read, not the whole dump.

A `Dump` can be used by several threads, and after a fork by parent and child.
"""

from __future__ import annotations

import os
from typing import Union

from ._dump import CpuRegisters, Dump, Note
from ._errors import (
    Closed,
    Damaged,
    Error,
    InvalidAddress,
    KernelError,
    Missing,
    NotInDump,
    NotPresent,
    OpenError,
    ReadError,
    TraceError,
)
from ._native import PAGE_CLASSES, PageMap, Table, __version__

__all__ = [
    "PAGE_CLASSES",
    "Closed",
    "CpuRegisters",
    "Damaged",
    "Dump",
    "Error",
    "InvalidAddress",
    "KernelError",
    "Missing",
    "NotInDump",
    "NotPresent",
    "Note",
    "OpenError",
    "PageMap",
    "ReadError",
    "Table",
    "TraceError",
    "__version__",
    "open",
]


def open(*paths: Union[str, os.PathLike[str]], cache_bytes: int = 16 << 20) -> Dump:
    """Opens a dump or a vmcore of any format, or the parts of a split set in any order: files, or URLs as strings.

    Raises OpenError, which is also a FileNotFoundError, a PermissionError and so on, where the system refuses a file.

    Each thread that reads at the same time as others has a cache of `cache_bytes`.
    """
    return Dump(*paths, cache_bytes=cache_bytes)
