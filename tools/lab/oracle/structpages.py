"""Reads the struct pages of a crashed kernel as columns of numbers, with the kernel's debug symbols.

Independent of VMCOREINFO's offsets and of pagehaul: offsets come from DWARF, the array's address from drgn.
"""

import drgn
import numpy

BATCH = 1 << 15
"""Pages whose struct pages are read at once: a memory section of most machines."""


class StructPages:
    """Columns indexed by PFN. `there` is true for pages that have a struct page."""

    def __init__(self, prog, raw):
        pages = raw.pages
        page = prog.type("struct page")
        self.size = page.size
        self.base = prog["vmemmap"].value_()
        """Address of the struct page of PFN 0."""
        self.page = prog["PAGE_SIZE"].value_()
        self.there = numpy.zeros(pages, bool)
        table = numpy.zeros((pages, self.size), numpy.uint8)
        # Below RAM, which starts at 1 GiB on arm64, the array is not mapped, but other memory may be.
        for first in range(int(raw.present.argmax()) // BATCH * BATCH, pages, BATCH):
            self._read(prog, table, first, min(first + BATCH, pages))
        word = lambda at, kind: numpy.ascontiguousarray(table[:, at : at + numpy.dtype(kind).itemsize]).view(kind)[:, 0]
        at = lambda *names: member(prog, *names)
        self.flags = word(at("flags"), "<u8")
        self.mapping = word(at("mapping"), "<u8")
        self.private = word(at("private"), "<u8")
        self.mapcount = word(at("_mapcount"), "<i4")
        self.refcount = word(at("_refcount"), "<i4")
        self.compound = word(at("compound_head", "compound_info"), "<u8")
        try:
            self.dtor = word(at("compound_dtor"), "u1")
            """Of the first tail, until 6.2 (in struct page)."""
        except LookupError:
            self.dtor = None

    def _read(self, prog, table, first, end):
        """Reads one batch, page by page if parts of it are missing."""
        try:
            self._store(table, first, prog.read(self.base + first * self.size, (end - first) * self.size))
            return
        except drgn.FaultError:
            pass
        step = self.page // self.size
        for pfn in range(first, end, step):
            count = min(step, end - pfn)
            try:
                self._store(table, pfn, prog.read(self.base + pfn * self.size, count * self.size))
            except drgn.FaultError:
                pass

    def _store(self, table, first, data):
        rows = numpy.frombuffer(data, numpy.uint8).reshape(-1, self.size)
        table[first : first + len(rows)] = rows
        self.there[first : first + len(rows)] = True

    def heads(self, head_flag):
        """Returns the head of each page's compound page: the page itself unless it is a tail."""
        pfns = numpy.arange(len(self.flags), dtype=numpy.int64)
        tail = self.there & (self.compound & 1 == 1)
        # HugeTLB's vmemmap optimisation (5.14; one page kept since 5.18) maps the head's page of struct pages again for
        # the tails. Such a copy starts a page, has PG_head, and the next struct page names the real head.
        next_word = numpy.append(self.compound[1:], numpy.uint64(0))
        copies = self.there & ~tail & (self.flags >> head_flag & 1 == 1) & (pfns * self.size % self.page == 0)
        copies &= next_word & 1 == 1
        word = numpy.where(copies, next_word, self.compound)
        named = tail | copies
        address = numpy.uint64(self.base) + pfns.astype(numpy.uint64) * numpy.uint64(self.size)
        # Since 7.1 (d50569612c29) the word is a mask for the struct page's own address where struct page is a power of two
        # in size; a mask has its top 32 bits set, which no address in the vmemmap has.
        masks = word >> 32 == 0xFFFFFFFF
        # A copied word would mask the address of the copy's neighbour: masks came with the end of copies.
        target = numpy.where(masks, address & word, word) & ~numpy.uint64(1)
        index = ((target - numpy.uint64(self.base)) // numpy.uint64(self.size)).astype(numpy.int64)
        heads = numpy.where(named, index, pfns)
        wrong = (heads < 0) | (heads >= len(pfns)) | (heads > pfns)
        heads[wrong] = pfns[wrong]
        self.copies = copies & (heads != pfns)
        """Tails that look like heads."""
        self.stray = wrong
        """Tails with an invalid head."""
        return heads


def member(prog, *names):
    """Returns the byte offset in struct page of the first of these members that exists."""
    for name in names:
        try:
            return drgn.offsetof(prog.type("struct page"), name)
        except LookupError:
            continue
    raise LookupError(f"struct page has none of {names}")
