"""The sections of `pagehaul triage` that are read on request, as drgn's helpers and its debug symbols have them."""

import re
from collections import Counter

from drgn import Object, cast
from drgn.helpers.linux.cpumask import for_each_online_cpu, for_each_possible_cpu
from drgn.helpers.linux.fs import for_each_file, for_each_mount, mount_dst, mount_fstype, mount_src
from drgn.helpers.linux.idr import idr_for_each_entry
from drgn.helpers.linux.ipc import for_each_sysv_msg_queue, for_each_sysv_sem_array, for_each_sysv_shm
from drgn.helpers.linux.irq import for_each_irq_desc, irq_desc_action_names, irq_desc_chip_name, irq_desc_kstat_cpu
from drgn.helpers.linux.list import list_count_nodes, list_for_each_entry
from drgn.helpers.linux.percpu import per_cpu
from drgn.helpers.linux.pid import for_each_task
from drgn.helpers.linux.swap import for_each_swap_info, swap_file_path, swap_usage_in_pages

SECTIONS = ["workqueues", "interrupts", "rcu", "signals", "counts", "pressure", "sockets", "mounts", "swap", "ipc"]


def options():
    """Returns the options that ask for all of them."""
    return [option for section in SECTIONS for option in ("--section", section)]


def facts(prog, ours):
    """Yields what each section has: a name, pagehaul's facts as a set, and drgn's."""
    for section in (workqueues, pools, interrupts, softirqs, rcu, signals, names, parents, pressure, sockets, mounts, swap, ipc):
        yield (section.__name__, *section(prog, ours))
    yield "sections on request that are whole", {why for name in SECTIONS for why in ours[name]["broken"]}, set()


def text(value):
    return value.decode(errors="replace") if value is not None else None


def workqueues(prog, ours):
    theirs = set()
    for queue in list_for_each_entry("struct workqueue_struct", prog["workqueues"].address_of_(), "list"):
        for part in list_for_each_entry("struct pool_workqueue", queue.pwqs.address_of_(), "pwqs_node"):
            inactive = part.inactive_works if hasattr(part, "inactive_works") else part.delayed_works
            numbers = part.nr_active.value_(), list_count_nodes(inactive.address_of_())
            if any(numbers):
                theirs.add((text(queue.name.string_()), part.value_(), part.pool.id.value_(), *numbers))
    ours = {(q["name"], int(q["address"], 16), q["pool"], q["active"], q["inactive"]) for q in ours["workqueues"]["busy"]}
    return ours, theirs


def pools(prog, ours):
    theirs = set()
    for _, pool in idr_for_each_entry(prog["worker_pool_idr"].address_of_(), "struct worker_pool"):
        pending = list_count_nodes(pool.worklist.address_of_())
        if pool.nr_workers or pending:
            theirs.add((pool.value_(), pool.id.value_(), pool.cpu.value_(), pool.nr_workers.value_(), pool.nr_idle.value_(),
                        pending))
    ours = {(int(p["address"], 16), p["id"], p.get("cpu", -1), p["workers"], p["idle"], p["pending"])
            for p in ours["workqueues"]["pools"]}
    return ours, theirs


def interrupts(prog, ours):
    theirs = set()
    for number, desc in for_each_irq_desc(prog):
        counts = [(cpu, irq_desc_kstat_cpu(desc, cpu)) for cpu in for_each_possible_cpu(prog)] if desc.kstat_irqs else []
        counts = tuple(item for item in counts if item[1])
        actions = tuple(text(name) for name in irq_desc_action_names(desc))
        if actions or counts:
            theirs.add((number, desc.value_(), text(irq_desc_chip_name(desc)), actions, counts))
    ours = {(i["number"], int(i["address"], 16), i.get("chip"), tuple(i["actions"]),
             tuple((int(cpu), count) for cpu, count in i["by_cpu"].items())) for i in ours["interrupts"]["all"]}
    return ours, theirs


def softirqs(prog, ours):
    theirs = set()
    names = {value: name.removesuffix("_SOFTIRQ") for name, value in prog.constant("TASKLET_SOFTIRQ").type_.enumerators}
    for cpu in for_each_online_cpu(prog):
        counts = per_cpu(prog["kstat"], cpu)
        each = {name: counts.softirqs[value].value_() for value, name in names.items() if name != "NR_SOFTIRQS"}
        theirs.add((cpu, counts.irqs_sum.value_(), tuple(sorted(each.items()))))
    ours = {(c["cpu"], c["interrupts"], tuple(sorted(c["softirqs"].items()))) for c in ours["interrupts"]["cpus"]}
    return ours, theirs


def rcu(prog, ours):
    state = prog["rcu_state"]
    theirs = {("sequence", state.gp_seq.value_() - (1 << 64 if state.gp_seq.value_() >> 63 else 0))}
    for cpu in for_each_possible_cpu(prog):
        length = per_cpu(prog["rcu_data"], cpu).cblist.len
        length = getattr(length, "counter", length).value_()
        if length:
            theirs.add((cpu, length))
    ours = ours["rcu"]
    return {("sequence", ours["sequence"])} | {(c["cpu"], c["callbacks"]) for c in ours["callbacks"]}, theirs


