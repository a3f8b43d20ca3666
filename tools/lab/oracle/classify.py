"""Classifies every page with the kernel's debug symbols, independently of pagehaul.

Usage: classify.py VMCORE VMLINUX OUT.npz. Shares neither code nor the source of offsets with pagehaul, and follows compound
pages from their tails instead of by their order.
"""

import json
import sys

import drgn
import numpy
import riscv64
from freelists import free_pages
from raw import EM_RISCV, Raw
from structpages import StructPages

CLASSES = [
    "no-struct-page",
    "kernel",
    "typed",
    "slab",
    "cache",
    "cache-private",
    "anon",
    "hugetlb",
    "free",
    "unaccepted",
    "hwpoison",
    "offline",
    "cache-unlisted",
]
NUMBER = {name: number for number, name in enumerate(CLASSES)}
# Types before enum pagetype (6.12) are macros, which debug symbols lack: bits cleared in a word of ones, as include/linux/
# page-flags.h has had them since 6e292b9be7f4 (4.18).
OLD_TYPES = {"buddy": 0x80, "offline": 0x100}


def excluded(level):
    """Returns which classes a dump level excludes, by number."""
    out = numpy.zeros(len(CLASSES), bool)
    bits = {
        "cache": 2 | 4,
        "cache-private": 4,
        "anon": 8,
        "hugetlb": 8,
        "free": 16,
        "unaccepted": 16,
        "hwpoison": 32,
        "offline": 32,
    }
    for name, mask in bits.items():
        out[NUMBER[name]] = (level | 32) & mask != 0
    return out


def is_type(prog, pages, name):
    """Returns which pages have this page type."""
    try:
        values = {e.name: e.value for e in prog.type("enum pagetype").enumerators}
    except LookupError:
        if name not in OLD_TYPES:
            return numpy.zeros(len(pages.flags), bool)
        word = pages.mapcount.view(numpy.uint32)
        return word & (0xF0000000 | OLD_TYPES[name]) == 0xF0000000
    value = values.get("PGTY_" + name, 0x100)
    return pages.mapcount.view(numpy.uint32) >> 24 == value


def classify(prog, pages):
    """Returns the class of each page, the head of its compound page, and counts of contradictions."""
    flag_bits = {e.name: e.value for e in prog.type("enum pageflags").enumerators}

    def flag(name):
        if name not in flag_bits:
            return numpy.zeros(len(pages.flags), bool)
        return pages.flags >> flag_bits[name] & 1 == 1

    heads = pages.heads(flag_bits["PG_head"])
    slab = flag("PG_slab") if "PG_slab" in flag_bits else is_type(prog, pages, "slab")
    typed = ~slab & (pages.mapcount < -1)
    plain = ~slab & ~typed
    anon = plain & (pages.mapping & 1 == 1)
    listed = flag("PG_lru") | flag("PG_swapbacked") & flag("PG_swapcache")
    cache = plain & ~anon & listed
    file = plain & ~anon & ~listed & (pages.mapping >> 52 == 0xFFF) & (pages.mapping & 3 == 0) & (pages.refcount > 0)

    own = numpy.full(len(pages.flags), NUMBER["kernel"], numpy.uint8)
    own[typed] = NUMBER["typed"]
    own[slab] = NUMBER["slab"]
    own[file] = NUMBER["cache-unlisted"]
    own[cache] = NUMBER["cache"]
    own[cache & flag("PG_private")] = NUMBER["cache-private"]
    own[anon] = NUMBER["anon"]
    own[is_type(prog, pages, "offline") & ~slab] = NUMBER["offline"]
    own[is_type(prog, pages, "unaccepted") & ~slab] = NUMBER["unaccepted"]
    own[hugetlb(prog, pages) & ~slab] = NUMBER["hugetlb"]
    out = own[heads]
    # Free blocks are not compound pages: the free lists hold their starts and lengths.
    listed_free = free_pages(prog, pages)
    out[listed_free] = NUMBER["free"]
    poison = flag("PG_hwpoison")
    # The head of a hugetlb page lists its poisoned pages, so its flag stands for all (161df60e9e89, 6.0).
    out[poison & ~pages.copies | poison[heads] & (out == NUMBER["hugetlb"])] = NUMBER["hwpoison"]
    out[~pages.there] = NUMBER["no-struct-page"]
    marked = marked_free(prog, pages, is_type(prog, pages, "buddy") & ~slab)
    return out, heads, {
        "free by lists, not by type": int((listed_free & ~marked).sum()),
        "free by type, not by lists": int((marked & ~listed_free).sum()),
        "tails without a head": int(pages.stray.sum()),
    }


def hugetlb(prog, pages):
    """Returns heads of hugetlb pages: until 6.2 by the destructor in the first tail, since 6.9 by page type."""
    if pages.dtor is None:
        return is_type(prog, pages, "hugetlb")
    ids = {e.name: e.value for e in prog.type("enum compound_dtor_id").enumerators}
    tail_after = numpy.append(pages.compound[1:] & 1 == 1, False)
    head = (pages.flags >> prog.constant("PG_head").value_() & 1 == 1) & tail_after
    return head & (numpy.append(pages.dtor[1:], numpy.uint8(0)) == ids["HUGETLB_PAGE_DTOR"])


def marked_free(prog, pages, buddy):
    """Returns the pages in blocks that the buddy page type marks."""
    out = numpy.zeros(len(buddy), bool)
    for pfn in numpy.flatnonzero(buddy):
        out[pfn : pfn + (1 << int(pages.private[pfn]))] = True
    return out


def main(vmcore, vmlinux, out):
    prog = drgn.Program()
    prog.set_core_dump(vmcore)
    raw = Raw(vmcore)
    if raw.machine == EM_RISCV:
        riscv64.attach(prog, raw)
    prog.load_debug_info([vmlinux])
    pages = StructPages(prog, raw)
    classes, heads, notes = classify(prog, pages)
    flag_bits = {e.name: e.value for e in prog.type("enum pageflags").enumerators}
    numpy.savez(
        out,
        classes=classes,
        heads=heads,
        flags=pages.flags,
        mapcount=pages.mapcount,
        copies=pages.copies,
        there=pages.there,
        # Bits of the page flags, to explain differences.
        flag_names=numpy.array(list(flag_bits)),
        flag_bits=numpy.array(list(flag_bits.values())),
    )
    present = {
        name: int((classes[raw.present] == number).sum()) for number, name in enumerate(CLASSES)
    }
    print(json.dumps({"ok": not any(notes.values()), "pages": present, **notes}))


if __name__ == "__main__":
    main(*sys.argv[1:])
