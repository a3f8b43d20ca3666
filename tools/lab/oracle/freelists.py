"""Finds free pages in the buddy allocator's lists, independently of marks in struct page."""

import numpy
from drgn.helpers.linux.list import list_for_each_entry
from drgn.helpers.linux.mmzone import for_each_online_pgdat


def free_pages(prog, pages):
    """Returns which pages are in a block on any zone's free lists."""
    out = numpy.zeros(len(pages.flags), bool)
    for node in for_each_online_pgdat(prog):
        for zone in node.node_zones:
            # The lists of a zone without memory are uninitialized.
            if not zone.present_pages:
                continue
            for order, area in enumerate(zone.free_area):
                for head in area.free_list:
                    for page in list_for_each_entry("struct page", head.address_of_(), "lru"):
                        pfn = (page.value_() - pages.base) // pages.size
                        out[pfn : pfn + (1 << order)] = True
    return out
