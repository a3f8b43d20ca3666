"""Compares makedumpfile's choice of pages with pagehaul's, with a reason for every difference."""

import collections

import numpy
from classify import NUMBER

REASONS = {
    ("kept", "hugetlb-copy"): "makedumpfile treats copies of optimised HugeTLB struct pages as heads",
    ("kept", "offline"): "makedumpfile reads struct pages at this level only if the kernel exports PG_hwpoison",
    ("excluded", "part"): "makedumpfile excludes the last page of a segment that ends within it; readers may need it",
    ("excluded", "tail"): "makedumpfile before 1.7.9 (f50c015) does not know compound_info, 7.1's name for compound_head, "
    "and treats tails as single pages",
    ("excluded", "poison-neighbour"): "makedumpfile excludes the whole compound page of a poisoned page",
}


def compare(level, ours, theirs, classes, oracle, raw):
    """Returns {(direction, reason or None, class): pages}. The direction is what makedumpfile does with the pages."""
    out = collections.Counter()
    example = {}
    names = list(NUMBER)
    for direction, mask in (("kept", theirs & ~ours), ("excluded", ours & ~theirs)):
        for pfn in numpy.flatnonzero(mask).tolist():
            name = names[classes[pfn]]
            key = (direction, reason(level, direction, pfn, name, classes, oracle, raw), name)
            out[key] += 1
            example.setdefault(key, pfn)
    return out, example


def reason(level, direction, pfn, name, classes, oracle, raw):
    """Returns the reason for which makedumpfile treats this page differently."""
    head = oracle["heads"][pfn]
    if direction == "kept":
        if name == "hugetlb" and oracle["copies"][head : pfn + 1].any():
            return "hugetlb-copy"
        # Levels 0 and 1 exclude no page class.
        return name if name == "offline" and level <= 1 and not oracle["exports_poison"] else None
    if not raw.whole[pfn]:
        return "part"
    if oracle["renamed"] and head != pfn:
        return "tail"
    compound = oracle["heads"] == head
    if compound.sum() > 1 and (classes[compound] == NUMBER["hwpoison"]).any():
        return "poison-neighbour"
    return None
