//! Redacts the report of a dump, before it is judged: what is found names only what the report has.
//!
//! Structures are taken apart whole, so that a field that is added does not compile before it is decided here whether it names a site.

use pagehaul_inspect::{
    Cpu, Death, Held, LastLine, Locks, LogLine, Memory, Net, NetDevice, Request, StackGroup, Suspended,
    System, Task, TriageReport, Wait, Worker,
};

use crate::allowed::is_device;
use crate::names::Names;
use crate::{REMOVED, Redaction};

impl Redaction {
    /// Redacts a report that is not judged yet, and returns the names that its records gave. Functions, types, modules and slab
    /// caches keep theirs.
    pub fn report(&self, report: &mut TriageReport) -> Names {
        let names = names(report);
        let TriageReport {
            system,
            death,
            cause: _,
            signature: _,
            crash,
            verdict: _,
            cpus,
            states: _,
            blocked,
            workers,
            locks,
            memory,
            slab,
            vmalloc: _,
            requests,
            suspended,
            net,
            modules: _,
            modules_known: _,
            symbols_known: _,
            running: _,
            log,
            missing,
            gaps: _,
            tasks,
        } = report;
        let within = Within { redaction: self, names: &names };
        within.system(system);
        within.death(death);
        crash.iter_mut().for_each(|crash| self.crash(crash, &names));
        cpus.iter_mut().for_each(|cpu| within.cpu(cpu));
        for StackGroup { pids: _, first, longest_seconds: _, stack: _ } in blocked {
            *first = within.label(first);
        }
        workers.iter_mut().for_each(|worker| within.worker(worker));
        within.locks(locks);
        within.memory(memory);
        slab.iter_mut().for_each(|cache| cache.name = identifier(&cache.name));
        for Request { address: _, disk, operation: _, bytes: _, age: _ } in requests {
            *disk = within.device(disk);
        }
        for Suspended { disk, address: _, has_waiting: _ } in suspended {
            *disk = within.device(disk);
        }
        within.net(net);
        for LastLine { line, important: _ } in log {
            within.line(line);
        }
        missing.iter_mut().for_each(|why| *why = within.sentence(why));
        tasks.all.iter_mut().for_each(|task| within.task(task));
        tasks.broken.iter_mut().for_each(|why| *why = within.sentence(why));
        names
    }

    /// Redacts lines of the log.
    pub fn lines(&self, lines: &mut [LastLine], names: &Names) {
        let within = Within { redaction: self, names };
        for LastLine { line, important: _ } in lines {
            within.line(line);
        }
    }

    /// Replaces in a sentence of ours the names that a dump's records gave.
    pub fn sentence(&self, text: &str, names: &Names) -> String {
        self.replace(text, names)
    }
}

/// Returns the names that the report's own tables and lines give.
fn names(report: &TriageReport) -> Names {
    let mut names = Names::default();
    if let Some(host) = &report.system.hostname {
        names.add_host(host);
    }
    report.tasks.all.iter().for_each(|task| names.add_task(&task.comm, task.kernel_thread));
    let death = &report.death;
    let lines = [&death.line, &death.cause, &death.corruption].into_iter().flatten().chain(&death.earlier);
    let lines = lines.chain(report.log.iter().map(|last| &last.line));
    lines.filter(|line| line.by_kernel).for_each(|line| names.collect(&line.text));
    report.crash.iter().flat_map(|crash| crash.text.lines()).for_each(|line| names.collect(line));
    names.add(death.task.as_ref().map(|(name, _)| name.as_str()));
    names.add_known(Some(&report.system.release));
    names.add_known(report.system.version.as_deref());
    report.modules.iter().for_each(|module| names.add_known(Some(&module.name)));
    names
}

/// Returns what the kernel's source and its modules call something, without what is appended for a part of a machine: until
/// 9855609bde03 (5.9) the slab caches of a cgroup had its name.
pub(crate) fn identifier(name: &str) -> String {
    match name.split_once('(') {
        Some((name, _)) => format!("{name}({REMOVED})"),
        None => name.to_owned(),
    }
}

struct Within<'a> {
    redaction: &'a Redaction,
    names: &'a Names,
}

