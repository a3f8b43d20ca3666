"""Validates `pagehaul pages --owners` on a crash by the scenario `owners`: what the guest took (tools/lab-guest/src/owned.rs), its
/proc/meminfo just before the crash, the report's own checks, drgn's count of the same pages, and the same report of a filtered dump."""

import json
import os
import subprocess
import sys
import tempfile

import balance
import cgroups
import drgn

MIB = 1 << 20
# Row, a part of the owner's name, MiB or lowest and highest MiB; None: the row has at least so much, next to what fills the guest's memory.
TRUTHS = [
    ("shmem", "/scene/kept", 20),
    ("shmem", "/scene/deleted", 12),
    # Until 6.1 with the rest of the last huge page.
    ("shmem", "SYSV0005ce0e", (7, 8)),
    ("shmem", "dev/zero", (5, 6)),
    ("vmalloc", "BPF map scene_map/", 6),
    ("anonymous", None, 16),
    # A sub-buffer has 16 bytes besides its data, and the reader has one more.
    ("ring_buffers", "tracefs", 54),
    ("ring_buffers", "tracefs instances/scene", 4),
    # Of each packet of 46 KiB the kernel takes 30 KiB or more in pages.
    ("sockets", "scene-holder", (12 * 30 / 46, 12)),
    # Two blocks; in whole powers of two until 6.9.
    ("io_uring", "scene-holder", (3, 4)),
    ("zsmalloc", "zram0", 6),
]
# Besides, what a module leaked, where there is one. Stale pointers to some of its pages lead to guesses.
LEAKS = [("vmalloc", "scene_leak", 3), ("slab", "4k", (4, 8)), ("no_owner", "single pages", (7.5, 14))]
# Pages of 16 per pipe and 32 per process.
PAGES = [("pipes", 24 * 16), ("page_tables", 24 * 32)]
# /proc/meminfo, the rows it counts, and by how many KiB they may differ: the kernel ran on until the crash, and
# its counters lack what CPUs have not added.
COUNTERS = [
    ("MemFree", ["free"], 4096),
    ("Shmem", ["shmem"], 64),
    ("PageTables", ["page_tables"], 1024),
    ("AnonPages", ["anonymous"], 1024),
    ("Slab", ["slab", "large_kmalloc"], 1024),
]
FAILED = []


def check(good, text):
    print(f"{'ok  ' if good else 'FAIL'} {text}")
    if not good:
        FAILED.append(text)


def owners(pagehaul, dump):
    """Returns the report."""
    done = subprocess.run([pagehaul, "pages", "--owners", "--json", dump], capture_output=True, check=True)
    return json.loads(done.stdout)


def steps(console, start):
    """Returns what the guest said, of lines that start so."""
    with open(console, errors="replace") as lines:
        return [line.partition(start)[2].strip() for line in lines if start in line]


def truths(report, console):
    """Compares owners with what the guest took: no less, and at most a few pages more."""
    page = report["page_size"]
    rows = {row["kind"]: row for row in report["rows"]}
    leaked = LEAKS if steps(console, " leaked by a module") else []
    # With the rest of its huge page, which has 32 MiB in pages of 16 KiB.
    memfd = ("shmem", "memfd:scene-memfd", (10, max(10, page * page / 8 / MIB)))
    by_pages = [(kind, None, pages * page / MIB) for kind, pages in PAGES]
    for kind, name, mib in TRUTHS + [memfd] + leaked + by_pages:
        row = rows.get(kind, {"pages": 0, "owners": []})
        pages = row["pages"] if name is None else sum(o["pages"] for o in row["owners"] if name in o["name"])
        least, most = [number * MIB / page for number in (mib if isinstance(mib, tuple) else (mib, mib))]
        most = most * 1.02 + 64 if name else row["pages"]
        check(least <= pages <= most, f"{kind} {name or ''}: {pages} pages, the guest took {least:.0f}")
    if steps(console, " ran a guest of KVM"):
        # A root of four or five levels, and tables that lead to a page below 64 KiB and one below 4 GiB. An identity has the counter.
        owners = rows.get("kvm_tables", {"owners": []})["owners"]
        check([owner["name"].split("/")[0] for owner in owners] == ["scene-holder"] and owners[0]["pages"] in (6, 7),
              f"page tables of KVM: {[(owner['name'], owner['pages']) for owner in owners]}")
    # What zram itself says.
    (compressed,) = steps(console, " zram ")
    pages = rows.get("zsmalloc", {"pages": 0})["pages"]
    check(pages * page == int(compressed), f"zsmalloc: {pages} pages, zram says {int(compressed) // page}")
    deleted = [o for o in rows["shmem"]["owners"] if "/scene/deleted" in o["name"]]
    held = bool(deleted) and deleted[0]["deleted"] and any("scene-holder" in name for name in deleted[0]["held_by"])
    check(held, "the deleted file is held by scene-holder")


def meminfo(report, console):
    """Compares rows with /proc/meminfo."""
    counted = {}
    for line in steps(console, " meminfo "):
        name, _, value = line.partition(":")
        counted[name] = int(value.split()[0])
    rows = {row["kind"]: row["pages"] * report["page_size"] // 1024 for row in report["rows"]}
    for name, kinds, most in COUNTERS:
        ours = sum(rows.get(kind, 0) for kind in kinds)
        check(abs(ours - counted[name]) <= most, f"{name}: {counted[name]} KiB before the crash, rows {ours} KiB")


def identities(report):
    """Every row equals the kernel's counters."""
    for identity in report["identities"]:
        check(identity["pages"] == identity["counted"],
              f"{identity['what']}: {identity['pages']} pages, {identity['counter']} {identity['counted']}")


def main():
    pagehaul, vmcore, console, *vmlinux = sys.argv[1:]
    report = owners(pagehaul, vmcore)
    identities(report)
    truths(report, console)
    meminfo(report, console)
    if vmlinux:
        prog = drgn.Program()
        prog.set_core_dump(vmcore)
        prog.load_debug_info(vmlinux)
        row = lambda what, same, total: check(same == total, f"{what}: {same} of {total} equal")
        balance.compare(report, prog, row)
        cgroups.compare(report, prog, row)
    unknown = sum(row["pages"] for row in report["rows"] if row["kind"] == "no_owner")
    print(f"     no owner known: {unknown} of {report['managed']} pages, {100 * unknown / report['managed']:.2f} %")
    with tempfile.TemporaryDirectory() as directory:
        dump = os.path.join(directory, "dump")
        subprocess.run([pagehaul, "convert", "-q", "-d", "31", vmcore, dump], check=True, capture_output=True)
        check(owners(pagehaul, dump) == report, "the report at level 31 is the same")
    sys.exit(1 if FAILED else 0)


main()
