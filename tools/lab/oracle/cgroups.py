"""Reads the generations of the LRU and the swap of memory cgroups with drgn and the kernel's debug symbols, for comparison with
`pagehaul pages --owners --json`. Run alone: cgroups.py PAGEHAUL VMCORE VMLINUX."""

import json
import subprocess
import sys
from collections import Counter

import drgn
from drgn import Object, cast, container_of
from drgn.helpers.linux.cgroup import cgroup_path, css_for_each_descendant_pre
from drgn.helpers.linux.cpumask import for_each_possible_cpu
from drgn.helpers.linux.idr import idr_find
from drgn.helpers.linux.percpu import per_cpu_ptr

GENERATIONS, TYPES = 4, 2
LISTS = ["NR_INACTIVE_ANON", "NR_ACTIVE_ANON", "NR_INACTIVE_FILE", "NR_ACTIVE_FILE"]


def groups(prog):
    """Yields all memory cgroups with their paths; nothing without them."""
    root = prog["root_mem_cgroup"]
    if root:
        for css in css_for_each_descendant_pre(root.css.address_of_()):
            yield cgroup_path(css.cgroup).decode(), container_of(css, "struct mem_cgroup", "css")


def lists(prog):
    """Yields the path and the node of each `struct lruvec`, and its `struct mem_cgroup_per_node`, if it has one."""
    nodes = range(prog["nr_node_ids"].value_()) if "nr_node_ids" in prog else [0]
    found = False
    for path, group in groups(prog):
        found = True
        for node in nodes:
            if group.nodeinfo[node]:
                yield path, node, group.nodeinfo[node].lruvec, group.nodeinfo[node]
    if not found:
        for node in nodes:
            data = prog["node_data"][node] if "node_data" in prog else prog["contig_page_data"].address_of_()
            if data:
                yield "/", node, data.member_("__lruvec"), None


def generations(prog):
    """Returns age, anonymous and file pages of each generation by path, node and number, or None if there are none."""
    if not prog.type("struct lruvec").has_member("lrugen"):
        return None
    now, ticks = prog["jiffies_64"].value_(), prog["clocksource_jiffies"]
    # CONFIG_HZ: nanoseconds of a tick are the factor of this clock.
    per_second = round(1e9 * 2 ** ticks.shift.value_() / ticks.mult.value_())
    found, is_on = {}, False
    for path, node, lruvec, _ in lists(prog):
        lrugen = lruvec.lrugen
        if not lrugen.enabled:
            continue
        is_on = True
        newest = lrugen.max_seq.value_()
        for seq in range(max(0, newest - GENERATIONS + 1), newest + 1):
            slot = seq % GENERATIONS
            zones = lrugen.nr_pages[slot]
            pages = [sum(max(0, count.value_()) for count in zones[kind]) for kind in range(TYPES)]
            if sum(pages):
                age = (now - lrugen.timestamps[slot].value_()) * 1000 // per_second
                found[path, node, seq] = (age, *pages)
    return found if is_on else None


def on_lists(prog, per_node):
    """Returns the pages of a cgroup on a node that can be reclaimed, by the counters of all CPUs."""
    stats = per_node.lruvec_stats_percpu
    total = 0
    for name in LISTS:
        item = prog.constant(name).value_()
        # 6.10 has an index of the items that are kept.
        if "mem_cgroup_stats_index" in prog:
            item = prog["mem_cgroup_stats_index"][item].value_()
        total += sum(per_cpu_ptr(stats, cpu).state[item].value_() for cpu in for_each_possible_cpu(prog))
    return total


