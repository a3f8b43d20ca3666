//! The report as text.

use std::fmt::Write as _;

use pagehaul_facts::Kind;
use pagehaul_inspect::{
    Detail, FrameName, Held, NetDevice, Part, StackTrace, Task, TaskStack, Timers, TriageReport, chain,
    is_kib,
};
use pagehaul_machine::PageCount;
use pagehaul_present::Table;
use pagehaul_present::number::{bytes, count, counted};
use pagehaul_present::time::{seconds, utc};

use super::Section;

/// Lines of each list on the one screen.
const FEW: usize = 4;
/// Rows of slab caches and vmalloc callers.
const ROWS: usize = 10;
/// Memory mappings of a process.
const MAPPINGS: usize = 32;
/// What is said of a list of modules that broke off.
const NOT_ALL_MODULES: &str = "the others could not be read";
/// Frames of a stack in one line.
pub(super) const INNERMOST: usize = 4;

/// Writing to a string does not fail.
macro_rules! put {
    ($out:expr, $($text:tt)*) => {{ let _ = writeln!($out, $($text)*); }};
}

/// The one screen.
pub(super) fn summary(report: &TriageReport, name: &str) -> String {
    let mut out = String::new();
    header(report, name, &mut out);
    what(report, &mut out, false);
    verdict(report, &mut out);
    cpus(report, &mut out, false);
    tasks_section(report, &mut out, false);
    waits(report, &mut out, false);
    memory(report, &mut out, false);
    io(report, &mut out, false);
    net(report, &mut out, false);
    modules(report, &mut out, false);
    missing(report, &mut out);
    out
}

/// Some sections, in full, and what is missing.
pub(super) fn sections(report: &TriageReport, timers: &Timers, sections: &[Section]) -> String {
    let mut out = sections_only(report, timers, sections);
    missing(report, &mut out);
    out
}

/// Some sections, in full.
pub(super) fn sections_only(report: &TriageReport, timers: &Timers, sections: &[Section]) -> String {
    let mut out = String::new();
    for section in sections {
        match section {
            Section::What => what(report, &mut out, true),
            Section::Verdict => verdict(report, &mut out),
            Section::Cpus => cpus(report, &mut out, true),
            Section::Tasks => tasks_section(report, &mut out, true),
            Section::Waits => waits(report, &mut out, true),
            Section::Memory => memory(report, &mut out, true),
            Section::Io => io(report, &mut out, true),
            Section::Net => net(report, &mut out, true),
            Section::Timers => self::timers(timers, &mut out),
            Section::Modules => modules(report, &mut out, true),
            Section::Log => log(report, &mut out),
        }
    }
    out
}

fn header(report: &TriageReport, name: &str, out: &mut String) {
    let system = &report.system;
    let mut facts = vec![system.release.clone()];
    facts.extend(system.hostname.iter().filter(|host| *host != "(none)").map(|host| format!("host {host}")));
    facts.extend((system.cpus > 0).then(|| counted(system.cpus as u64, "CPU")));
    facts.extend(system.uptime.map(|uptime| format!("up {}", seconds(uptime))));
    facts.extend(system.crash_time.map(|time| format!("crashed {}", utc(time))));
    facts.extend(system.load.map(|[one, five, fifteen]| format!("load {one:.2} {five:.2} {fifteen:.2}")));
    put!(out, "{name}: {}", facts.join(", "));
    for taint in &system.taints {
        put!(out, "taint {}: {}", taint.letter, taint.meaning);
    }
}

