"""Reads the raw vmcore by its ELF program headers alone: the reference for all dumps."""

import mmap
import re
import struct

import numpy

PT_LOAD = 1
EM_RISCV = 243
NOTES = 1 << 20
"""The kernel writes the notes, with VMCOREINFO, to the start of the file."""


class Raw:
    """An ELF64 vmcore as the kernel wrote it."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.segments = without_gaps(load_segments(self.bytes))
        (self.machine,) = struct.unpack_from("<H", self.bytes, 18)
        self.page = page = int(re.search(rb"\nPAGESIZE=(\d+)\n", self.bytes[:NOTES]).group(1))
        """Bytes in a page, the unit of all PFNs."""
        self.pages = max((paddr + size + page - 1) // page for _, paddr, size, _ in self.segments)
        self.present = numpy.zeros(self.pages, bool)
        """Pages that the vmcore holds at least in part."""
        self.whole = numpy.zeros(self.pages, bool)
        """Pages that it holds completely."""
        for _, paddr, size, _ in self.segments:
            if size:
                self.present[paddr // page : (paddr + size + page - 1) // page] = True
                self.whole[(paddr + page - 1) // page : (paddr + size) // page] = True

    def read(self, pfn, count=1):
        """Returns pages `pfn` to `pfn + count`, with zeros for what the vmcore does not hold."""
        first, last = pfn * self.page, (pfn + count) * self.page
        for offset, paddr, size, _ in self.segments:
            if paddr <= first and last <= paddr + size:
                return self.bytes[offset + first - paddr : offset + last - paddr]
        out = bytearray(last - first)
        for offset, paddr, size, _ in self.segments:
            start, end = max(first, paddr), min(last, paddr + size)
            if start < end:
                out[start - first : end - first] = self.bytes[offset + start - paddr : offset + end - paddr]
        return bytes(out)

    def words(self, pfns, index):
        """Returns the 64-bit word at `index` of each page."""
        return numpy.array(
            [int.from_bytes(self.read(int(pfn))[index * 8 : index * 8 + 8], "little") for pfn in pfns], numpy.uint64
        )


def load_segments(data):
    """Returns (offset, physical address, bytes in the file, bytes in memory) of each PT_LOAD."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise SystemExit("not an ELF64 little-endian file")
    (table,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    if count == 0xFFFF:
        # PN_XNUM: the count is in sh_info of the first section header.
        (sections,) = struct.unpack_from("<Q", data, 40)
        (count,) = struct.unpack_from("<I", data, sections + 44)
    out = []
    for at in range(table, table + size * count, size):
        kind, _, offset, _, paddr, in_file, in_memory, _ = struct.unpack_from("<IIQQQQQQ", data, at)
        if kind == PT_LOAD:
            out.append((offset, paddr, in_file, in_memory))
    return out


def without_gaps(segments):
    """Closes gaps inside a page between two segments: /proc/vmcore has whole pages for each."""
    out = []
    for offset, paddr, in_file, in_memory in segments:
        end = paddr + in_file
        after = min((other for _, other, _, _ in segments if other > end), default=end)
        gap = after - end if after >> 12 == end >> 12 else 0
        out.append((offset, paddr, in_file + gap, in_memory + gap))
    return out


def runs(mask):
    """Returns (start, end) of each run of true values."""
    edges = numpy.flatnonzero(numpy.diff(numpy.concatenate(([False], mask, [False])).astype(numpy.int8)))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist()))


def sized(mask, pages):
    """Truncates `mask`, or extends it with false, to `pages`."""
    out = numpy.zeros(pages, bool)
    out[: min(pages, len(mask))] = mask[:pages]
    return out