def swap(prog):
    """Returns the pages in swap of each cgroup with those of its children, by the IDs that swap entries have."""
    ids = next((name for name in ("mem_cgroup_private_ids", "mem_cgroup_ids", "mem_cgroup_idr") if name in prog), None)
    if ids is None or "swap_cgroup_ctrl" not in prog:
        return None
    by_id = Counter()
    for kind in range(prog["nr_swapfiles"].value_()):
        info, control = prog["swap_info"][kind], prog["swap_cgroup_ctrl"][kind]
        if not info or not control.map:
            continue
        for entry in range(info.max.value_()):
            if prog.type("struct swap_cgroup").has_member("ids"):
                word = control.map[entry // 2].ids.counter.value_()
                number = word >> 16 * (entry % 2) & 0xFFFF
            else:
                per_page = 4096 // 2
                address = cast("unsigned long", prog["vmemmap_base"])
                page = control.map[entry // per_page].value_()
                pfn = (page - address.value_()) // prog.type("struct page").size
                at = prog["page_offset_base"].value_() + 4096 * pfn + 2 * (entry % per_page)
                number = Object(prog, "unsigned short", address=at).value_()
            if number:
                by_id[number] += 1
    sums = Counter()
    for number, pages in by_id.items():
        # An xarray since 6.12, before an IDR.
        table = prog[ids]
        group = cast("struct mem_cgroup *", idr_find(table.address_of_(), number) if "idr" in str(table.type_) else xa(table, number))
        css = group.css.address_of_()
        while css:
            sums[cgroup_path(css.cgroup).decode()] += pages
            css = css.parent
    return sums


def xa(table, number):
    from drgn.helpers.linux.xarray import xa_load

    return xa_load(table.address_of_(), number)


def compare(report, prog, row):
    """Compares by `row(what, same, total)`."""
    expected = generations(prog)
    ours = report.get("generations")
    row("generations: on or off", int((expected is None) == (ours is None)), 1)
    if expected is not None and ours is not None:
        found = {}
        for each in ours["largest"]:
            for one in each["generations"]:
                if one["anonymous"] + one["file"]:
                    found[each["path"], each["node"], one["seq"]] = (one.get("age_ms"), one["anonymous"], one["file"])
        print(f"     generations: {len(found)} with pages, drgn {len(expected)}")
        for key in sorted(set(found) | set(expected)):
            if found.get(key) != expected.get(key):
                print(f"     generations: {key}: {found.get(key)}, drgn {expected.get(key)}")
        row("generations: age and pages", sum(found.get(key) == value for key, value in expected.items()), len(expected | found))
        sums = Counter()
        for (path, node, _), (_, *pages) in found.items():
            sums[path, node] += sum(pages)
        counted = {(path, node): on_lists(prog, of) for path, node, _, of in lists(prog) if of}
        for key, pages in counted.items():
            print(f"     generations: {key[0]} on node {key[1]}: {sums[key]} pages, the cgroup's counters {pages}")
        row("generations: counters of cgroups", sum(sums[key] == pages for key, pages in counted.items()), len(counted))
        ages = [sum(age[kind] for age in ours["ages"]) for kind in ("anonymous", "file")]
        row("generations: sums of all ages", int(ages == [sum(each[at] for each in expected.values()) for at in (1, 2)]), 1)
    swapped = swap(prog)
    listed = report["cgroups"]["largest"]
    if swapped is None:
        # Entries have their IDs elsewhere: the counter, of memory and swap in version 1.
        swapped = Counter()
        for path, group in groups(prog):
            is_old = group.css.cgroup.root != prog["cgrp_dfl_root"].address_of_()
            swapped[path] = group.swap.usage.counter.value_() - (group.memory.usage.counter.value_() if is_old else 0)
    if len(listed) > 1:
        for each in listed:
            print(f"     swap: {each['path']}: {each.get('swap', 0)} pages, drgn {swapped[each['path']]}")
        row("swap of cgroups", sum(each.get("swap", 0) == swapped[each["path"]] for each in listed), len(listed))


def main():
    pagehaul, vmcore, vmlinux = sys.argv[1:]
    done = subprocess.run([pagehaul, "pages", "--owners", "--json", vmcore], capture_output=True, check=True)
    prog = drgn.Program()
    prog.set_core_dump(vmcore)
    prog.load_debug_info([vmlinux])
    failed = []

    def row(what, same, total):
        print(f"{'ok  ' if same == total else 'FAIL'} {what}: {same} of {total} equal")
        failed.extend([what] if same != total else [])

    compare(json.loads(done.stdout), prog, row)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