fn what(report: &TriageReport, out: &mut String, full: bool) {
    let death = &report.death;
    if report.running {
        put!(out, "\nThe machine runs: this is the moment at which its memory was read");
    } else {
        put!(out, "\nWhat happened: {}", death.describe());
    }
    match &death.unknown {
        _ if death.kind.is_some() || report.running => {}
        Some(why) => put!(out, "  {why}"),
        None => {
            put!(
                out,
                "  the log has no panic: the memory of a running machine, or of one that stopped silently"
            );
        }
    }
    for line in [&death.cause, &death.line].into_iter().flatten() {
        put!(out, "  [{:.6}] {}", line.seconds, line.text);
    }
    if let Some(cpu) = report.cpus.iter().find(|cpu| cpu.crashed) {
        let task = cpu.task.as_ref().map_or_else(|| "unknown".into(), Task::label);
        // The task that was blocked has its stack below, not the watchdog that noticed it.
        match &death.task {
            Some((name, pid)) if death.kind == Some(Kind::HungTask) => {
                put!(out, "  noticed by {task} on CPU {}; stack of {name}/{pid}:", cpu.number);
            }
            _ => put!(out, "  CPU {}, task {task}", cpu.number),
        }
    }
    put_frames(&report.cause, full, if full { usize::MAX } else { 8 }, &mut *out);
    if let Some(signature) = &report.signature {
        put!(out, "  signature {} ({})", signature.sig, signature.text());
    }
    if full {
        if let Some(line) = &report.system.command_line {
            put!(out, "  command line {line}");
        }
        for line in &death.earlier {
            put!(out, "  before: [{:.6}] {}", line.seconds, line.text);
        }
    }
}

/// The verdict without a finding, which names what was not looked at.
pub(super) fn nothing_found(report: &TriageReport) -> String {
    if report.gaps.is_empty() {
        return "nothing suspicious found".into();
    }
    format!("nothing suspicious found in what could be read; {}", report.gaps.describe())
}

fn verdict(report: &TriageReport, out: &mut String) {
    put!(out, "\nVerdict");
    if report.verdict.is_empty() {
        put!(out, "  {}", nothing_found(report));
    }
    for (at, finding) in report.verdict.iter().enumerate() {
        put!(out, "  {}. {}", at + 1, finding.text);
        for evidence in &finding.evidence {
            put!(out, "       {}", evidence.0);
        }
        put!(out, "       next: {}", finding.next);
    }
}

fn cpus(report: &TriageReport, out: &mut String, full: bool) {
    if report.gaps.lacks(Part::Cpus) {
        put!(out, "\nCPUs: not known");
        return;
    }
    put!(out, "\nCPUs");
    for cpu in &report.cpus {
        let task = cpu.task.as_ref().map_or_else(|| "unknown".into(), Task::label);
        let mut facts = Vec::new();
        if cpu.crashed {
            facts.push("crashed".to_owned());
        }
        if !cpu.saved_registers {
            facts.push(without_registers(report).to_owned());
        }
        if cpu.user_mode {
            facts.push("user mode".into());
        }
        if cpu.interrupts_on == Some(false) && !cpu.user_mode {
            facts.push("interrupts off".into());
        }
        let without_tick = cpu.seconds_without_tick.filter(|seconds| *seconds >= 1.0 && !cpu.crashed);
        facts.extend(without_tick.map(|passed| format!("no tick for {}", seconds(passed))));
        facts.extend(cpu.runnable.map(|runnable| format!("{runnable} runnable")));
        let place = match &cpu.stack {
            Some(_) if cpu.idle => "idle".into(),
            // The cause says more than the functions that report it.
            Some(_) if cpu.crashed && report.death.kind != Some(Kind::HungTask) && !full => {
                chain(&report.cause, INNERMOST)
            }
            Some(stack) if !full => stack.innermost(INNERMOST),
            _ => String::new(),
        };
        put!(out, "  {:<4} {task:<22} {:<28} {place}", cpu.number, facts.join(", "));
        if let Some(stack) = cpu.stack.as_ref().filter(|_| full) {
            stack_lines(stack, out);
        }
    }
}

/// Why a CPU has no registers.
fn without_registers(report: &TriageReport) -> &'static str {
    match (report.running, report.cpus.iter().any(|cpu| cpu.saved_registers)) {
        (true, _) => "running",
        (false, true) => "no registers: it did not answer",
        (false, false) => "no registers in the dump",
    }
}

/// The number of tasks, or the least possible one.
pub(super) fn task_count(report: &TriageReport) -> String {
    format!("{}{}", at_least(report, Part::Tasks), count(report.tasks.all.len() as u64))
}

fn at_least(report: &TriageReport, part: Part) -> &'static str {
    if report.gaps.is_partial(part) { "at least " } else { "" }
}

