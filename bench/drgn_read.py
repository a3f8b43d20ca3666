"""Compares drgn that reads a dump through pagehaul with drgn that reads it through libkdumpfile: answers, and CPU time.

Usage: drgn_read.py DUMP [VMLINUX] [--modules DIRECTORY] [--rounds N] [--json FILE]

Needs a Python with drgn and the pagehaul package (scripts/wheel.sh). Both read in turn in one process, each round with new programs,
whose caches are empty."""

import argparse
import gc
import json
import pathlib
import random
import statistics
import time

import drgn
import pagehaul
import pagehaul.drgn
from drgn.helpers.linux.module import for_each_module
from drgn.helpers.linux.pid import for_each_task
from drgn.helpers.linux.printk import get_dmesg
from drgn.helpers.linux.slab import for_each_slab_cache, slab_cache_for_each_allocated_object

PAGE = 4096
READ = 64
"""Bytes of a read."""
WARM = (20, 200, 2000)
"""Pages that are read again and again."""
WARM_READS = 20000


def through_libkdumpfile(dump):
    prog = drgn.Program()
    prog.set_core_dump(dump)
    return prog


def through_pagehaul(dump):
    return pagehaul.drgn.program(dump)


PROGRAMS = {"libkdumpfile": through_libkdumpfile, "pagehaul": through_pagehaul}


def stack(prog, task):
    """Returns the frames of a task's stack, or why there is none."""
    try:
        return [(frame.name, frame.pc, frame.sp) for frame in prog.stack_trace(task)]
    except (ValueError, LookupError, drgn.FaultError) as why:
        return type(why).__name__


def tasks(prog):
    return [(task.pid.value_(), task.comm.string_(), stack(prog, task)) for task in for_each_task(prog)]


def slab_objects(prog):
    """Returns the addresses of all allocated objects of each cache that can be walked."""
    found = {}
    for cache in for_each_slab_cache(prog):
        name = cache.name.string_().decode()
        try:
            found[name] = sorted(each.value_() for each in slab_cache_for_each_allocated_object(cache, "void"))
        except (drgn.FaultError, ValueError, LookupError) as why:
            found[name] = type(why).__name__
    return found


ANSWERS = {
    "crashed task": lambda prog: prog.crashed_thread().object.pid.value_(),
    "its stack": lambda prog: str(prog.crashed_thread().stack_trace()),
    "tasks with stacks": tasks,
    "modules": lambda prog: [(module.name.string_(), module.value_()) for module in for_each_module(prog)],
    "log": get_dmesg,
    "slab objects": slab_objects,
    "slab objects again": slab_objects,
}
"""What must be the same."""


def answers(prog, times):
    """Returns all answers, and adds the seconds of CPU that each takes to `times`."""
    said = {}
    for name, answer in ANSWERS.items():
        start = time.process_time()
        said[name] = answer(prog)
        times.setdefault(name, []).append(time.process_time() - start)
    return said


def readable_pages(dump):
    """Returns the PFNs that the dump holds."""
    found = []
    opened = pagehaul.open(dump)
    for start, end in opened.ranges:
        for pfn in range(start // PAGE, end // PAGE):
            try:
                opened.read(pfn * PAGE, 1, physical=True)
                found.append(pfn)
            except pagehaul.ReadError:
                pass
    return found


def timed(prog, addresses):
    """Returns the microseconds of CPU of a read."""
    gc.collect()
    start = time.process_time()
    for address in addresses:
        prog.read(address, READ, True)
    return (time.process_time() - start) * 1e6 / len(addresses)


def reads(prog, pages):
    """Yields the name and the time of each kind of reads."""
    numbers = random.Random(1)
    address = lambda pfn: pfn * PAGE + numbers.randrange(PAGE - READ)
    shuffled = pages[:]
    numbers.shuffle(shuffled)
    yield f"cold, {len(pages):,} pages at random, each once", timed(prog, [address(pfn) for pfn in shuffled])
    for count in WARM:
        some = shuffled[:count]
        timed(prog, [address(pfn) for pfn in some])
        yield f"warm, {count:,} pages", timed(prog, [address(numbers.choice(some)) for _ in range(WARM_READS)])


def compare(arguments):
    """Compares all answers. Returns what each took in seconds of CPU, by program, and which differ."""
    files = [arguments.vmlinux, *map(str, sorted(arguments.modules.rglob("*.ko*")) if arguments.modules else [])]
    said, walks = {}, {}
    for name, opened in PROGRAMS.items():
        prog = opened(arguments.dump)
        prog.load_debug_info(files)
        said[name] = answers(prog, walks.setdefault(name, {}))
    one, other = said.values()
    different = [key for key in one if one[key] != other[key]]
    frames = sum(len(found) for _, _, found in one["tasks with stacks"] if isinstance(found, list))
    objects = sum(len(found) for found in one["slab objects"].values() if isinstance(found, list))
    print(f"{arguments.dump}: {len(one['tasks with stacks'])} tasks with {frames} frames, {objects} slab objects, "
          f"{'the same' if not different else 'DIFFERENT: ' + ', '.join(different)}")
    return walks, different


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dump")
    parser.add_argument("vmlinux", nargs="?", help="debug symbols, without which only reads are timed")
    parser.add_argument("--modules", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    walks, different = {}, []
    if arguments.vmlinux:
        walks, different = compare(arguments)

    pages = readable_pages(arguments.dump)
    times = {}
    for _ in range(arguments.rounds):
        for name, opened in PROGRAMS.items():
            for kind, found in reads(opened(arguments.dump), pages):
                times.setdefault(kind, {}).setdefault(name, []).append(found)
    for name in ("tasks with stacks", "slab objects", "slab objects again") if walks else ():
        times[f"{name}, seconds"] = {program: found[name] for program, found in walks.items()}
    for kind, found in times.items():
        theirs, ours = (statistics.median(found[name]) for name in PROGRAMS)
        print(f"{kind:48} libkdumpfile {theirs:8.2f}  pagehaul {ours:8.2f}  {theirs / ours:5.2f}x")
    if arguments.json:
        arguments.json.write_text(json.dumps({"dump": arguments.dump, "different": different, "times": times}, indent=1))
    return 1 if different else 0


raise SystemExit(main())
