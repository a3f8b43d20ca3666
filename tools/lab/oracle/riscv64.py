"""Translates addresses of riscv64 kernels for drgn, which knows no page tables of theirs."""

import re

import drgn
from raw import NOTES

PAGE = 4096
KERNEL = 1 << 63
"""The kernel's half of the address space starts here."""
LEAF = 0b1110
"""Readable, writable or executable: the entry maps a page."""


class Translator:
    """The page tables of a crashed kernel, read from its raw vmcore."""

    def __init__(self, raw):
        self.raw = raw
        number = lambda name: int(self._line(f"NUMBER({name})"), 0)
        self.image = number("KERNEL_LINK_ADDR")
        self.offset = number("va_kernel_pa_offset")
        self.levels = (number("VA_BITS") - 12) // 9
        self.root = self._image(int(self._line("SYMBOL(swapper_pg_dir)"), 16))
        self.pages = {}

    def _line(self, key):
        return re.search(rb"\n" + re.escape(key.encode()) + rb"=(\S+)\n", self.raw.bytes[:NOTES]).group(1).decode()

    def _image(self, address):
        return (address - self.offset) % (1 << 64)

    def physical(self, address):
        """Returns the physical address, or None if nothing is mapped."""
        if address >= self.image:
            return self._image(address)
        table = self.root
        for level in reversed(range(self.levels)):
            shift = 12 + 9 * level
            index = address >> shift & 511
            entry = int.from_bytes(self.raw.read(table // PAGE)[index * 8 : index * 8 + 8], "little")
            table = (entry >> 10 & (1 << 44) - 1) << 12
            if not entry & 1:
                return None
            if entry & LEAF:
                return table | address & (1 << shift) - 1
        return None

    def read(self, address, count, offset, physical):
        """Reads memory for drgn."""
        out = bytearray()
        while count:
            page, inside = divmod(address, PAGE)
            if page not in self.pages:
                self.pages[page] = self.physical(page * PAGE)
            start = self.pages[page]
            if start is None or not self.raw.present[start // PAGE : start // PAGE + 1].any():
                raise drgn.FaultError("not mapped", address)
            size = min(count, PAGE - inside)
            out += self.raw.read(start // PAGE)[inside : inside + size]
            address, count = address + size, count - size
        return bytes(out)


def attach(prog, raw):
    """Makes drgn read the kernel's memory through its page tables."""
    prog.add_memory_segment(KERNEL, KERNEL, Translator(raw).read, False)
