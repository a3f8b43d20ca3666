//! The verdict: at most five findings, the weightiest first, each with its evidence and what to look at next.

use pagehaul_facts::{Kind, is_messenger};
use pagehaul_machine::PageCount;
use pagehaul_present::number::{bytes, counted, percent};
use serde::Serialize;

use super::death::Death;
use super::next::Next;
use crate::model::cpus::Cpu;
use crate::model::stacks::{FrameName, StackGroup, StackTrace, chain};
use crate::model::waits::{Held, Locks};
use crate::model::workers::Worker;
use crate::structures::block::{Request, Suspended};
use crate::structures::memory::{Memory, SLAB};
use crate::structures::net::Net;
use crate::structures::slab::Cache;
use crate::structures::system::System;
use crate::structures::tasks::Tasks;
use crate::structures::vmalloc::Vmalloc;

/// Findings that are shown.
const MOST: usize = 5;
/// Failures in a row after which kswapd gives up (MAX_RECLAIM_RETRIES).
const KSWAPD_GIVES_UP: u64 = 16;
/// Seconds in flight from which a block request is stuck: the default timeout of a request is 30.
const STUCK_REQUEST: f64 = 10.0;
/// Seconds without a packet taken after which a transmit queue with packets is stuck: the default of `watchdog_timeo`.
const STUCK_QUEUE: f64 = 5.0;
/// Functions of a stack in one line.
const FRAMES: usize = 6;
/// Locks that have a finding each.
const LOCKS: usize = 3;
/// Locks among which these are chosen.
const MANY_LOCKS: usize = 1000;
/// Seconds without a tick from which a busy CPU with interrupts off is to blame: ticks come every 1 to 10 ms, and a CPU in nohz_full
/// mode has one a second.
const NO_TICK: f64 = 3.0;
/// What the finding about tasks in reclaim says of them.
const RECLAIM: &str = "tasks reclaim memory";
/// Seconds from which a blocked task is worth a finding.
const LONG_WAIT: f64 = 5.0;

/// A fact that a finding rests on.
#[derive(Debug, Clone, Serialize)]
pub struct Evidence(pub String);

/// A finding.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// 100 is the cause of death; other faults and mere symptoms weigh less.
    pub weight: u32,
    /// One sentence.
    pub text: String,
    /// What it rests on.
    pub evidence: Vec<Evidence>,
    /// What shows more.
    #[serde(skip)]
    pub next: Next,
    /// The command that does, in the words of the program that prints the report.
    #[serde(rename = "next", skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl Finding {
    /// Whether it is the finding about tasks in reclaim.
    pub fn is_reclaim(&self) -> bool {
        self.text.contains(RECLAIM)
    }
}

/// What the verdict is made of.
pub struct Facts<'a> {
    /// Whether the kernel ran while its memory was read.
    pub running: bool,
    /// How the machine died.
    pub death: &'a Death,
    /// The machine.
    pub system: &'a System,
    /// The frames that are to blame.
    pub cause: &'a [FrameName],
    /// The functions that are to blame in the log's report, `module:function`, where the stack is not known.
    pub in_log: &'a [String],
    /// The CPU that died.
    pub died: Option<&'a Cpu>,
    /// All CPUs.
    pub cpus: &'a [Cpu],
    /// All tasks.
    pub tasks: &'a Tasks,
    /// Blocked tasks by stack.
    pub blocked: &'a [StackGroup],
    /// Locks.
    pub locks: &'a Locks,
    /// Workers that run a work.
    pub workers: &'a [Worker],
    /// Memory.
    pub memory: &'a Memory,
    /// Slab caches, the largest first.
    pub slab: &'a [Cache],
    /// Block requests in flight.
    pub requests: &'a [Request],
    /// Device-mapper devices that are suspended.
    pub suspended: &'a [Suspended],
    /// The network.
    pub net: &'a Net,
    /// The vmalloc space.
    pub vmalloc: Option<&'a Vmalloc>,
    /// Whether all of CPUs could be read: else one without registers may have left some.
    pub knows_cpus: bool,
    /// Whether all modules are known: else an address without a name can be code of one.
    pub knows_modules: bool,
}

