//! The verdict: at most five findings, the weightiest first, each with its evidence and what to look at next.

use pagehaul_facts::Kind;
use serde::Serialize;

use crate::block::{Request, Suspended};
use crate::death::Death;
use crate::locks::Locks;
use crate::memory::Memory;
use crate::stacks::StackGroup;
use crate::vmalloc::Vmalloc;
use crate::{Cpu, FrameName, System, Tasks};

/// Findings that are shown.
const MOST: usize = 5;
/// Failures in a row after which kswapd gives up (MAX_RECLAIM_RETRIES).
const KSWAPD_GIVES_UP: u64 = 16;
/// Seconds in flight from which a block request is stuck: the default timeout of a request is 30.
const STUCK_REQUEST: f64 = 10.0;
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
    /// A command that shows more.
    pub next: String,
}

/// What the verdict is made of.
pub struct Facts<'a> {
    /// How the machine died.
    pub death: &'a Death,
    /// The machine.
    pub system: &'a System,
    /// The frames that are to blame.
    pub cause: &'a [FrameName],
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
    /// Memory.
    pub memory: &'a Memory,
    /// Block requests in flight.
    pub requests: &'a [Request],
    /// Device-mapper devices that are suspended.
    pub suspended: &'a [Suspended],
    /// The vmalloc space.
    pub vmalloc: Option<&'a Vmalloc>,
}

/// Weighs the facts.
pub fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(death(facts));
    found.extend(deadlocks(facts));
    found.extend(lock_queues(facts));
    found.extend(stuck_io(facts));
    found.extend(suspended(facts));
    found.extend(backlog(facts));
    found.extend(reclaim(facts));
    found.extend(memory(facts));
    found.extend(blocked(facts));
    found.extend(silent_cpus(facts));
    found.extend(earlier(facts));
    found.sort_by_key(|finding: &Finding| std::cmp::Reverse(finding.weight));
    found.truncate(MOST);
    found
}

fn finding(weight: u32, text: String, evidence: Vec<String>, next: &str) -> Finding {
    Finding { weight, text, evidence: evidence.into_iter().map(Evidence).collect(), next: next.to_owned() }
}

fn place(cause: &[FrameName]) -> String {
    cause.first().map_or_else(|| "an unknown place".into(), |frame| frame.name.clone())
}

fn death(facts: &Facts<'_>) -> Option<Finding> {
    let death = facts.death;
    let kind = death.kind?;
    let mut evidence: Vec<String> = Vec::new();
    for line in [&death.cause, &death.line].into_iter().flatten() {
        evidence.push(format!("[{:.6}] {}", line.seconds, line.text));
    }
    if !facts.cause.is_empty() {
        let frames: Vec<&str> = facts.cause.iter().take(5).map(|frame| frame.function.as_str()).collect();
        evidence.push(format!("stack: {}", frames.join(" < ")));
    }
    let task = facts
        .died
        .and_then(|cpu| cpu.task.as_ref())
        .map_or_else(|| "unknown task".into(), |task| task.label());
    let module = facts.cause.first().and_then(|frame| frame.module.as_ref());
    let of_module = module.map_or_else(String::new, |module| format!(" of module {module}"));
    let blamed = death.task.as_ref().map(|(name, pid)| format!("{name}/{pid}"));
    let panic = death.line.as_ref().map_or("", |line| line.text.as_str());
    let seconds = death.stuck_seconds.map_or_else(String::new, |seconds| format!(" for {seconds} s"));
    let (text, next) = match kind {
        Kind::Requested => (
            format!("{task} crashed the machine on purpose (SysRq c): the log may show why"),
            "pagehaul dmesg DUMP --level 4",
        ),
        Kind::NullDeref
        | Kind::PageFault
        | Kind::Gpf
        | Kind::Bug
        | Kind::Warn
        | Kind::Sanitizer
        | Kind::DoubleFault
        | Kind::StackOverflow => (
            format!("{} in {}{of_module}, task {task}", kind.describe(), place(facts.cause))
                + &death.corruption.as_ref().map_or_else(String::new, |line| format!(": {}", line.text)),
            "crash: bt -f, dis -rl ADDRESS",
        ),
        Kind::HungTask => (
            format!(
                "{} was blocked{} in {}",
                blamed.unwrap_or(task),
                seconds.replace(" for", " for more than"),
                place(facts.cause)
            ),
            "pagehaul triage DUMP --section waits",
        ),
        Kind::SoftLockup | Kind::HardLockup | Kind::RcuStall => (
            format!(
                "{}: {}{} ran{seconds} without a break in {}{of_module}",
                kind.describe(),
                death.cpu.map_or_else(String::new, |cpu| format!("CPU {cpu}, ")),
                blamed.unwrap_or(task),
                place(facts.cause)
            ),
            "pagehaul triage DUMP --section cpus",
        ),
        Kind::OomPanic => {
            let (managed, free) = facts.memory.total();
            evidence
                .push(format!("{free} of {managed} pages free, {} OOM kills in the log", death.oom_kills));
            if let Some(largest) = facts.memory.processes.first() {
                evidence.push(format!(
                    "largest process {}/{}: {} pages",
                    largest.comm,
                    largest.pid,
                    largest.rss()
                ));
            }
            ("the machine ran out of memory".into(), "pagehaul triage DUMP --section memory")
        }
        Kind::Nmi => (
            format!("an NMI stopped the machine in {}", place(facts.cause)),
            "pagehaul triage DUMP --section cpus",
        ),
        Kind::Mce => ("the processor reported a hardware error".into(), "pagehaul dmesg DUMP --level 2"),
        Kind::Fs => ("a file system stopped the machine".into(), "pagehaul dmesg DUMP --level 4"),
        Kind::Other if panic.contains("Attempted to kill init") => {
            ("the init process ended".into(), "pagehaul dmesg DUMP")
        }
        Kind::Other if death.cause.is_some() => (
            format!("oops in {}{of_module}, task {task}", place(facts.cause)),
            "crash: bt -f, dis -rl ADDRESS",
        ),
        Kind::Other => {
            (format!("the kernel panicked in {}, task {task}", place(facts.cause)), "crash: bt, log")
        }
    };
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
                "pagehaul triage DUMP --section waits",
            )
        })
        .collect()
}

