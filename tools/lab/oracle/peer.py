"""makedumpfile's choice of pages against pagehaul's, every difference with its reason."""

import collections

import numpy
from classify import NUMBER

REASONS = {
    ("kept", "hugetlb-copy"): "makedumpfile takes the copies of optimised HugeTLB struct pages for heads of their own",
    ("kept", "offline"): "makedumpfile looks at struct pages at this level only where the kernel exports PG_hwpoison",
    ("dropped", "part"): "makedumpfile drops the last page of a segment that ends within it; readers may ask for it",
    ("dropped", "tail"): "makedumpfile before 1.7.9 (f50c015) does not know compound_info, 7.1's name for compound_head, "
    "and takes tails for pages of their own",
    ("dropped", "poison-neighbour"): "makedumpfile drops the whole compound page of a poisoned page",
}


def compare(level, ours, theirs, classes, oracle, raw):
    """(direction, reason or None, class) -> pages; direction is what makedumpfile did with them."""
    out = collections.Counter()
    example = {}
    names = list(NUMBER)
    for direction, mask in (("kept", theirs & ~ours), ("dropped", ours & ~theirs)):
        for pfn in numpy.flatnonzero(mask).tolist():
            name = names[classes[pfn]]
            key = (direction, reason(level, direction, pfn, name, classes, oracle, raw), name)
            out[key] += 1
            example.setdefault(key, pfn)
    return out, example


def reason(level, direction, pfn, name, classes, oracle, raw):
    """Which of the reasons makes makedumpfile keep or drop this page unlike pagehaul."""
    head = oracle["heads"][pfn]
    if direction == "kept":
        if name == "hugetlb" and oracle["copies"][head : pfn + 1].any():
            return "hugetlb-copy"
        # Levels 0 and 1 ask for no class of struct pages.
        return name if name == "offline" and level <= 1 and not oracle["exports_poison"] else None
    if not raw.whole[pfn]:
        return "part"
    if oracle["renamed"] and head != pfn:
        return "tail"
    compound = oracle["heads"] == head
    if compound.sum() > 1 and (classes[compound] == NUMBER["hwpoison"]).any():
        return "poison-neighbour"
    return None
