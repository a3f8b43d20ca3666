//! What a report is going to read, announced: a dump on a server is fetched with several requests at a time, and lists, whose nodes
//! lead one to the next, cost no request each. Does nothing for other dumps.
//!
//! Everything here may fail: what was not announced is fetched when it is read.

use std::thread;

use pagehaul_btf::{Fault, Object};
use pagehaul_kernel::ReadVirtual;
use pagehaul_symbols::Symbols;

use crate::cpus::cpus;
use crate::crash_notes::until_crash;
use crate::memory::memory;
use crate::modules::SYMBOL_BYTES;
use crate::net::net;
use crate::system::system;
use crate::vmalloc::vmalloc;
use crate::{Machine, Task, Tasks, block, slab};

/// Bytes of names of a module that are announced before its symbols tell how many there are.
const SOME_NAMES: u64 = 16 << 10;
/// Bytes of the symbols of a module that are announced.
const MAX_SYMBOL_BYTES: u64 = 1 << 20;
/// Bytes of a stack that are announced above its stack pointer.
const SOME_STACK: u64 = 2 << 10;

/// Variables of the kernel image that a report reads, most of them words.
const VARIABLES: [&str; 48] = [
    "__cpu_online_mask",
    "__cpu_possible_mask",
    "__per_cpu_offset",
    "__start_orc_header",
    "avenrun",
    "block_class",
    "class_kset",
    "contig_page_data",
    "crash_notes",
    "crashing_cpu",
    "hstates",
    "hugetlb_max_hstate",
    "init_net",
    "init_pid_ns",
    "init_task",
    "init_uts_ns",
    "jiffies_64",
    "last_jiffies_update",
    "mod_tree",
    "modules",
    "net_hotdata",
    "net_namespace_list",
    "netdev_max_backlog",
    "node_data",
    "nr_cpu_ids",
    "nr_node_ids",
    "nr_swap_pages",
    "nr_vmalloc_pages",
    "nr_vmap_nodes",
    "page_offset_base",
    "panic_cpu",
    "pcpu_chunk_lists",
    "pcpu_first_chunk",
    "pcpu_nr_slots",
    "pcpu_nr_units",
    "pcpu_reserved_chunk",
    "pcpu_slot",
    "percpu_counter_batch",
    "saved_command_line",
    "slab_caches",
    "super_blocks",
    "tainted_mask",
    "total_swap_pages",
    "vm_node_stat",
    "vm_zone_stat",
    "vmap_area_root",
    "vmap_lazy_nr",
    "vmap_nodes",
];
/// Bytes of such a variable.
const VARIABLE_BYTES: u64 = 256;
/// Tables of the kernel image that are read whole, or in many places: types, and how stacks are unwound.
const TABLES: [(&str, &str); 3] = [
    ("__start_BTF", "__stop_BTF"),
    ("__start_orc_unwind_ip", "__stop_orc_unwind_ip"),
    ("__start_orc_unwind", "__stop_orc_unwind"),
];
/// Bytes of such a table at most.
const MAX_TABLE: u64 = 16 << 20;

/// Announces what a report reads of the kernel image.
pub(crate) fn image(symbols: &Symbols, memory: &dyn ReadVirtual) {
    if !memory.is_remote() {
        return;
    }
    let table = |(start, end): (&str, &str)| {
        let start = symbols.address(start)?;
        Some(start..symbols.address(end)?.min(start.saturating_add(MAX_TABLE)))
    };
    let variable = |name: &str| {
        let start = symbols.address(name)?;
        Some(start..start.saturating_add(VARIABLE_BYTES))
    };
    let ranges = TABLES.into_iter().filter_map(table).chain(VARIABLES.into_iter().filter_map(variable));
    memory.will_need(&ranges.collect::<Vec<_>>());
}

/// Announces all modules, which are in a tree by address, too (93c2e105f6bc, 4.2).
pub(crate) fn module_list(machine: &Machine<'_>) {
    if !machine.memory().is_remote() {
        return;
    }
    let tree = || {
        machine
            .variable("mod_tree", "mod_tree_root")?
            .get("root.tree")?
            .index(0)?
            .tree("mod_tree_node", "node.node")
    };
    if let Ok(walk) = tree() {
        machine.space().announce(&walk.items, "mod->");
    }
}

/// Announces the symbols of modules.
pub(crate) fn modules(machine: &Machine<'_>, modules: &[Object<'_>]) {
    let space = machine.space();
    let tables = space.announce(modules, "kallsyms->");
    let symbols = |table: &Object<'_>| {
        let (symbols, names) = (table.get("symtab")?.pointer()?, table.get("strtab")?.pointer()?);
        let bytes = table.number("num_symtab")?.saturating_mul(SYMBOL_BYTES).min(MAX_SYMBOL_BYTES);
        Ok::<_, Fault>([symbols..symbols.saturating_add(bytes), names..names.saturating_add(SOME_NAMES)])
    };
    let ranges: Vec<_> = tables.iter().filter_map(|table| symbols(table).ok()).flatten().collect();
    machine.memory().will_need(&ranges);
}

/// Reads the parts of a report at the same time.
pub(crate) fn report(machine: &Machine<'_>) {
    together(
        machine,
        &[
            &|machine| {
                self::machine(machine);
                let _ = (system(machine), cpus(machine, &machine.unwinder()));
            },
            &|machine| {
                if let Ok(tasks) = crate::tasks(machine) {
                    of_tasks(machine, &tasks);
                    memory(machine, &tasks);
                }
            },
            &|machine| drop(slab::caches(machine)),
            &|machine| drop(vmalloc(machine)),
            &|machine| drop((block::requests(machine), block::suspended(machine))),
            &|machine| drop(net(machine)),
        ],
    );
}