def signals(prog, ours):
    theirs = set()
    for task in for_each_task(prog):
        own = task.pending.signal.sig[0].value_()
        shared = task.signal.shared_pending.signal.sig[0].value_() if task.pid == task.tgid and task.signal else 0
        if own | shared:
            blocked = task.blocked.sig[0].value_() & (own | shared)
            theirs.add((task.value_(), *(bin(bits).count("1") for bits in (own, shared, blocked))))
    ours = {(int(t["address"], 16), len(t["thread"]), len(t["process"]), len(t["blocked"])) for t in ours["signals"]["all"]}
    return ours, theirs


def names(prog, ours):
    theirs = Counter()
    for task in for_each_task(prog):
        name = text(task.comm.string_())
        # PF_KTHREAD
        theirs[re.sub("[0-9]+", "#", name) if task.flags.value_() & 0x200000 else name] += 1
    return {(n["name"], n["tasks"]) for n in ours["counts"]["by_name"]}, set(theirs.items())


def parents(prog, ours):
    theirs = Counter(task.real_parent.tgid.value_() for task in for_each_task(prog) if task.pid == task.tgid)
    return {(p["pid"], p["children"]) for p in ours["counts"]["by_parent"]}, set(theirs.items())


def pressure(prog, ours):
    group = prog["psi_system"]
    theirs = set()
    if group.avg_last_update:
        for name, state in prog.constant("PSI_IO_SOME").type_.enumerators:
            words = name.split("_")
            if words[-1] in ("SOME", "FULL"):
                resource = {"MEM": "memory"}.get(words[1], words[1].lower())
                averages = tuple(group.avg[state][at].value_() / 2048 for at in range(3))
                theirs.add((resource, words[2].lower(), averages, group.total[0][state].value_() / 1e9))
    ours = {(p["resource"], p["kind"], tuple(p["percent"]), p["total"]) for p in ours["pressure"]["all"]}
    return ours, theirs


def sockets(prog, ours):
    theirs = {}
    for task in for_each_task(prog):
        if not task.files:
            continue
        for _, file in for_each_file(task):
            if file.f_op != prog["socket_file_ops"].address_of_():
                continue
            sock = cast("struct socket *", file.private_data).sk
            if sock:
                common = sock.member_("__sk_common")
                theirs[sock.value_()] = (common.skc_family.value_(), sock.sk_type.value_(), common.skc_num.value_(),
                                         sock.sk_backlog.rmem_alloc.counter.value_())
    names = {"UNIX": 1, "IPv4": 2, "IPv6": 10, "netlink": 16, "packet": 17, "vsock": 40}
    ports = {int(s["address"], 16): s.get("local", ":0").rsplit(":", 1)[-1] for s in ours["sockets"]["all"]}
    ours = {(int(s["address"], 16), names.get(s["family"])) for s in ours["sockets"]["all"]}
    of_ip = {(at, int(ports[at])) for at, family in ours if family in (2, 10)}
    return ours | of_ip, ({(at, fact[0]) for at, fact in theirs.items()}
                          | {(at, fact[2]) for at, fact in theirs.items() if fact[0] in (2, 10)})


def mounts(prog, ours):
    theirs = set()
    for namespace in {task.nsproxy.mnt_ns.value_() for task in for_each_task(prog) if task.nsproxy}:
        namespace = Object(prog, "struct mnt_namespace *", namespace)
        for mount in for_each_mount(namespace):
            theirs.add((namespace.ns.inum.value_(), mount.value_(), text(mount_dst(mount)), text(mount_src(mount)),
                        text(mount_fstype(mount))))
    ours = {(m["namespace"], int(m["address"], 16), m["point"], m["device"], m["kind"]) for m in ours["mounts"]["all"]}
    return ours, theirs


def swap(prog, ours):
    theirs = {(info.value_(), text(swap_file_path(info)), info.pages.value_(), swap_usage_in_pages(info))
              for info in for_each_swap_info(prog)}
    ours = {(int(d["address"], 16), d["name"], d["pages"], d["used"]) for d in ours["swap"]["devices"]}
    return ours, theirs


def ipc(prog, ours):
    theirs = set()
    for namespace in {task.nsproxy.ipc_ns.value_() for task in for_each_task(prog) if task.nsproxy}:
        namespace = Object(prog, "struct ipc_namespace *", namespace)
        for queue in for_each_sysv_msg_queue(namespace):
            theirs.add(("message queue", queue.q_perm.id.value_(), queue.q_qnum.value_(), queue.q_cbytes.value_()))
        for memory in for_each_sysv_shm(namespace):
            theirs.add(("shared memory", memory.shm_perm.id.value_(), memory.shm_nattch.value_(), memory.shm_segsz.value_()))
        for semaphores in for_each_sysv_sem_array(namespace):
            theirs.add(("semaphores", semaphores.sem_perm.id.value_(), semaphores.sem_nsems.value_(), None))
    ours = {(o["kind"], o["id"], o["attached"] if o["kind"] == "shared memory" else o["count"], o.get("bytes"))
            for o in ours["ipc"]["objects"]}
    return ours, theirs
