"""Validates `pagehaul triage`: compares its facts with drgn's, which reads debug symbols, on the raw vmcore; its report of a
filtered dump with that of the vmcore; and its behaviour on incomplete and damaged dumps."""

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time

import drgn
import numpy
import on_request
import riscv64
from dumps import Dump
from drgn.helpers.linux.cpumask import for_each_online_cpu, for_each_possible_cpu
from drgn.helpers.linux.list import hlist_for_each_entry, list_for_each_entry
from drgn.helpers.linux.mm import for_each_vma, for_each_vmap_area
from drgn.helpers.linux.module import for_each_module
from drgn.helpers.linux.net import for_each_net
from drgn.helpers.linux.percpu import per_cpu, per_cpu_ptr
from drgn.helpers.linux.pid import for_each_task
from drgn.helpers.linux.rbtree import rbtree_inorder_for_each_entry
from drgn.helpers.linux.sched import task_state_to_char
from percpulists import per_cpu_pages
from raw import EM_RISCV, Raw

# Start of the kernel's half of the address space: drgn adds the user frame, which level 31 cannot have.
KERNEL = 1 << 63
MUTATED = 100
# Percent of the full size at which a dump of these small guests explains the whole crash. Where most memory is anonymous, 20 % of the
# dump is less than the 4.9 MB that 7.2 needs.
WHOLE = 25
FAILED = []
# Exit status if the kernel was not doing at the crash what the scenario is about.
OTHER_MOMENT = 3


def triage(pagehaul, dump, *options, check=True):
    """Returns the report, or None if pagehaul refuses the dump with an error."""
    done = subprocess.run([pagehaul, "triage", "--json", *options, dump], capture_output=True, timeout=60)
    # 3: the dump is incomplete, and what is there was reported, or why it cannot be.
    if done.returncode in (0, 3) and done.stdout:
        return json.loads(done.stdout)
    if check or done.returncode not in (1, 3) or not done.stderr.startswith(b"pagehaul: "):
        raise SystemExit(f"pagehaul triage {dump}: exit status {done.returncode}: {done.stderr[-500:]}")
    return None


def row(what, same, total, goal=1.0):
    """Prints one line of the table of agreement."""
    share = same / total if total else 1.0
    good = share >= goal
    print(f"{'ok  ' if good else 'FAIL'} {what:32} {same:6} of {total:6} equal, {100 * share:6.2f} %")
    if not good:
        FAILED.append(what)


def compare(what, ours, theirs, goal=1.0):
    """Compares two sets or dicts."""
    if isinstance(ours, dict):
        ours, theirs = set(ours.items()), set(theirs.items())
    row(what, len(ours & theirs), len(ours | theirs), goal)
    for item in sorted(ours ^ theirs, key=str)[:5]:
        print(f"       {'only pagehaul' if item in ours else 'only drgn'}: {item}")


def state(task):
    """Returns the letter of a task's state. drgn 0.3.0 does not know TASK_RTLOCK_WAIT (5f220be21418, 5.15), and calls such a task
    running."""
    waits = task.type_.type.has_member("__state") and task.member_("__state").value_() & 0x1000
    return "D" if waits else task_state_to_char(task)


def with_drgn(pagehaul, core, vmlinux, report):
    """Compares all sections that drgn can tell too, and returns its program."""
    prog = drgn.Program()
    prog.set_core_dump(core)
    raw = Raw(core)
    if raw.machine == EM_RISCV:
        riscv64.attach(prog, raw)
    prog.load_debug_info([vmlinux])
    tasks = list(for_each_task(prog))
    compare("tasks (pid, tgid, comm, state)",
            {(t["pid"], t["tgid"], t["comm"], t["state"]) for t in report["tasks"]},
            {(t.pid.value_(), t.tgid.value_(), t.comm.string_().decode(errors="replace"), state(t)) for t in tasks})
    if raw.machine == EM_RISCV:
        print("     stacks are compared with the kernel's own: drgn unwinds none of riscv64")
        printed_stack(pagehaul, core, report)
    else:
        stacks(prog, tasks, report)
        registers(pagehaul, core, tasks)
    mappings(pagehaul, core, tasks)
    compare("modules", {m["name"] for m in report["modules"]},
            {m.name.string_().decode() for m in for_each_module(prog)})
    slab(prog, report)
    zones(prog, report)
    areas = sum(1 for _ in for_each_vmap_area(prog))
    row("vmalloc areas", min(areas, report["vmalloc"]["areas"]), max(areas, report["vmalloc"]["areas"]))
    network(prog, report)
    timers(prog, pagehaul, core)
    for what, ours, theirs in on_request.facts(prog, triage(pagehaul, core, *on_request.options())):
        compare(what, ours, theirs)
    return prog