/// Weighs the facts.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(death(facts));
    found.extend(deadlocks(facts));
    found.extend(lock_queues(facts));
    found.extend(spinning_cpu(facts));
    found.extend(stuck_io(facts));
    found.extend(suspended(facts));
    found.extend(backlog(facts));
    found.extend(reclaim(facts));
    found.extend(memory(facts));
    found.extend(blocked(facts));
    found.extend(stuck_queue(facts.net));
    found.extend(full_backlog(facts.net));
    found.extend(silent_cpus(facts));
    found.extend(earlier(facts));
    found.sort_by_key(|finding: &Finding| std::cmp::Reverse(finding.weight));
    found.truncate(MOST);
    found
}

fn finding(weight: u32, text: String, evidence: Vec<String>, next: Next) -> Finding {
    Finding { weight, text, evidence: evidence.into_iter().map(Evidence).collect(), next, command: None }
}

/// The function to blame.
fn place(facts: &Facts<'_>) -> String {
    place_of(facts.cause, facts.in_log)
}

fn place_of(cause: &[FrameName], in_log: &[String]) -> String {
    match (cause.first(), in_log.first()) {
        (Some(frame), _) => frame.name.clone(),
        (None, Some(function)) => function.clone(),
        (None, None) => "an unknown place".into(),
    }
}

/// Explains an address that `list_del` and `hlist_del` leave in an entry (include/linux/poison.h; POISON_POINTER_DELTA of 64-bit
/// machines is 0xdead000000000000, a29815a333c6, 4.6).
fn list_poison(line: &str) -> Option<String> {
    const NEXT: u64 = 0xdead_0000_0000_0100;
    const PREVIOUS: u64 = 0xdead_0000_0000_0122;
    const MEMBERS: u64 = 0x80;
    let words = line.split(|c: char| !c.is_ascii_alphanumeric());
    let mut addresses =
        words.filter_map(|word| u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok());
    let address = addresses.find(|address| (NEXT..PREVIOUS + MEMBERS).contains(address))?;
    let (name, poison) = if address < PREVIOUS { ("LIST_POISON1", NEXT) } else { ("LIST_POISON2", PREVIOUS) };
    let offset = address - poison;
    Some(format!(
        "{address:#x} is {name} + {offset:#x}: an entry that had been removed from its list was used"
    ))
}

/// The caller if the CPU called a pointer to no function, and what the pointer was.
fn wild_call(cause: &[FrameName], knows_modules: bool) -> Option<(String, &FrameName)> {
    let [target, caller, ..] = cause else { return None };
    // Without a name, the address stands for the function.
    let is_code = |frame: &FrameName| !frame.function.starts_with("0x");
    let pointer = || {
        if target.pc.0 == 0 { "a NULL pointer".to_owned() } else { format!("the wild pointer {}", target.pc) }
    };
    let wild = !is_code(target) && (target.pc.0 == 0 || knows_modules);
    (wild && is_code(caller)).then(|| (pointer(), caller))
}

