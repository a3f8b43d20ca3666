"""Finds free pages on the per-CPU lists of all zones, with the kernel's debug symbols."""

from drgn.helpers.linux.cpumask import for_each_possible_cpu
from drgn.helpers.linux.list import list_for_each_entry
from drgn.helpers.linux.mm import page_to_pfn
from drgn.helpers.linux.mmzone import for_each_online_pgdat
from drgn.helpers.linux.percpu import per_cpu_ptr

# HPAGE_PMD_ORDER on x86_64: the lists behind those of PAGE_ALLOC_COSTLY_ORDER.
HUGE = 9
COSTLY = 3


def per_cpu_pages(prog):
    """Returns the PFNs of all pages on these lists."""
    found = set()
    types = prog.constant("MIGRATE_PCPTYPES").value_()
    link = "pcp_list" if prog.type("struct page").has_member("pcp_list") else "lru"
    for node in for_each_online_pgdat(prog):
        for zone in node.node_zones:
            if not zone.present_pages:
                continue
            for cpu in for_each_possible_cpu(prog):
                lists = (per_cpu_ptr(zone.per_cpu_pageset, cpu) if zone.type_.has_member("per_cpu_pageset")
                         else per_cpu_ptr(zone.pageset, cpu).pcp)
                for index, head in enumerate(lists.lists):
                    order = index // types if index < types * (COSTLY + 1) else HUGE
                    for page in list_for_each_entry("struct page", head.address_of_(), link):
                        pfn = page_to_pfn(page).value_()
                        found.update(range(pfn, pfn + (1 << order)))
    return found