def stacks(prog, tasks, report):
    """Compares the PCs of all kernel frames, and the functions they are in."""
    # As below: a call through a NULL pointer has a frame at 0.
    kernel = lambda stack: [(int(f["pc"], 16), f["function"]) for f in stack.get("frames", []) if int(f["pc"], 16) >= KERNEL]
    ours = {s["pid"]: kernel(s.get("stack") or {}) for s in report["stacks"]}
    same = names = named = total = equal_stacks = compared = 0
    for task in tasks:
        try:
            frames = [frame for frame in prog.stack_trace(task) if not frame.is_inline and frame.pc >= KERNEL]
        except ValueError:
            continue
        compared += 1
        mine = ours.get(task.pid.value_(), [])
        total += len(frames)
        pcs = [frame.pc for frame in frames]
        equal_stacks += pcs == [pc for pc, _ in mine]
        for frame, (pc, name) in zip(frames, mine):
            same += frame.pc == pc
            # drgn has no symbols of the lab's module.
            known = symbols(prog, frame)
            named += bool(known)
            names += name in known
        if pcs != [pc for pc, _ in mine]:
            print(f"       stack of {task.pid.value_()}: drgn {[hex(pc) for pc in pcs]}, pagehaul {[hex(pc) for pc, _ in mine]}")
    row("stacks", equal_stacks, compared, 0.995)
    row("frames (PC)", same, total, 0.995)
    row("frames (function)", names, named, 0.97)


def printed_stack(pagehaul, core, report):
    """Compares the stack of the task that panicked with the one that the kernel printed, from `vpanic` or `panic` on."""
    log = subprocess.run([pagehaul, "dmesg", core], capture_output=True, check=True, text=True).stdout
    printed = re.findall(r"\[<([0-9a-f]{16})>\] (\S+)\+0x", log[log.rindex("Call Trace:"):])
    crashed = next(cpu for cpu in report["cpus"] if cpu["crashed"])
    ours = [(int(frame["pc"], 16), frame["function"]) for frame in crashed["stack"]["frames"]]
    # The address in `panic` is another one there.
    after_panic = lambda frames: [pc for pc, _ in frames[1 + max(
        at for at, (_, name) in enumerate(frames) if name in ("panic", "vpanic")):]]
    theirs, ours = after_panic([(int(pc, 16), name) for pc, name in printed]), after_panic(ours)
    row("frames of the panic (PC)", sum(a == b for a, b in zip(theirs, ours)), max(len(theirs), len(ours)))


def registers(pagehaul, core, tasks):
    """Compares the registers in the kernel of every eighth task, among them the one that crashed."""
    same = total = 0
    for task in tasks[::8]:
        try:
            theirs = task.prog_.stack_trace(task)[0].registers()
        except ValueError:
            continue
        printed = subprocess.run([pagehaul, "triage", "--pid", str(task.pid.value_()), core],
                                 capture_output=True, check=True, text=True).stdout
        part = printed.partition("registers in the kernel\n")[2].partition("registers at")[0]
        for name, value in re.findall(r"\b(r?\w+) ([0-9a-f]{16})\b", part):
            if name not in theirs:
                # x86_64: drgn has the names of 64 bits.
                name = {"flags": "rflags"}.get(name, f"r{name}")
            if name in theirs:
                total += 1
                same += theirs[name] == int(value, 16)
    row("registers of tasks in the kernel", same, max(total, 1))


def mappings(pagehaul, core, tasks):
    """Compares the memory mappings of every fourth process."""
    ours, theirs = set(), set()
    processes = [task for task in tasks if task.mm and task.pid == task.tgid]
    for task in processes[::4]:
        pid = task.pid.value_()
        printed = subprocess.run([pagehaul, "triage", "--json", "--pid", str(pid), core], capture_output=True, check=True)
        detail = json.loads(printed.stdout)["detail"]
        row(f"mappings of {pid}, by map_count", int(len(detail["vmas"]) == detail["mappings"]), 1)
        ours |= {(pid, int(vma["start"], 16), int(vma["end"], 16), vma["flags"]) for vma in detail["vmas"]}
        for vma in for_each_vma(task.mm):
            flags = "".join(letter[not vma.vm_flags.value_() >> bit & 1]
                            for bit, letter in enumerate(("r-", "w-", "x-", "sp")))
            theirs.add((pid, vma.vm_start.value_(), vma.vm_end.value_(), flags))
    compare("mappings (addresses, flags)", ours, theirs)