fn death(facts: &Facts<'_>) -> Option<Finding> {
    let death = facts.death;
    let kind = death.kind?;
    let mut evidence: Vec<String> = Vec::new();
    for line in [&death.cause, &death.line].into_iter().flatten() {
        evidence.push(format!("[{:.6}] {}", line.seconds, line.text));
    }
    if !facts.cause.is_empty() {
        evidence.push(format!("stack: {}", chain(facts.cause, FRAMES)));
    } else if !facts.in_log.is_empty() {
        evidence.push(format!("in the log's report: {}", facts.in_log.join(" < ")));
    }
    let nameless = facts.cause.first().filter(|frame| frame.function.starts_with("0x") && frame.pc.0 != 0);
    if let Some(frame) = nameless.filter(|_| !facts.knows_modules) {
        evidence.push(format!("{} may be code of a module that could not be read", frame.pc));
    }
    let blamed = death.task.as_ref().map(|(name, pid)| format!("{name}/{pid}"));
    let task = facts.died.and_then(|cpu| cpu.task.as_ref()).map(|task| task.label());
    // The log has it, too.
    let task = task.or_else(|| blamed.clone()).unwrap_or_else(|| "unknown task".into());
    let panic = death.line.as_ref().map_or("", |line| line.text.as_str());
    let message = panic.split_once("not syncing: ").map_or(panic, |(_, message)| message);
    let wild = wild_call(facts.cause, facts.knows_modules);
    let frame = wild.as_ref().map(|(_, caller)| *caller).or_else(|| facts.cause.first());
    let source = frame.map_or(Next::Backtrace, |frame| Next::Code(frame.pc.0));
    let seconds = death.stuck_seconds.map_or_else(String::new, |seconds| format!(" for {seconds} s"));
    let (text, next) = match kind {
        Kind::Requested => (
            format!("{task} crashed the machine on purpose (SysRq c): the log may show why"),
            Next::Log { level: Some(4) },
        ),
        Kind::NullDeref | Kind::PageFault | Kind::Gpf if wild.is_some() => {
            let text = wild.map(|(pointer, caller)| format!("{task} called {pointer} from {}", caller.name));
            (text.unwrap_or_default(), source)
        }
        Kind::NullDeref
        | Kind::PageFault
        | Kind::Gpf
        | Kind::Bug
        | Kind::Warn
        | Kind::Sanitizer
        | Kind::DoubleFault
        | Kind::StackOverflow => (
            format!("{} in {}, task {task}", kind.describe(), place(facts))
                + &death.corruption.as_ref().map_or_else(String::new, |line| format!(": {}", line.text)),
            source,
        ),
        Kind::HungTask => (
            format!(
                "{} was blocked{} in {}",
                blamed.unwrap_or(task),
                seconds.replace(" for", " for more than"),
                // A stack that has only functions of scheduling says nothing of a worker: its work's function does.
                match (blamed_worker(facts), frame) {
                    (Some(worker), Some(frame)) if is_messenger(&frame.function) => worker.function.clone(),
                    _ => place(facts),
                }
            ),
            if waits_for_lock(facts) { Next::Waits } else { Next::Tasks },
        ),
        Kind::SoftLockup | Kind::HardLockup | Kind::RcuStall => (
            format!(
                "{}: {}{} ran{seconds} without a break in {}",
                kind.describe(),
                death.cpu.map_or_else(String::new, |cpu| format!("CPU {cpu}, ")),
                blamed.unwrap_or(task),
                place(facts)
            ),
            Next::Cpus,
        ),
        Kind::OomPanic => {
            let (managed, free) = facts.memory.total();
            let size = |pages: PageCount| bytes(pages.bytes(facts.system.page_size));
            let largest_use = facts.memory.largest_use();
            let largest = largest_use.map_or_else(String::new, |(name, pages)| {
                let share = percent(pages.get(), managed.get());
                format!(": {name} {} of {} ({share})", size(pages), size(managed))
            });
            let [managed, free] = [managed, free].map(size);
            let kills = counted(death.oom_kills as u64, "OOM kill");
            evidence.push(match facts.memory.zones.is_empty() {
                true => format!("{kills} in the log"),
                false => format!("{free} of {managed} free, {kills} in the log"),
            });
            if let Some(largest) = facts.memory.processes.first() {
                let size = bytes(largest.rss().bytes(facts.system.page_size));
                let known = if facts.tasks.broken.is_empty() { "" } else { "known " };
                evidence.push(format!(
                    "largest {known}process {}/{}: {size} resident",
                    largest.comm, largest.pid
                ));
            }
            if let Some(cache) =
                facts.slab.first().filter(|_| largest_use.is_some_and(|(name, _)| name == SLAB))
            {
                evidence.push(format!("largest slab cache {}: {}", cache.name, bytes(cache.bytes)));
            }
            let text = format!("the machine ran out of memory{largest}");
            (text, Next::Memory)
        }
        Kind::Nmi => (format!("an NMI stopped the machine in {}", place(facts)), Next::Cpus),
        Kind::Mce => ("the processor reported a hardware error".into(), Next::Log { level: Some(2) }),
        Kind::Fs => ("a file system stopped the machine".into(), Next::Log { level: Some(4) }),
        Kind::Other if panic.contains("Attempted to kill init") => {
            ("the init process ended".into(), Next::Log { level: None })
        }
        Kind::Other if death.cause.is_some() => (format!("oops in {}, task {task}", place(facts)), source),
        Kind::Other => (format!("the kernel panicked in {}, task {task}: {message}", place(facts)), source),
    };
    evidence.extend(death.cause.as_ref().and_then(|line| list_poison(&line.text)));
    if let Some(worker) = blamed_worker(facts) {
        let behind = match worker.pending {
            0 => String::new(),
            1 => "; 1 work waits behind it".into(),
            pending => format!("; {pending} works wait behind it"),
        };
        evidence.push(format!("runs {}{behind}", worker.describe()));
    }
    let others = blamed_group(facts).map_or(0, |group| group.pids.len().saturating_sub(1));
    if others > 0 {
        evidence.push(format!("{} blocked with this stack", counted(others as u64, "more task")));
    }
    // The lock or device that a hung task waits for explains more than the hang.
    let weight = if kind == Kind::HungTask { 84 } else { 100 };
    Some(finding(weight, text, evidence, next))
}

