"""Reads which pages a dump holds: the two bitmaps of a kdump-compressed file, or the segments of an ELF file."""

import mmap
import struct

import numpy
from raw import load_segments

FLAT = b"makedumpfile\0"
FLAT_HEADER = 4096


class Dump:
    """A dump in any of the formats. ELF files do not say how large a `page` is."""

    def __init__(self, path, page=4096):
        with open(path, "rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.format = "kdump"
        if data[: len(FLAT)] == FLAT:
            self.format = "flattened"
            data = Records(data)
        if data[:4] == b"\x7fELF":
            self.format = "elf"
            self._elf(data, page)
        else:
            self._kdump(data)

    def _elf(self, data, page):
        segments = load_segments(data)
        pages = max((paddr + memory + page - 1) // page for _, paddr, _, memory in segments)
        self.memory = numpy.zeros(pages, bool)
        self.kept = numpy.zeros(pages, bool)
        for _, paddr, in_file, in_memory in segments:
            self.memory[paddr // page : (paddr + in_memory + page - 1) // page] = True
            self.kept[paddr // page : (paddr + in_file + page - 1) // page] = True

    def _kdump(self, data):
        header = data[:464]
        if header[:8] != b"KDUMP   ":
            raise SystemExit("neither ELF nor kdump-compressed nor flattened")
        block, sub, bitmaps = struct.unpack_from("<iiI", header, 428)
        (pages,) = struct.unpack_from("<Q", data[block + 96 : block + 104], 0)
        start, size = (1 + sub) * block, bitmaps * block
        bits = numpy.frombuffer(data[start : start + size], numpy.uint8)
        half = len(bits) // 2
        unpack = lambda part: numpy.unpackbits(part, bitorder="little").astype(bool)[:pages]
        self.memory = unpack(bits[:half])
        """Pages of memory, in the dump or not (the first bitmap)."""
        self.kept = unpack(bits[half:])
        """Pages in the dump (the second bitmap)."""


class Records:
    """Unflattens the start of a flattened file."""

    LIMIT = 64 << 20

    def __init__(self, data):
        self.out = bytearray(self.LIMIT)
        at = FLAT_HEADER
        while True:
            offset, size = struct.unpack_from(">qq", data, at)
            at += 16
            if offset < 0:
                break
            if offset < self.LIMIT:
                part = data[at : at + min(size, self.LIMIT - offset)]
                self.out[offset : offset + len(part)] = part
            at += size

    def __getitem__(self, where):
        return bytes(self.out[where])