fn tasks_section(report: &TriageReport, out: &mut String, full: bool) {
    let states: Vec<String> =
        report.states.iter().map(|(letter, number)| format!("{} {letter}", count(*number as u64))).collect();
    if report.tasks.all.is_empty() {
        put!(out, "\nTasks: not known");
        return;
    }
    put!(out, "\nTasks: {} ({})", task_count(report), states.join(", "));
    let shown = if full { report.blocked.len() } else { FEW };
    for group in report.blocked.iter().take(shown) {
        let others = match group.pids.len() {
            1 => String::new(),
            number => format!(" and {} more", number - 1),
        };
        let place = if full { String::new() } else { group.stack.innermost(INNERMOST) };
        put!(out, "  D {}{others}, up to {}: {place}", group.first, seconds(group.longest_seconds));
        if full {
            let pids: Vec<String> = group.pids.iter().take(50).map(ToString::to_string).collect();
            put!(out, "    PIDs {}", pids.join(" "));
            stack_lines(&group.stack, out);
        }
    }
    more(report.blocked.len(), shown, "groups of blocked tasks", out);
    // On the one screen, those that block others.
    let in_state_d = |pid| report.tasks.by_pid(pid).is_some_and(|task| task.state == 'D');
    let workers = report.workers.iter().filter(|worker| full || in_state_d(worker.pid));
    for worker in workers.take(if full { usize::MAX } else { FEW }) {
        let what = worker.describe();
        put!(out, "  worker {}/{} runs {what}, {} pending", worker.comm, worker.pid, count(worker.pending));
    }
}

fn waits(report: &TriageReport, out: &mut String, full: bool) {
    let locks = &report.locks;
    if let Some(none) = locks.none() {
        if full {
            put!(out, "\nWho waits for whom: {none}");
        }
        return;
    }
    put!(out, "\nWho waits for whom");
    let shown = if full { locks.held.len() } else { FEW };
    for held in locks.held.iter().take(shown) {
        let owner = match &held.owner {
            Some((name, pid)) => format!("{} {name}/{pid}", held.held_by()),
            None => held.readers.map_or_else(
                || "holder unknown".into(),
                |readers| format!("held by {}", counted(readers, "reader")),
            ),
        };
        let place = holder_place(report, held).unwrap_or_default();
        put!(
            out,
            "  {} {}, {owner}{place}: {} up to {}",
            held.kind,
            held.name,
            waits_of(held.waiters.len()),
            seconds(held.longest())
        );
        if full {
            put!(
                out,
                "    {} at {}",
                if held.kind == "work" { "work" } else { "lock" },
                held.lock.map_or_else(|| "an unknown address".into(), |lock| lock.to_string())
            );
            for wait in &held.waiters {
                put!(out, "    {}/{}, {}", wait.comm, wait.pid, seconds(wait.seconds.unwrap_or(0.0)));
            }
        }
    }
    more(locks.held.len(), shown, "locks", out);
    for cycle in &locks.cycles {
        let names = cycle
            .iter()
            .chain(cycle.first())
            .map(|pid| report.tasks.by_pid(*pid).map_or_else(|| pid.to_string(), Task::label));
        let names: Vec<String> = names.collect();
        put!(out, "  deadlock: {}", names.join(", which waits for ").replacen(", which waits", " waits", 1));
    }
    if !locks.unknown.is_empty() {
        let pids: Vec<String> = locks.unknown.iter().take(20).map(ToString::to_string).collect();
        put!(out, "  lock not found for PIDs {}", pids.join(" "));
    }
}

fn waits_of(tasks: usize) -> String {
    format!("{} {}", counted(tasks as u64, "task"), if tasks == 1 { "waits" } else { "wait" })
}

/// Where the holder of a lock is: what it waits for in turn.
fn holder_place(report: &TriageReport, held: &Held) -> Option<String> {
    let (_, pid) = held.owner.as_ref()?;
    let task = report.tasks.by_pid(*pid)?;
    let place = held.owner_stack.as_ref().map(|stack| stack.innermost(INNERMOST));
    Some(match place {
        Some(place) if task.state == 'D' => format!(", blocked in {place}"),
        Some(place) => format!(" (state {}) in {place}", task.state),
        None => format!(" (state {})", task.state),
    })
}

