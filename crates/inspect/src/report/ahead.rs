//! What a report is going to read, announced: a dump on a server is fetched with several requests at a time, and lists, whose nodes
//! lead one to the next, cost no request each. Does nothing for other dumps.
//!
//! Everything here may fail: what was not announced is fetched when it is read.

use pagehaul_btf::Object;

use crate::machine::Machine;
use crate::machine::ahead::together;
use crate::model::cpus::cpus;
use crate::structures::block::{requests, suspended};
use crate::structures::crash_notes::until_crash;
use crate::structures::memory::memory;
use crate::structures::net::net;
use crate::structures::registers::stack_pointer;
use crate::structures::slab::caches;
use crate::structures::system::system;
use crate::structures::tasks::{Task, Tasks, tasks};
use crate::structures::vmalloc::vmalloc;

/// Bytes of a stack that are announced above its stack pointer.
const SOME_STACK: u64 = 2 << 10;

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
                if let Ok(tasks) = tasks(machine) {
                    of_tasks(machine, &tasks);
                    memory(machine, &tasks);
                }
            },
            &|machine| drop(caches(machine)),
            &|machine| drop(vmalloc(machine)),
            &|machine| drop((requests(machine), suspended(machine))),
            &|machine| drop(net(machine)),
        ],
    );
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
        let start = stack_pointer(machine, task.address()).ok()?;
        Some(start..start.saturating_add(SOME_STACK))
    };
    machine.memory().will_need(&blocked.iter().filter_map(stack).collect::<Vec<_>>());
}