def network(prog, report):
    """Compares devices, transmit queues that are stopped or hold packets, and backlogs."""
    devices, queues = set(), set()
    for net in for_each_net(prog):
        for device in list_for_each_entry("struct net_device", net.dev_base_head.address_of_(), "dev_list"):
            name, state, count = device.name.string_().decode(), device.state.value_(), device.real_num_tx_queues.value_()
            carrier = not state >> prog.constant("__LINK_STATE_NOCARRIER").value_() & 1
            devices.add((device.value_(), name, bool(device.flags.value_() & 1), carrier, count))
            for index in range(count):
                queue = device._tx[index]
                stopped = bool(queue.state.value_() >> prog.constant("__QUEUE_STATE_DRV_XOFF").value_() & 1)
                packets = queue.qdisc.qstats.qlen.value_() + (
                    sum(per_cpu_ptr(queue.qdisc.cpu_qstats, cpu).qlen.value_() for cpu in for_each_possible_cpu(prog))
                    if queue.qdisc.flags.value_() & 0x20 else queue.qdisc.q.qlen.value_())
                if stopped or packets:
                    queues.add((name, index, stopped, packets))
    ours = report["net"]["devices"]
    compare("network devices", {(int(d["address"], 16), d["name"], d["up"], d["carrier"], d["queues"]) for d in ours}, devices)
    compare("transmit queues in use", {(d["name"], q["index"], q["stopped"], q["packets"]) for d in ours for q in d["busy"]
                                       if q["stopped"] or q["packets"]}, queues)
    backlogs = set()
    for cpu in for_each_online_cpu(prog):
        data = per_cpu(prog["softnet_data"], cpu)
        backlogs.add((cpu, data.input_pkt_queue.qlen.value_() + data.process_queue.qlen.value_(), dropped(data),
                      data.time_squeeze.value_()))
    compare("backlogs of CPUs", {(b["cpu"], b["packets"], b["dropped"], b["squeezed"]) for b in report["net"]["backlogs"]},
            backlogs)


def dropped(data):
    """Returns the packets that a CPU dropped."""
    if not data.type_.has_member("dropped"):
        return data.drop_counters.drops0.counter.value_() + data.drop_counters.drops1.counter.value_()
    count = data.dropped
    return (count.counter if hasattr(count, "counter") else count).value_()


def timers(prog, pagehaul, core):
    """Compares the pending timers."""
    ours = triage(pagehaul, core, "--section", "timers")["timers"]["all"]
    theirs = set()
    for cpu in for_each_possible_cpu(prog):
        for base in per_cpu(prog["timer_bases"], cpu):
            for head in base.vectors:
                for timer in hlist_for_each_entry("struct timer_list", head.address_of_(), "entry"):
                    theirs.add((cpu, "timer", timer.value_(), prog.symbol(timer.function).name))
        for base in per_cpu(prog["hrtimer_bases"], cpu).clock_base:
            for timer in rbtree_inorder_for_each_entry("struct hrtimer", base.active.rb_root.rb_root.address_of_(),
                                                       "node.node"):
                theirs.add((cpu, "hrtimer", timer.value_(), prog.symbol(timer.function).name))
    compare("pending timers", {(t["cpu"], t["kind"], int(t["address"], 16), t["function"]) for t in ours}, theirs)