fn deadlocks(facts: &Facts<'_>) -> Vec<Finding> {
    let name = |pid: &u32| facts.tasks.by_pid(*pid).map_or_else(|| pid.to_string(), |task| task.label());
    let lock_between = |waiter: u32| {
        let held = facts.locks.held.iter().find(|held| held.waiters.iter().any(|wait| wait.pid == waiter));
        held.map_or_else(String::new, |held| format!("{} {}", held.kind, held.name))
    };
    facts
        .locks
        .cycles
        .iter()
        .map(|cycle| {
            let names: Vec<String> = cycle.iter().map(name).collect();
            let evidence = cycle.iter().enumerate().map(|(at, pid)| {
                let owner = cycle.get((at + 1) % cycle.len()).map_or_else(String::new, name);
                format!("{} waits for {}, held by {owner}", name(pid), lock_between(*pid))
            });
            finding(
                95,
                format!("deadlock: {} wait for each other", names.join(" and ")),
                evidence.collect(),
                Next::Waits,
            )
        })
        .collect()
}

/// The locks that tasks wait for long, those first whose holder does not wait for another one.
fn lock_queues(facts: &Facts<'_>) -> Vec<Finding> {
    let held = &facts.locks.held;
    let in_cycle = |pid: u32| facts.locks.cycles.iter().any(|cycle| cycle.contains(&pid));
    let waits = |pid: u32| held.iter().any(|held| held.waiters.iter().any(|wait| wait.pid == pid));
    let long =
        |held: &&Held| held.longest() >= LONG_WAIT && !held.waiters.iter().all(|wait| in_cycle(wait.pid));
    // They are sorted by the longest wait.
    let mut queues: Vec<&Held> = held.iter().filter(long).take(MANY_LOCKS).collect();
    queues.sort_by_key(|held| held.owner.as_ref().is_some_and(|(_, pid)| waits(*pid)));
    let queues = queues.into_iter().take(LOCKS).enumerate();
    queues.map(|(at, held)| lock_queue(facts, held, 80 - at as u32)).collect()
}

fn lock_queue(facts: &Facts<'_>, held: &Held, weight: u32) -> Finding {
    let unknown =
        || held.readers.map_or_else(|| "an unknown task".into(), |readers| counted(readers, "reader"));
    let owner = held.owner.as_ref().map_or_else(unknown, |(name, pid)| format!("{name}/{pid}"));
    let evidence = held
        .waiters
        .iter()
        .take(3)
        .map(|wait| format!("{}/{} waits {:.1} s", wait.comm, wait.pid, wait.seconds.unwrap_or(0.0)));
    let mut evidence: Vec<String> = evidence.collect();
    let holder = held.owner.as_ref().and_then(|(_, pid)| facts.tasks.by_pid(*pid));
    if let (Some(holder), Some(stack)) = (holder, &held.owner_stack) {
        evidence.push(format!("{}, state {}: {}", holder.label(), holder.state, stack.innermost(FRAMES)));
    }
    let hint = if held.owner_is_hint { " (last known holder)" } else { "" };
    let held_by = if held.owner_is_hint { "held by" } else { held.held_by() };
    finding(
        weight,
        format!(
            "{} up to {:.1} s for {} {}, {held_by} {owner}{hint}",
            tasks_that(held.waiters.len(), "waits", "wait"),
            held.longest(),
            held.kind,
            held.name
        ),
        evidence,
        Next::Waits,
    )
}