impl Within<'_> {
    fn system(&self, system: &mut System) {
        let System {
            release: _,
            version: _,
            hostname,
            crash_time: _,
            uptime: _,
            load: _,
            page_size: _,
            cpus: _,
            command_line,
            taints: _,
        } = system;
        *hostname = hostname.as_ref().map(|host| self.redaction.host(host));
        *command_line = command_line.as_ref().map(|_| REMOVED.to_owned());
    }

    fn death(&self, death: &mut Death) {
        let Death {
            kind: _,
            unknown: _,
            line,
            cause,
            corruption,
            task,
            cpu: _,
            stuck_seconds: _,
            earlier,
            oom_kills: _,
        } = death;
        [line, cause, corruption].into_iter().flatten().chain(earlier).for_each(|line| self.line(line));
        if let Some((name, _)) = task {
            *name = self.redaction.task(name, self.names);
        }
    }

    fn line(&self, line: &mut LogLine) {
        let LogLine { seconds: _, text, by_kernel } = line;
        *text = if *by_kernel { self.redaction.text(text, self.names) } else { REMOVED.to_owned() };
    }

    fn cpu(&self, cpu: &mut Cpu) {
        let Cpu {
            number: _,
            task,
            pid: _,
            runnable: _,
            saved_registers: _,
            user_mode: _,
            interrupts_on: _,
            idle: _,
            seconds_without_tick: _,
            pending_calls: _,
            crashed: _,
            registers: _,
            stack: _,
        } = cpu;
        task.iter_mut().for_each(|task| self.task(task));
    }

    fn task(&self, task: &mut Task) {
        let Task {
            address: _,
            pid: _,
            tgid: _,
            ppid: _,
            comm,
            state: _,
            kernel_thread,
            cpu: _,
            seconds_since_run: _,
            mm: _,
            flags: _,
            reclaims: _,
        } = task;
        *comm = match *kernel_thread {
            true => self.redaction.kernel_name(comm),
            false => self.redaction.name("comm", comm),
        };
    }

    /// A task whose kind is not known here.
    fn comm(&self, comm: &str) -> String {
        match self.names.is_program(comm) {
            true => self.redaction.name("comm", comm),
            false => self.redaction.kernel_name(comm),
        }
    }

    /// `comm/pid`, or a name alone.
    fn label(&self, label: &str) -> String {
        match label.rsplit_once('/') {
            Some((comm, pid)) if pid.parse::<u32>().is_ok() && !self.names.is_program(label) => {
                format!("{}/{pid}", self.comm(comm))
            }
            _ => self.comm(label),
        }
    }

    fn worker(&self, worker: &mut Worker) {
        let Worker { pid: _, comm, work: _, function: _, workqueue, pending: _, waiters } = worker;
        *comm = self.redaction.kernel_name(comm);
        *workqueue = workqueue.as_ref().map(|name| self.redaction.kernel_name(name));
        waiters.iter_mut().for_each(|wait| self.wait(wait));
    }

    fn wait(&self, wait: &mut Wait) {
        let Wait { pid: _, comm, seconds: _ } = wait;
        *comm = self.comm(comm);
    }

    fn locks(&self, locks: &mut Locks) {
        let Locks { held, cycles: _, unknown: _, kinds: _, missing } = locks;
        for Held {
            lock: _,
            kind: _,
            name: _,
            owner,
            owner_is_hint: _,
            owner_stack: _,
            readers: _,
            waiters,
        } in held
        {
            if let Some((name, _)) = owner {
                *name = self.comm(name);
            }
            waiters.iter_mut().for_each(|wait| self.wait(wait));
        }
        missing.iter_mut().for_each(|why| *why = self.sentence(why));
    }

    fn memory(&self, memory: &mut Memory) {
        let Memory {
            zones: _,
            counters: _,
            usage: _,
            unaccounted: _,
            by_pages: _,
            kswapd_failures: _,
            swap: _,
            reclaimers,
            processes,
            missing,
        } = memory;
        reclaimers.iter_mut().for_each(|label| *label = self.label(label));
        processes.iter_mut().for_each(|process| process.comm = self.comm(&process.comm));
        missing.iter_mut().for_each(|why| *why = self.sentence(why));
    }

    fn net(&self, net: &mut Net) {
        let Net { devices, backlogs: _, backlog_limit: _, broken } = net;
        for NetDevice { address: _, name, namespace: _, up: _, carrier: _, queues: _, busy: _ } in devices {
            *name = self.device(name);
        }
        *broken = broken.as_ref().map(|why| self.sentence(why));
    }

    /// Disks and network devices, which people can name.
    fn device(&self, name: &str) -> String {
        if is_device(name) { name.to_owned() } else { self.redaction.name("word", name) }
    }

    fn sentence(&self, text: &str) -> String {
        self.redaction.sentence(text, self.names)
    }
}
