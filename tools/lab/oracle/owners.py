"""Validates `pagehaul pages --owners` on a crash by the scenario `owners`: what the guest took (tools/lab-guest/src/owned.rs), its
/proc/meminfo just before the crash, the report's own checks, and the same report of a filtered dump."""

import json
import os
import subprocess
import sys
import tempfile

MIB = 1 << 20
# Row, a part of the owner's name, MiB; None: the row has at least so much, next to what fills the guest's memory.
TRUTHS = [
    ("shmem", "/scene/kept", 20),
    ("shmem", "/scene/deleted", 12),
    ("shmem", "memfd:scene-memfd", 10),
    ("shmem", "SYSV0005ce0e", 7),
    ("shmem", "dev/zero", 5),
    ("vmalloc", "map_", 6),
    ("pipes", None, 24 * 16 / 256),
    ("page_tables", None, 24 * 32 / 256),
    ("anonymous", None, 16),
]
# /proc/meminfo, the rows it counts, and by how many KiB they may differ: the kernel ran on until the crash, and
# its counters lack what CPUs have not added.
COUNTERS = [
    ("MemFree", ["free", "per_cpu_lists"], 4096),
    ("Shmem", ["shmem"], 64),
    ("PageTables", ["page_tables"], 512),
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


def truths(report):
    """Compares owners with what the guest took: no less, and at most a few pages more."""
    page = report["page_size"]
    rows = {row["kind"]: row for row in report["rows"]}
    for kind, name, mib in TRUTHS:
        row = rows.get(kind, {"pages": 0, "owners": []})
        pages = row["pages"] if name is None else sum(o["pages"] for o in row["owners"] if name in o["name"])
        expected = mib * MIB / page
        most = expected * 1.02 + 64 if name else row["pages"]
        check(expected <= pages <= most, f"{kind} {name or ''}: {pages} pages, the guest took {expected:.0f}")
    deleted = [o for o in rows["shmem"]["owners"] if "/scene/deleted" in o["name"]]
    held = bool(deleted) and deleted[0]["deleted"] and any("scene-holder" in name for name in deleted[0]["held_by"])
    check(held, "the deleted file is held by scene-holder")


def meminfo(report, console):
    """Compares rows with /proc/meminfo."""
    counted = {}
    with open(console, errors="replace") as lines:
        for line in lines:
            if " meminfo " in line:
                name, _, value = line.partition(" meminfo ")[2].partition(":")
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
    pagehaul, vmcore, console = sys.argv[1:]
    report = owners(pagehaul, vmcore)
    identities(report)
    truths(report)
    meminfo(report, console)
    unknown = sum(row["pages"] for row in report["rows"] if row["kind"] == "no_owner")
    print(f"     no owner known: {unknown} of {report['managed']} pages, {100 * unknown / report['managed']:.2f} %")
    with tempfile.TemporaryDirectory() as directory:
        dump = os.path.join(directory, "dump")
        subprocess.run([pagehaul, "convert", "-q", "-d", "31", vmcore, dump], check=True, capture_output=True)
        check(owners(pagehaul, dump) == report, "the report at level 31 is the same")
    sys.exit(1 if FAILED else 0)


main()