def on_per_cpu_lists(prog, pagehaul, core, scratch):
    """Compares which pages `--exclude-per-cpu-lists` excludes further with the lists."""
    kept = []
    for options in ([], ["--exclude-per-cpu-lists"]):
        dump = os.path.join(scratch, "lists")
        printed = subprocess.run([pagehaul, "capture", "--json", "--force", "-d", "16", "-c", "lzo", *options, core, dump],
                                 check=True, capture_output=True)
        kept.append(Dump(dump).kept)
    report = json.loads(printed.stdout)
    excluded = set(numpy.flatnonzero(kept[0] & ~kept[1]).tolist())
    # CPUs of arm64 may make their stores visible in another order, so that no list can be trusted.
    ordered = prog.platform.arch == drgn.Architecture.X86_64
    compare("free pages on per-CPU lists", excluded, per_cpu_pages(prog) if ordered else set())
    row("their number in the report", int(report["per_cpu_free"] == len(excluded)), 1)
    row("all other pages are kept", int(not (kept[1] & ~kept[0]).any()), 1)
    for warning in report["warnings"]:
        print(f"     note: {warning}")


def symbols(prog, frame):
    """Returns all names of a frame's function: aliases, and the label inside of entry code."""
    pc = frame.pc if frame.interrupted else frame.pc - 1
    found = {symbol.name for symbol in prog.symbols(pc)}
    # Entry code: a symbol without a size, which drgn's search by address skips.
    if "entry_SYSCALL_64" in found:
        found.add("entry_SYSCALL_64_after_hwframe")
    return found


def slab(prog, report):
    """Compares slabs and objects of the largest caches."""
    theirs = {}
    for cache in list_for_each_entry("struct kmem_cache", prog["slab_caches"].address_of_(), "list"):
        name = cache.name.string_().decode()
        try:
            node = cache.node[0]
        except AttributeError:
            node = cache.per_node[0].node
        theirs[name] = (node.nr_slabs.counter.value_(), node.total_objects.counter.value_())
    ours = {c["name"]: (c["slabs"], c["objects"]) for c in report["slab"]}
    compare("slab caches (slabs, objects)", ours, {name: theirs.get(name) for name in ours})


def zones(prog, report):
    """Compares managed pages and watermarks, and the free pages with the sum over the free lists."""
    theirs = {}
    node = prog["node_data"][0] if "node_data" in prog else prog["contig_page_data"].address_of_()
    for zone in node.node_zones:
        managed = zone.managed_pages.counter.value_()
        if managed:
            marks = zone._watermark
            theirs[zone.name.string_().decode()] = (managed, *(marks[at].value_() for at in range(3)))
    compare("zones (managed, watermarks)",
            {z["name"]: (z["managed"], *z["watermarks"]) for z in report["memory"]["zones"]}, theirs)
    sums = {z["name"]: sum(free << order for order, free in enumerate(z["orders"])) for z in report["memory"]["zones"]}
    compare("zones (free = free lists)", {z["name"]: z["free"] for z in report["memory"]["zones"]}, sums)