/// What of the page cache is not on the disk yet.
fn unwritten(report: &TriageReport) -> String {
    let counters = [("nr_dirty", "dirty"), ("nr_writeback", "under writeback")];
    let counts = counters.map(|(counter, name)| (report.memory.counter(counter).unwrap_or_default(), name));
    let counts = counts.iter().filter(|(pages, _)| *pages > PageCount::ZERO);
    let size = |pages: PageCount| bytes(pages.bytes(report.system.page_size));
    let notes: Vec<String> = counts.map(|(pages, name)| format!("{} {name}", size(*pages))).collect();
    if notes.is_empty() { String::new() } else { format!(" ({})", notes.join(", ")) }
}

fn memory(report: &TriageReport, out: &mut String, full: bool) {
    let memory = &report.memory;
    let size = |pages: PageCount| bytes(pages.bytes(report.system.page_size));
    let mut facts = Vec::new();
    // A dump may lack them.
    if !memory.zones.is_empty() {
        let (managed, free) = memory.total();
        facts.push(format!("{} managed", size(managed)));
        if memory.usage.is_empty() {
            facts.push(format!("{} free", size(free)));
        }
    }
    for (name, pages) in memory.usage.iter().filter(|(_, pages)| *pages > PageCount::ZERO) {
        let notes = if *name == "files" { unwritten(report) } else { String::new() };
        facts.push(format!("{name} {}{notes}", size(*pages)));
    }
    if let Some(unaccounted) = memory.unaccounted.filter(|pages| *pages > 0) {
        facts.push(format!("{} {}", memory.rest_name(), size(PageCount::new(unaccounted as u64))));
    }
    if facts.is_empty() {
        put!(out, "\nMemory: not known");
        return;
    }
    put!(out, "\nMemory: {}", facts.join(", "));
    let mut table = Table::new(["zone (pages)", "managed", "free", "per-CPU lists", "min", "low", "high"]);
    for zone in &memory.zones {
        let [min, low, high] = zone.watermarks;
        let numbers = [zone.managed, zone.free, zone.per_cpu, min, low, high].map(|pages| count(pages.get()));
        table.row([vec![format!("{} {}", zone.node, zone.name)], numbers.to_vec()].concat());
    }
    if !memory.zones.is_empty() {
        put!(out, "{}", table.to_string().trim_end());
    }
    if !memory.reclaimers.is_empty() {
        let names = memory.reclaimers.iter().take(ROWS).cloned().collect::<Vec<_>>().join(", ");
        put!(out, "  in reclaim: {}: {names}", counted(memory.reclaimers.len() as u64, "task"));
    }
    if !full {
        let largest = memory.processes.iter().take(3);
        let largest: Vec<String> =
            largest.map(|it| format!("{}/{} {}", it.comm, it.pid, size(it.rss()))).collect();
        if !largest.is_empty() {
            put!(out, "  largest processes: {}", largest.join(", "));
        }
        return;
    }
    let orders = memory.zones.iter().map(|zone| zone.orders.len()).max().unwrap_or(0);
    let header =
        ["free blocks by order".to_owned()].into_iter().chain((0..orders).map(|order| order.to_string()));
    let mut table = Table::new(header);
    for zone in &memory.zones {
        let name = format!("{} {}", zone.node, zone.name);
        table.row([name].into_iter().chain(zone.orders.iter().map(|number| count(*number))));
    }
    put!(out, "\n{}", table.to_string().trim_end());
    let mut table = Table::new(["counter", "pages"]);
    table.rows(memory.counters.iter().map(|(name, value)| {
        let unit = if is_kib(name) { " KiB" } else { "" };
        [(*name).to_owned(), count(*value) + unit]
    }));
    if let Some((total, free)) = memory.swap {
        table.row(["swap total".to_owned(), count(total.get())]);
        table.row(["swap free".to_owned(), count(free.get())]);
    }
    put!(out, "\n{}", table.to_string().trim_end());
    let mut table = Table::new(["process", "pid", "resident", "anonymous", "file", "shared memory", "swap"]);
    for process in &memory.processes {
        let sizes = [process.rss(), process.anon, process.file, process.shmem, process.swap];
        let sizes = sizes.map(&size);
        table.row([vec![process.comm.clone(), process.pid.to_string()], sizes.to_vec()].concat());
    }
    put!(out, "\n{}", table.to_string().trim_end());
    let mut table = Table::new(["slab cache", "bytes", "slabs", "objects", "object size"]);
    for cache in report.slab.iter().take(ROWS) {
        table.row([
            cache.name.clone(),
            bytes(cache.bytes),
            count(cache.slabs),
            count(cache.objects),
            cache.object_size.to_string(),
        ]);
    }
    put!(out, "\n{}", table.to_string().trim_end());
    if let Some(vmalloc) = &report.vmalloc {
        let backlog = vmalloc.backlog_pages.map_or_else(
            || "unknown backlog".to_owned(),
            |pages| format!("{} freed but not purged", size(pages)),
        );
        put!(out, "\nvmalloc: {} areas, {}, {backlog}", count(vmalloc.areas), bytes(vmalloc.bytes));
        let mut table = Table::new(["caller", "bytes", "areas"]);
        table.rows(
            vmalloc
                .callers
                .iter()
                .take(ROWS)
                .map(|row| [row.caller.clone(), bytes(row.bytes), count(row.areas)]),
        );
        put!(out, "{}", table.to_string().trim_end());
    }
}