fn stuck_io(facts: &Facts<'_>) -> Option<Finding> {
    let oldest = facts.requests.first().filter(|request| request.age.unwrap_or(0.0) >= STUCK_REQUEST)?;
    let evidence = facts.requests.iter().take(3).map(|request| {
        format!(
            "{} of {} bytes on {}, {:.1} s, request {}",
            request.operation,
            request.bytes,
            request.disk,
            request.age.unwrap_or(0.0),
            request.address
        )
    });
    Some(finding(
        75,
        format!(
            "{} in flight, the oldest on {} for {:.1} s",
            counted(facts.requests.len() as u64, "block request"),
            oldest.disk,
            oldest.age.unwrap_or(0.0)
        ),
        evidence.collect(),
        Next::Requests,
    ))
}

fn suspended(facts: &Facts<'_>) -> Option<Finding> {
    let device = facts.suspended.iter().find(|device| device.has_waiting)?;
    let blocked: usize = facts.blocked.iter().map(|group| group.pids.len()).sum();
    Some(finding(
        85,
        format!(
            "{} is suspended, and I/O to it waits; {} blocked (D)",
            device.disk,
            tasks_that(blocked, "is", "are")
        ),
        vec![format!("mapped_device {}: suspended, with deferred bios", device.address)],
        Next::Suspender,
    ))
}

/// More areas wait for a purge than the kernel lets wait (`lazy_max_pages()`: 32 MiB for each power of two of CPUs).
fn backlog(facts: &Facts<'_>) -> Option<Finding> {
    const STEP: u64 = 32 << 20;
    let pages = facts.vmalloc?.backlog_pages?;
    let backlog = pages.bytes(facts.system.page_size);
    let most = u64::from((facts.system.cpus? as u64).checked_ilog2()? + 1) * STEP;
    let mib = |bytes: u64| bytes >> 20;
    (backlog > most).then(|| {
        finding(
            68,
            format!(
                "{} MiB of vmalloc areas are freed but not purged, more than the limit of {} MiB",
                mib(backlog),
                mib(most)
            ),
            vec![format!(
                "vmap_lazy_nr {} pages: purges do not keep up, and all CPUs pay for their TLB flushes",
                pages.get()
            )],
            Next::Memory,
        )
    })
}

/// Several tasks reclaim at once, with a zone below its low watermark. kswapd alone is normal operation.
fn reclaim(facts: &Facts<'_>) -> Option<Finding> {
    const SEVERAL: usize = 2;
    let memory = facts.memory;
    let low = memory.zones.iter().find(|zone| zone.free < zone.watermarks[1])?;
    let reclaimers = &memory.reclaimers;
    if reclaimers.len() < SEVERAL {
        return None;
    }
    let (managed, _) = memory.total();
    let share = |name: &str| memory.used_for(name).get().saturating_mul(100) / managed.get().max(1);
    let kswapd =
        if reclaimers.iter().any(|name| name.starts_with("kswapd")) { ", kswapd among them" } else { "" };
    Some(finding(
        72,
        format!(
            "{} {RECLAIM}{kswapd}: {} % of memory is files, {} % anonymous, {} % tmpfs and shared memory",
            reclaimers.len(),
            share("files"),
            share("anonymous"),
            share("tmpfs and shared memory")
        ),
        vec![
            format!("in reclaim: {}", reclaimers.iter().take(8).cloned().collect::<Vec<_>>().join(", ")),
            format!(
                "node {} {}: {} free, low watermark {}",
                low.node,
                low.name,
                bytes(low.free.bytes(facts.system.page_size)),
                bytes(low.watermarks[1].bytes(facts.system.page_size))
            ),
        ],
        Next::Memory,
    ))
}