fn lock_queues(facts: &Facts<'_>) -> Option<Finding> {
    let in_cycle = |pid: u32| facts.locks.cycles.iter().any(|cycle| cycle.contains(&pid));
    let held =
        facts.locks.held.iter().find(|held| {
            held.longest() >= LONG_WAIT && !held.waiters.iter().all(|wait| in_cycle(wait.pid))
        })?;
    let owner =
        held.owner.as_ref().map_or_else(|| "an unknown task".into(), |(name, pid)| format!("{name}/{pid}"));
    let evidence = held
        .waiters
        .iter()
        .take(3)
        .map(|wait| format!("{}/{} waits {:.1} s", wait.comm, wait.pid, wait.seconds.unwrap_or(0.0)));
    let hint = if held.owner_is_hint { " (last known holder)" } else { "" };
    Some(finding(
        80,
        format!(
            "{} tasks wait up to {:.1} s for {} {}, held by {owner}{hint}",
            held.waiters.len(),
            held.longest(),
            held.kind,
            held.name
        ),
        evidence.collect(),
        "pagehaul triage DUMP --section waits",
    ))
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
            "{} block requests in flight, the oldest on {} for {:.1} s",
            facts.requests.len(),
            oldest.disk,
            oldest.age.unwrap_or(0.0)
        ),
        evidence.collect(),
        "crash: dev -d, struct request ADDRESS",
    ))
}

fn suspended(facts: &Facts<'_>) -> Option<Finding> {
    let device = facts.suspended.iter().find(|device| device.has_waiting)?;
    let blocked: usize = facts.blocked.iter().map(|group| group.pids.len()).sum();
    Some(finding(
        85,
        format!(
            "{} is suspended while writes or reads of it wait; {blocked} tasks are blocked (D)",
            device.disk
        ),
        vec![format!("mapped_device {}: suspended, with deferred bios", device.address)],
        "dmsetup info: which program suspended it and never resumed it",
    ))
}

/// More areas wait for a purge than the kernel lets wait (`lazy_max_pages()`: 32 MiB for each power of two of CPUs).
fn backlog(facts: &Facts<'_>) -> Option<Finding> {
    const STEP_PAGES: u64 = (32 << 20) / 4096;
    let pages = facts.vmalloc?.backlog_pages?;
    let most = u64::from((facts.system.cpus as u64).checked_ilog2()? + 1) * STEP_PAGES;
    let mib = |pages: u64| pages / 256;
    (pages > most).then(|| {
        finding(
            68,
            format!(
                "{} MiB of vmalloc areas are freed but not purged, more than the limit of {} MiB",
                mib(pages),
                mib(most)
            ),
            vec![format!(
                "vmap_lazy_nr {pages} pages: purges do not keep up, and all CPUs pay for their TLB flushes"
            )],
            "pagehaul triage DUMP --section memory",
        )
    })
}