/// Part of what is read later.
pub type Part<'a> = &'a (dyn Fn(&Machine<'_>) + Sync);

/// Runs parts of what is read later at the same time, and forgets what they find: the memory that they need is here then. Does nothing
/// unless the memory is on a server.
pub fn together(machine: &Machine<'_>, parts: &[Part<'_>]) {
    thread::scope(|scope| {
        for part in parts {
            let Some(memory) = machine.memory().another() else { return };
            let machine = machine.for_thread();
            // What no thread reads ahead is read later.
            let _ = thread::Builder::new().spawn_scoped(scope, move || part(&machine.with_memory(&*memory)));
        }
    });
}

/// Announces what is at known places, most of it of CPUs.
fn machine(machine: &Machine<'_>) {
    if !machine.memory().is_remote() {
        return;
    }
    let cpus = until_crash(machine).unwrap_or_default();
    let space = machine.space();
    let of_cpus = |symbol: &str, record: &str| -> Vec<Object<'_>> {
        let object = |cpu: &u64| space.object(machine.per_cpu(symbol, *cpu).ok()?, record).ok();
        cpus.iter().filter_map(object).collect()
    };
    let mut found = of_cpus("runqueues", "rq");
    found.extend(of_cpus("softnet_data", "softnet_data"));
    for (symbol, record) in [
        ("init_task", "task_struct"),
        ("init_uts_ns", "uts_namespace"),
        ("init_net", "net"),
        ("contig_page_data", "pglist_data"),
    ] {
        found.extend(machine.variable(symbol, record));
    }
    space.will_need(&found);
    space.announce(&of_cpus("runqueues", "rq"), "curr->");
}

/// Announces all tasks, which the table of thread IDs lists. Since 95846ecf9dac (4.15) it is a radix tree.
pub(crate) fn tasks(machine: &Machine<'_>) {
    if !machine.memory().is_remote() {
        return;
    }
    let _ = find_tasks(machine);
}

fn find_tasks(machine: &Machine<'_>) -> Result<(), Fault> {
    let space = machine.space();
    let ids = machine.variable("init_pid_ns", "pid_namespace")?.get("idr.idr_rt")?.xarray()?.items;
    let ids = ids.into_iter().map(|(_, id)| space.object(id, "pid")).collect::<Result<Vec<_>, _>>()?;
    space.will_need(&ids);
    // PIDTYPE_PID is the first kind.
    let link = space.offset_of("task_struct", "pid_links")?;
    let task = |id: &Object<'_>| {
        let first = id.get("tasks")?.index(0)?.get("first")?.pointer()?;
        space.object(first.wrapping_sub(link), "task_struct")
    };
    let tasks: Vec<_> = ids.iter().filter_map(|id| task(id).ok()).collect();
    space.will_need(&tasks);
    space.announce(&tasks, "signal->thread_head");
    Ok(())
}

/// Announces what tasks point to, and the stacks of those that are unwound.
pub(crate) fn of_tasks(machine: &Machine<'_>, tasks: &Tasks) {
    if !machine.memory().is_remote() {
        return;
    }
    let space = machine.space();
    let objects = |is_wanted: &dyn Fn(&Task) -> bool| -> Vec<Object<'_>> {
        let wanted = tasks.all.iter().filter(|task| is_wanted(task));
        wanted.filter_map(|task| space.object(task.address.0, "task_struct").ok()).collect()
    };
    let users = objects(&|task| task.mm.0 != 0);
    space.announce(&users, "mm->rss_stat");
    let threads = objects(&|task| task.kernel_thread);
    let found = space.announce(&threads, "worker_private->");
    let kthreads: Vec<_> = found.iter().filter_map(|found| found.cast("kthread").ok()).collect();
    let workers = space.announce(&kthreads, "data->");
    let workers: Vec<_> = workers.iter().filter_map(|found| found.cast("worker").ok()).collect();
    space.will_need(&workers);
    let blocked = objects(&|task| task.state == 'D');
    let stack = |task: &Object<'_>| {
        let start = crate::registers::stack_pointer(machine, task.address()).ok()?;
        Some(start..start.saturating_add(SOME_STACK))
    };
    machine.memory().will_need(&blocked.iter().filter_map(stack).collect::<Vec<_>>());
}

/// Announces names and nodes of slab caches.
pub(crate) fn caches(machine: &Machine<'_>, caches: &[Object<'_>]) {
    if !machine.memory().is_remote() {
        return;
    }
    let space = machine.space();
    let names = space.announce(caches, "name");
    let name = |name: &Object<'_>| name.pointer().ok().map(|start| start..start.saturating_add(64));
    machine.memory().will_need(&names.iter().filter_map(name).collect::<Vec<_>>());
    let nodes: Vec<_> = caches.iter().filter_map(|cache| first_node(cache).ok()).collect();
    space.announce(&nodes, "->");
}

fn first_node<'a>(cache: &Object<'a>) -> Result<Object<'a>, Fault> {
    match cache.get("per_node") {
        Ok(all) => all.index(0)?.get("node"),
        Err(_) => cache.get("node")?.index(0),
    }
}