fn memory(facts: &Facts<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let low: Vec<String> = facts
        .memory
        .zones
        .iter()
        .filter(|zone| zone.free < zone.watermarks[0])
        .map(|zone| {
            let [free, min] =
                [zone.free, zone.watermarks[0]].map(|pages| bytes(pages.bytes(facts.system.page_size)));
            format!("node {} {}: {free} free, min watermark {min}", zone.node, zone.name)
        })
        .collect();
    let all = !facts.memory.zones.is_empty() && low.len() == facts.memory.zones.len();
    if !low.is_empty() && (all || facts.death.kind == Some(Kind::OomPanic)) {
        let zones = match all {
            true => "every zone".to_owned(),
            false => format!("{} of {} zones", low.len(), facts.memory.zones.len()),
        };
        found.push(finding(
            70,
            format!("free memory is below the min watermark in {zones}"),
            low,
            Next::Memory,
        ));
    }
    if facts.memory.kswapd_failures >= KSWAPD_GIVES_UP {
        found.push(finding(
            65,
            "kswapd gave up: it freed nothing in 16 runs".into(),
            vec![format!("kswapd_failures {}", facts.memory.kswapd_failures)],
            Next::Memory,
        ));
    }
    if facts.death.oom_kills > 0 && facts.death.kind != Some(Kind::OomPanic) {
        found.push(finding(
            50,
            format!("{} {}", counted(facts.death.oom_kills as u64, "OOM kill"), since(facts)),
            vec!["\"Killed process\" in the log".into()],
            Next::Log { level: Some(4) },
        ));
    }
    found
}

fn blocked(facts: &Facts<'_>) -> Option<Finding> {
    // Those that wait for a lock or hold it have a finding, and so does the task that the watchdog found.
    let hung: &[u32] = blamed_group(facts).map_or(&[], |group| &group.pids);
    let waits =
        |pid: &u32| facts.locks.held.iter().any(|held| held.waiters.iter().any(|wait| wait.pid == *pid));
    let holds = |pid: &u32| {
        let mut long = facts.locks.held.iter().filter(|held| held.longest() >= LONG_WAIT);
        long.any(|held| held.owner.as_ref().is_some_and(|(_, owner)| owner == pid))
    };
    let explained = |pid: &u32| hung.contains(pid) || waits(pid) || holds(pid);
    let unexplained = facts.blocked.iter().filter(|group| !group.pids.iter().all(explained));
    let group = unexplained.max_by(|a, b| a.longest_seconds.total_cmp(&b.longest_seconds))?;
    if group.longest_seconds < LONG_WAIT {
        return None;
    }
    let text = match group.pids.len() {
        1 => format!("{} has been blocked (D) for {:.1} s", group.first, group.longest_seconds),
        count => format!(
            "{count} tasks are blocked (D) with one stack, {} for {:.1} s",
            group.first, group.longest_seconds
        ),
    };
    let evidence = vec![format!("stack: {}", group.stack.innermost(FRAMES))];
    Some(finding(60, text, evidence, Next::Tasks))
}

/// The blocked tasks with the stack of the one that the hung task watchdog found.
fn blamed_group<'a>(facts: &Facts<'a>) -> Option<&'a StackGroup> {
    let (_, pid) = facts.death.task.as_ref().filter(|_| facts.death.kind == Some(Kind::HungTask))?;
    facts.blocked.iter().find(|group| group.pids.contains(pid))
}

/// The worker that the hung task watchdog found.
fn blamed_worker<'a>(facts: &Facts<'a>) -> Option<&'a Worker> {
    let (_, pid) = facts.death.task.as_ref().filter(|_| facts.death.kind == Some(Kind::HungTask))?;
    facts.workers.iter().find(|worker| worker.pid == *pid)
}

/// Whether the task that the hung task watchdog found waits for a lock.
fn waits_for_lock(facts: &Facts<'_>) -> bool {
    let blamed = facts.death.task.as_ref().map(|(_, pid)| *pid);
    facts.locks.held.iter().any(|held| held.waiters.iter().any(|wait| Some(wait.pid) == blamed))
}

fn tasks_that(count: usize, one: &str, several: &str) -> String {
    format!("{} {}", counted(count as u64, "task"), if count == 1 { one } else { several })
}

/// A driver that does not take packets. The watchdog of transmit queues (`dev_watchdog`) resets such a device.
fn stuck_queue(net: &Net) -> Option<Finding> {
    let ready = net.devices.iter().filter(|device| device.up && device.carrier);
    let mut queues = ready.flat_map(|device| device.busy.iter().map(move |queue| (device, queue)));
    let (device, queue) = queues.find(|(_, queue)| {
        queue.stopped && queue.packets > 0 && queue.idle.is_some_and(|idle| idle >= STUCK_QUEUE)
    })?;
    Some(finding(
        62,
        format!(
            "{} does not send: its transmit queue {} has been stopped for {:.1} s with {} waiting",
            device.name,
            queue.index,
            queue.idle.unwrap_or(0.0),
            counted(queue.packets, "packet")
        ),
        vec![format!("netdev_queue {}: __QUEUE_STATE_DRV_XOFF", queue.address)],
        Next::DriverLog,
    ))
}