def filtered(pagehaul, core, report, scratch):
    """A filtered dump gives the same report; an incomplete one what it has; a damaged one no panic and no hang."""
    dump = os.path.join(scratch, "dump")
    subprocess.run([pagehaul, "capture", "-q", "-d", "31", "-c", "zstd", core, dump], check=True)
    row("sections equal at -d 31", *equal(report, triage(pagehaul, dump, "--tasks", "--stacks")))
    captured(pagehaul, core, dump, scratch)
    size = os.path.getsize(dump)
    for percent in (10, 15, 20, 25, 50, 80):
        cut = os.path.join(scratch, "cut")
        subprocess.run([pagehaul, "capture", "-q", "--force", "-d", "31", "-c", "zstd", "--size-limit",
                        str(size * percent // 100), core, cut], check=False, capture_output=True)
        found = triage(pagehaul, cut, "--tasks", "--stacks", check=False)
        if found is None:
            print(f"     {percent} % of the dump: no symbols")
            continue
        same, total = equal(report, found, whole=False)
        what = f"sections equal in {percent} % of the dump"
        if percent >= WHOLE:
            row(what, same, total)
        else:
            print(f"     {what}: {same} of {total}, {len(found['tasks'])} of {len(report['tasks'])} tasks")
    damaged(pagehaul, core, dump, scratch)


def captured(pagehaul, core, dump, scratch):
    """`capture --triage` writes what `triage` prints, and the same pages; prints what it costs."""
    with_report = os.path.join(scratch, "with")
    seconds = []
    for options in ([], ["--triage"]):
        start = time.monotonic()
        subprocess.run([pagehaul, "capture", "-q", "--force", "-d", "31", "-c", "zstd", *options, core, with_report],
                       check=True)
        seconds.append(time.monotonic() - start)
    printed = subprocess.run([pagehaul, "triage", core], capture_output=True, check=True, text=True).stdout
    with open(with_report + ".triage", encoding="utf-8") as file:
        row("report next to the dump", int(without_owners(file.read()) == without_owners(printed)), 1)
    row("its dump: size", os.path.getsize(with_report), os.path.getsize(dump))
    row("its dump: sections", *equal(triage(pagehaul, dump, "--tasks"), triage(pagehaul, with_report, "--tasks")))
    print(f"     capture {seconds[0]:.2f} s, with --triage {seconds[1]:.2f} s")


def names_owners(verdict):
    """Whether findings name the owners of memory, which a capture kernel and incomplete dumps do not know."""
    return "ran out of memory" in verdict or "reclaim memory" in verdict


def without_owners(text):
    """Returns the report without the findings and the line of memory, if they name owners."""
    head, _, rest = text.partition("\nVerdict\n")
    verdict, _, tail = rest.partition("\nCPUs\n")
    if not names_owners(verdict):
        return text
    return head + "".join(line for line in tail.splitlines(keepends=True) if not line.startswith("Memory: "))


def equal(report, other, whole=True):
    """Counts equal sections. A dump that is not whole lacks struct pages."""
    left_out = {"missing"} if whole else {"missing", "owners"}
    if not whole and names_owners(json.dumps(report["verdict"])):
        left_out.add("verdict")
        report, other = (terms_left_out(each) for each in (report, other))
    names = [name for name in report if name not in left_out]
    return sum(report[name] == other.get(name) for name in names), len(names)


def terms_left_out(report):
    """Returns the report without the terms that memory is the sum of, which the owners say more exactly."""
    memory = {name: value for name, value in report["memory"].items() if name not in ("usage", "unaccounted")}
    return {**report, "memory": memory}


def damaged(pagehaul, core, dump, scratch):
    """Changes random words of the memory in the vmcore, or of the dump's file."""
    generator = random.Random(1)
    survived = refused = 0
    for source, count in ((dump, MUTATED // 2), (core, MUTATED // 2)):
        copy = os.path.join(scratch, "damaged")
        subprocess.run(["cp", "--sparse=always", source, copy], check=True)
        size = os.path.getsize(copy)
        with open(copy, "r+b") as file:
            for _ in range(count):
                places = [generator.randrange(65536, size - 8) for _ in range(40 if source == core else 4)]
                before = [os.pread(file.fileno(), 8, place) for place in places]
                for place in places:
                    word = generator.choice([bytes(8), b"\xff" * 8, generator.randbytes(8)])
                    os.pwrite(file.fileno(), word, place)
                if triage(pagehaul, copy, "--tasks", "--stacks", check=False) is None:
                    refused += 1
                survived += 1
                for place, word in reversed(list(zip(places, before))):
                    os.pwrite(file.fileno(), word, place)
    row("damaged dumps without a panic", survived, MUTATED)
    print(f"     {refused} of them refused with an error")


def reclaims(core, vmlinux):
    """Whether several tasks reclaim memory, and a zone is below its low watermark."""
    prog = drgn.Program()
    prog.set_core_dump(core)
    prog.load_debug_info([vmlinux])
    tasks = sum(1 for task in for_each_task(prog) if task.reclaim_state)
    zones = prog["node_data"][0].node_zones
    free = prog.constant("NR_FREE_PAGES")
    low = any(zone.managed_pages.counter and zone.vm_stat[free].counter < zone._watermark[1] for zone in zones)
    print(f"     {tasks} tasks reclaim memory, {'a' if low else 'no'} zone is below its low watermark")
    return tasks >= 2 and low


def main():
    core, vmlinux, pagehaul, expected, *moment = sys.argv[1:]
    if moment == ["reclaim"] and not reclaims(core, vmlinux):
        raise SystemExit(OTHER_MOMENT)
    report = triage(pagehaul, core, "--tasks", "--stacks")
    prog = with_drgn(pagehaul, core, vmlinux, report)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as scratch:
        on_per_cpu_lists(prog, pagehaul, core, scratch)
        filtered(pagehaul, core, report, scratch)
    texts = [finding["text"] for finding in report["verdict"]]
    for text in texts:
        print(f"     verdict: {text}")
    row(f"verdict says \"{expected}\"", int(any(expected in text for text in texts)), 1)
    if FAILED:
        raise SystemExit(f"different: {', '.join(FAILED)}")


main()