fn io(report: &TriageReport, out: &mut String, full: bool) {
    for device in &report.suspended {
        let waiting = if device.has_waiting { ", I/O waits" } else { "" };
        put!(out, "\nSuspended: {}, mapped_device {}{waiting}", device.disk, device.address);
    }
    if report.requests.is_empty() && !full {
        return;
    }
    put!(out, "\nBlock requests in flight: {}", count(report.requests.len() as u64));
    let shown = if full { report.requests.len() } else { FEW };
    for request in report.requests.iter().take(shown) {
        let age = request.age.map_or_else(|| "unknown age".into(), seconds);
        put!(
            out,
            "  {}: {} of {}, {age}, {}",
            request.disk,
            request.operation,
            bytes(request.bytes),
            request.address
        );
    }
    more(report.requests.len(), shown, "requests", out);
}

fn net(report: &TriageReport, out: &mut String, full: bool) {
    let net = &report.net;
    let busy = net.devices.iter().filter(|device| !device.busy.is_empty()).count();
    let received: u64 = net.backlogs.iter().map(|backlog| backlog.packets).sum();
    if !full && busy == 0 && received == 0 {
        return;
    }
    let to_send: u64 = net.devices.iter().flat_map(|device| &device.busy).map(|queue| queue.packets).sum();
    put!(
        out,
        "\nNetwork: {}, {} to send, {} received but not processed",
        counted(net.devices.len() as u64, "device"),
        counted(to_send, "packet"),
        count(received)
    );
    let shown = if full { usize::MAX } else { FEW };
    for device in net.devices.iter().filter(|device| !device.busy.is_empty()).take(shown) {
        for queue in device.busy.iter().take(shown) {
            let mut facts = vec![counted(queue.packets, "packet")];
            facts.extend(queue.stopped.then(|| "stopped by the driver".to_owned()));
            facts.extend(queue.limited.then(|| "at its limit of bytes in flight".to_owned()));
            facts.extend(queue.idle.map(|idle| format!("last sent {} ago", seconds(idle))));
            put!(out, "  {} queue {}: {}, {}", device.name, queue.index, facts.join(", "), queue.address);
        }
        more(device.busy.len(), shown, "queues", out);
    }
    more(busy, shown, "devices", out);
    if !full {
        return;
    }
    let mut table = Table::new(["device", "namespace", "state", "queues", "net_device"]).left([0, 2]);
    table.rows(net.devices.iter().map(|device| {
        let namespace = device.namespace.map_or_else(String::new, |number| number.to_string());
        let state = link_state(device).to_owned();
        [device.name.clone(), namespace, state, count(device.queues), device.address.to_string()]
    }));
    if !net.devices.is_empty() {
        put!(out, "\n{}", table.to_string().trim_end());
    }
    let mut table = Table::new(["CPU", "packets in the backlog", "dropped", "time squeezed"]);
    for backlog in &net.backlogs {
        table.row([backlog.cpu, backlog.packets, backlog.dropped, backlog.squeezed].map(count));
    }
    if !net.backlogs.is_empty() {
        put!(out, "\n{}", table.to_string().trim_end());
    }
}

fn link_state(device: &NetDevice) -> &'static str {
    match (device.up, device.carrier) {
        (false, _) => "down",
        (true, false) => "up, no carrier",
        (true, true) => "up",
    }
}