fn full_backlog(net: &Net) -> Option<Finding> {
    let limit = net.backlog_limit.filter(|limit| *limit > 0)?;
    let full = net.backlogs.iter().find(|backlog| backlog.packets >= limit)?;
    Some(finding(
        58,
        format!("CPU {} drops received packets: {} wait to be processed", full.cpu, full.packets),
        vec![format!("softnet_data: {} dropped since boot; netdev_max_backlog {limit}", full.dropped)],
        Next::Network,
    ))
}

/// A CPU that runs without interrupts for long: others wait for its answers, and their watchdogs notice.
fn spinning_cpu(facts: &Facts<'_>) -> Option<Finding> {
    let silent = |cpu: &Cpu| cpu.seconds_without_tick.unwrap_or(0.0);
    let spins = |cpu: &&Cpu| {
        let possible = !cpu.crashed && !cpu.idle && !cpu.user_mode && cpu.interrupts_on != Some(true);
        possible && silent(cpu) >= NO_TICK
    };
    let cpu = facts.cpus.iter().filter(spins).max_by(|a, b| silent(a).total_cmp(&silent(b)))?;
    let label = |cpu: &Cpu| cpu.task.as_ref().map_or_else(|| "unknown task".into(), |task| task.label());
    let seconds = silent(cpu);
    let frames = cpu.stack.as_ref().map_or(&[][..], |stack| &stack.frames);
    let own = frames.iter().position(|frame| !is_messenger(&frame.function)).unwrap_or(0);
    let frames = frames.get(own..).unwrap_or_default();
    let text = match frames {
        [] => format!("CPU {}, task {}, has had no tick for {seconds:.1} s", cpu.number, label(cpu)),
        frames => format!(
            "CPU {} spins with interrupts off in {}, task {}: no tick for {seconds:.1} s",
            cpu.number,
            place_of(frames, &[]),
            label(cpu)
        ),
    };
    let mut evidence =
        vec![format!("the clock of its run queue is {seconds:.1} s behind that of another CPU")];
    evidence.extend((!frames.is_empty()).then(|| format!("stack: {}", chain(frames, FRAMES))));
    let waits = |other: &&Cpu| {
        other.number != cpu.number && other.stack.as_ref().is_some_and(StackTrace::waits_for_ipi)
    };
    evidence.extend(facts.cpus.iter().filter(waits).take(8).map(|other| {
        format!("CPU {}, {}, waits until another CPU has answered its IPI", other.number, label(other))
    }));
    if !cpu.pending_calls.is_empty() {
        evidence.push(format!("calls that it has not answered: {}", cpu.pending_calls.join(", ")));
    }
    // What others noticed of it is not the cause. An oops is.
    let is_symptom = match facts.death.kind {
        Some(Kind::HungTask | Kind::SoftLockup | Kind::HardLockup | Kind::RcuStall) => true,
        kind => matches!(kind, None | Some(Kind::Nmi | Kind::Requested)),
    };
    let weight = if is_symptom { 101 } else { 83 };
    Some(finding(weight, text, evidence, Next::Cpus))
}