/// Several tasks reclaim at once, with a zone below its low watermark. kswapd alone is everyday life.
fn reclaim(facts: &Facts<'_>) -> Option<Finding> {
    const SEVERAL: usize = 2;
    let memory = facts.memory;
    let low = memory.zones.iter().find(|zone| zone.free < zone.watermarks[1])?;
    let reclaimers = &memory.reclaimers;
    if reclaimers.len() < SEVERAL {
        return None;
    }
    let (managed, _) = memory.total();
    let file: u64 =
        ["nr_active_file", "nr_inactive_file"].iter().filter_map(|name| memory.counter(name)).sum();
    let anon: u64 =
        ["nr_active_anon", "nr_inactive_anon"].iter().filter_map(|name| memory.counter(name)).sum();
    let kswapd =
        if reclaimers.iter().any(|name| name.starts_with("kswapd")) { ", kswapd among them" } else { "" };
    Some(finding(
        72,
        format!(
            "{} tasks reclaim memory{kswapd}: file pages are {} % of memory, anonymous ones {} %",
            reclaimers.len(),
            100 * file / managed.max(1),
            100 * anon / managed.max(1)
        ),
        vec![
            format!("in reclaim: {}", reclaimers.iter().take(8).cloned().collect::<Vec<_>>().join(", ")),
            format!("node {} {}: {} free, low watermark {}", low.node, low.name, low.free, low.watermarks[1]),
        ],
        "pagehaul triage DUMP --section memory",
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
            format!("node {} {}: {} free, min {}", zone.node, zone.name, zone.free, zone.watermarks[0])
        })
        .collect();
    let all = !facts.memory.zones.is_empty() && low.len() == facts.memory.zones.len();
    if !low.is_empty() && (all || facts.death.kind == Some(Kind::OomPanic)) {
        let zones = low.len();
        found.push(finding(
            70,
            format!(
                "free memory is below the min watermark in {zones} of {} zones",
                facts.memory.zones.len()
            ),
            low,
            "pagehaul triage DUMP --section memory",
        ));
    }
    if facts.memory.kswapd_failures >= KSWAPD_GIVES_UP {
        found.push(finding(
            65,
            "kswapd gave up: it freed nothing in 16 runs".into(),
            vec![format!("kswapd_failures {}", facts.memory.kswapd_failures)],
            "pagehaul triage DUMP --section memory",
        ));
    }
    if facts.death.oom_kills > 0 && facts.death.kind != Some(Kind::OomPanic) {
        found.push(finding(
            50,
            format!("the OOM killer ended {} processes before the crash", facts.death.oom_kills),
            vec!["\"Killed process\" in the log".into()],
            "pagehaul dmesg DUMP --level 4",
        ));
    }
    found
}

fn blocked(facts: &Facts<'_>) -> Option<Finding> {
    // Those that wait for a lock have a finding.
    let explained =
        |pid: &u32| facts.locks.held.iter().any(|held| held.waiters.iter().any(|wait| wait.pid == *pid));
    let unexplained = facts.blocked.iter().filter(|group| !group.pids.iter().all(explained));
    let group = unexplained.max_by(|a, b| a.longest_seconds.total_cmp(&b.longest_seconds))?;
    if group.longest_seconds < LONG_WAIT {
        return None;
    }
    let count: usize = facts.blocked.iter().map(|group| group.pids.len()).sum();
    let frames: Vec<&str> = group.stack.functions().take(8).collect();
    Some(finding(
        60,
        format!(
            "{count} tasks are blocked (D), the longest, {}, for {:.1} s",
            group.first, group.longest_seconds
        ),
        vec![format!("stack: {}", frames.join(" < "))],
        "pagehaul triage DUMP --section tasks",
    ))
}

fn silent_cpus(facts: &Facts<'_>) -> Option<Finding> {
    facts.died?;
    let silent: Vec<String> = facts
        .cpus
        .iter()
        .filter(|cpu| !cpu.saved_registers)
        .map(|cpu| format!("CPU {}", cpu.number))
        .collect();
    (!silent.is_empty()).then(|| {
        finding(
            55,
            format!("{} did not answer the NMI that stops CPUs at a crash", silent.join(", ")),
            vec!["no registers in crash_notes".into()],
            "pagehaul triage DUMP --section cpus",
        )
    })
}

fn earlier(facts: &Facts<'_>) -> Option<Finding> {
    let first = facts.death.earlier.first()?;
    Some(finding(
        40,
        format!("{} warnings or oopses came before", facts.death.earlier.len()),
        vec![format!("[{:.6}] {}", first.seconds, first.text)],
        "pagehaul dmesg DUMP --level 4",
    ))
}