fn timers(timers: &Timers, out: &mut String) {
    put!(out, "\nPending timers: {}", count(timers.all.len() as u64));
    let mut table = Table::new(["CPU", "expires in", "kind", "function", "for", "address"]).left([2, 3, 4]);
    for timer in &timers.all {
        let sign = if timer.seconds < 0.0 { "-" } else { "" };
        table.row([
            timer.cpu.to_string(),
            format!("{sign}{}", seconds(timer.seconds.abs())),
            timer.kind.to_owned(),
            timer.function.clone(),
            timer.of.clone().unwrap_or_default(),
            timer.address.to_string(),
        ]);
    }
    if !timers.all.is_empty() {
        put!(out, "{}", table.to_string().trim_end());
    }
    for why in &timers.broken {
        put!(out, "  {why}");
    }
}

fn modules(report: &TriageReport, out: &mut String, full: bool) {
    let modules = &report.modules;
    if !report.modules_known {
        put!(out, "\nModules: not known");
        return;
    }
    if full {
        let mut table = Table::new(["module", "base", "size", "taints"]).left([0, 1, 3]);
        for module in modules {
            table.row([
                module.name.clone(),
                module.base.to_string(),
                bytes(module.size),
                module.taints.clone(),
            ]);
        }
        put!(out, "\n{}", table.to_string().trim_end());
        if report.gaps.is_partial(Part::Modules) {
            put!(out, "  {NOT_ALL_MODULES}");
        }
        return;
    }
    let on_stack = |name: &str| report.cause.iter().any(|frame| frame.module.as_deref() == Some(name));
    let odd: Vec<String> = modules
        .iter()
        .filter(|module| !module.taints.is_empty())
        .map(|module| {
            let blamed = if on_stack(&module.name) { ", on the stack that died" } else { "" };
            format!("{} ({}{blamed})", module.name, module.taints)
        })
        .collect();
    let partial = report.gaps.is_partial(Part::Modules);
    let odd = match odd.is_empty() {
        // One of those that are not known may taint it.
        true if partial => NOT_ALL_MODULES.into(),
        true => "none taints the kernel".into(),
        false => odd.join(", "),
    };
    put!(out, "\nModules: {}{}; {odd}", at_least(report, Part::Modules), count(modules.len() as u64));
}

fn log(report: &TriageReport, out: &mut String) {
    put!(out, "\nEnd of the log");
    for last in &report.log {
        let mark = if last.important { '!' } else { ' ' };
        put!(out, "{mark} [{:12.6}] {}", last.line.seconds, last.line.text);
    }
}

fn missing(report: &TriageReport, out: &mut String) {
    if report.missing.is_empty() {
        return;
    }
    put!(out, "\nMissing");
    for why in report.missing.iter().take(20) {
        put!(out, "  {why}");
    }
    more(report.missing.len(), 20, "facts that are missing", out);
}

/// All tasks, with their stacks if there are any.
pub(super) fn tasks(report: &TriageReport, stacks: &[TaskStack]) -> String {
    if stacks.is_empty() {
        let mut table = Table::new(["pid", "tgid", "ppid", "state", "cpu", "last run", "comm"]).left([3, 6]);
        for task in &report.tasks.all {
            let name = if task.kernel_thread { format!("[{}]", task.comm) } else { task.comm.clone() };
            table.row([
                task.pid.to_string(),
                task.tgid.to_string(),
                task.ppid.to_string(),
                task.state.to_string(),
                task.cpu.to_string(),
                task.seconds_since_run.map_or_else(String::new, seconds),
                name,
            ]);
        }
        return table.to_string();
    }
    let mut out = String::new();
    for (task, stack) in report.tasks.all.iter().zip(stacks) {
        task_line(task, &mut out);
        match &stack.stack {
            Some(stack) => stack_lines(stack, &mut out),
            None => put!(out, "    no stack: user mode, or it cannot be read"),
        }
        out.push('\n');
    }
    out
}