/// Which part of the log events are from.
fn since(facts: &Facts<'_>) -> &'static str {
    if facts.running { "in the log" } else { "before the crash" }
}

fn silent_cpus(facts: &Facts<'_>) -> Option<Finding> {
    facts.died.filter(|_| facts.knows_cpus)?;
    let silent: Vec<String> = facts
        .cpus
        .iter()
        .filter(|cpu| !cpu.saved_registers)
        .map(|cpu| format!("CPU {}", cpu.number))
        .collect();
    // The CPU that crashed needs no NMI to save its own: if none has, no capture kernel was started, as in images by a hypervisor.
    (!silent.is_empty() && silent.len() < facts.cpus.len()).then(|| {
        finding(
            55,
            format!("{} did not answer the NMI that stops CPUs at a crash", silent.join(", ")),
            vec!["no registers in crash_notes".into()],
            Next::Cpus,
        )
    })
}

fn earlier(facts: &Facts<'_>) -> Option<Finding> {
    let first = facts.death.earlier.first()?;
    let count = match facts.death.earlier.len() {
        1 => "a warning or oops".to_owned(),
        count => format!("{count} warnings and oopses"),
    };
    Some(finding(
        40,
        format!("the log has {count}{}", if facts.running { "" } else { " from before the crash" }),
        vec![format!("[{:.6}] {}", first.seconds, first.text)],
        Next::Log { level: Some(4) },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hex::Hex;
    use crate::structures::net::{Backlog, NetDevice, TransmitQueue};

    fn device(up: bool, queue: TransmitQueue) -> Net {
        let device = NetDevice {
            address: Hex(0x1000),
            name: "eth0".into(),
            namespace: None,
            up,
            carrier: true,
            queues: 4,
            busy: vec![queue],
        };
        Net { devices: vec![device], ..Net::default() }
    }

    #[test]
    fn a_stopped_queue_is_stuck_if_packets_wait_in_it_for_long() {
        let queue = TransmitQueue {
            index: 3,
            address: Hex(0x2000),
            stopped: true,
            limited: false,
            packets: 1,
            idle: Some(9.0),
        };
        let finding = stuck_queue(&device(true, queue.clone())).unwrap();
        assert_eq!(
            finding.text,
            "eth0 does not send: its transmit queue 3 has been stopped for 9.0 s with 1 packet waiting"
        );
        let fine = [
            TransmitQueue { idle: Some(1.0), ..queue.clone() },
            TransmitQueue { packets: 0, ..queue.clone() },
            TransmitQueue { stopped: false, ..queue.clone() },
            TransmitQueue { idle: None, ..queue.clone() },
        ];
        assert!(fine.into_iter().all(|queue| stuck_queue(&device(true, queue)).is_none()));
        assert!(stuck_queue(&device(false, queue)).is_none());
    }

    #[test]
    fn list_poison_is_explained() {
        let explained = |line| list_poison(line).unwrap_or_default();
        let line = "BUG: unable to handle page fault for address: dead000000000108";
        assert!(
            explained(line).starts_with("0xdead000000000108 is LIST_POISON1 + 0x8: "),
            "{}",
            explained(line)
        );
        let line =
            "general protection fault, probably for non-canonical address 0xdead000000000122: 0000 [#1]";
        assert!(
            explained(line).starts_with("0xdead000000000122 is LIST_POISON2 + 0x0: "),
            "{}",
            explained(line)
        );
        assert_eq!(list_poison("BUG: kernel NULL pointer dereference, address: 0000000000000108"), None);
    }

    #[test]
    fn a_call_of_a_pointer_to_no_function_blames_the_caller() {
        let caller = FrameName::of(0xffff_ffff_8100_0010, "run_operation");
        let pointer = |pc: u64, function: &str| {
            let cause = [FrameName::of(pc, function), caller.clone()];
            wild_call(&cause, true).map(|(pointer, caller)| format!("{pointer} from {}", caller.function))
        };
        assert_eq!(pointer(0, "0x0").as_deref(), Some("a NULL pointer from run_operation"));
        assert_eq!(pointer(0x5a, "0x5a").as_deref(), Some("the wild pointer 0x5a from run_operation"));
        assert_eq!(pointer(0xffff_ffff_8100_0020, "read_page"), None);
        // It may be code of a module that could not be read.
        let unknown = [FrameName::of(0xffff_ffff_c03d_35a7, "0xffffffffc03d35a7"), FrameName::of(1, "f")];
        assert!(wild_call(&unknown, true).is_some() && wild_call(&unknown, false).is_none());
        assert!(wild_call(&[FrameName::of(0, "0x0")], true).is_none());
    }

    #[test]
    fn a_full_backlog_drops_packets() {
        let backlog = Backlog { cpu: 2, packets: 1000, dropped: 7, squeezed: 0 };
        let net = Net { backlogs: vec![backlog], backlog_limit: Some(1000), ..Net::default() };
        assert_eq!(
            full_backlog(&net).unwrap().text,
            "CPU 2 drops received packets: 1000 wait to be processed"
        );
        assert!(full_backlog(&Net { backlog_limit: Some(1001), ..net.clone() }).is_none());
        assert!(full_backlog(&Net { backlog_limit: None, ..net }).is_none());
    }
}