/// One task.
pub(super) fn one_task(
    report: &TriageReport,
    task: &Task,
    detail: &Detail,
    stack: Option<&StackTrace>,
) -> String {
    let mut out = String::new();
    task_line(task, &mut out);
    let flags = detail.flags.iter().map(|flag| format!(", {flag}")).collect::<String>();
    put!(out, "  task_struct {}, mm_struct {}, flags {}{flags}", task.address, task.mm, task.flags);
    if let Some(cgroup) = &detail.cgroup {
        put!(out, "  cgroup {cgroup}");
    }
    let mut parents = Vec::new();
    let mut at = task;
    while let Some(parent) = report.tasks.by_pid(at.ppid).filter(|_| parents.len() < 32 && at.ppid != 0) {
        parents.push(parent.label());
        at = parent;
    }
    if !parents.is_empty() {
        put!(out, "  parents {}", parents.join(" < "));
    }
    for held in &report.locks.held {
        if held.waiters.iter().any(|wait| wait.pid == task.pid) {
            let owner =
                held.owner.as_ref().map_or_else(|| "unknown".into(), |(name, pid)| format!("{name}/{pid}"));
            put!(out, "  waits for {} {}, held by {owner}", held.kind, held.name);
        }
        if held.owner.as_ref().is_some_and(|(_, pid)| *pid == task.pid) {
            put!(out, "  holds {} {}, {}", held.kind, held.name, waits_of(held.waiters.len()));
        }
    }
    match stack {
        Some(stack) => stack_lines(stack, &mut out),
        None => put!(out, "  no stack: user mode, or it cannot be read"),
    }
    for (title, registers) in [
        ("registers in the kernel", &detail.kernel_registers),
        ("registers at the entry from user mode", &detail.registers),
    ] {
        if !registers.is_empty() {
            put!(out, "  {title}");
        }
        for row in registers.chunks(3) {
            let row: Vec<String> =
                row.iter().map(|(name, value)| format!("{name:>5} {:016x}", value.0)).collect();
            put!(out, "    {}", row.join("  "));
        }
    }
    if let Some(open) = detail.open_files {
        put!(out, "  {}", counted(open, "open file"));
        for file in &detail.files {
            put!(out, "    {:>4} {}", file.descriptor, file.name);
        }
        more(open as usize, detail.files.len(), "open files", &mut out);
    }
    mappings(detail, &mut out);
    out
}

fn mappings(detail: &Detail, out: &mut String) {
    if let Some(mappings) = detail.mappings {
        put!(out, "  {}", counted(mappings, "memory mapping"));
    }
    for vma in detail.vmas.iter().take(MAPPINGS) {
        let (start, end) = (vma.start.0, vma.end.0);
        let size = bytes(end.saturating_sub(start));
        let line = format!("    {start:012x}-{end:012x} {} {size:>10} {}", vma.flags, vma.name);
        put!(out, "{}", line.trim_end());
    }
    more(detail.vmas.len(), MAPPINGS, "memory mappings: --json lists all", out);
    if let Some(why) = &detail.vmas_broken {
        put!(out, "    (ends here: {why})");
    }
}

fn task_line(task: &Task, out: &mut String) {
    let waited = task
        .seconds_since_run
        .map_or_else(String::new, |waited| format!(", last run {} ago", seconds(waited)));
    put!(out, "{} state {}, CPU {}{waited}", task.label(), task.state, task.cpu);
}

pub(super) fn stack_lines(stack: &StackTrace, out: &mut String) {
    put_frames(&stack.frames, true, usize::MAX, out);
    if !stack.complete {
        put!(out, "    (ends here: {})", stack.end);
    }
}

/// At most so many lines. Calls of a function by itself from one place are one line.
fn put_frames(frames: &[FrameName], addresses: bool, most: usize, out: &mut String) {
    for calls in frames.chunk_by(|a, b| a.pc == b.pc).take(most) {
        let Some(frame) = calls.first() else { continue };
        let times = if calls.len() > 1 { format!(" ({} times)", calls.len()) } else { String::new() };
        put!(out, "    {}{times}", frame_text(frame, addresses));
    }
}

fn frame_text(frame: &FrameName, addresses: bool) -> String {
    let mark = if frame.guess { "? " } else { "" };
    let from = if frame.interrupted { " <interrupted>" } else { "" };
    if addresses {
        return format!("{:016x} {mark}{}{from}", frame.pc.0, frame.name);
    }
    format!("{mark}{}{from}", frame.name)
}

fn more(all: usize, shown: usize, what: &str, out: &mut String) {
    if all > shown {
        put!(out, "  and {} more {what}", count((all - shown) as u64));
    }
}
