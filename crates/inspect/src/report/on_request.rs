//! Sections that are read only when they are asked for.

use serde::Serialize;

use super::triage::TriageReport;
use crate::machine::Machine;
use crate::structures::counts::{Counts, counts};
use crate::structures::interrupts::{Interrupts, interrupts};
use crate::structures::ipc::{Ipc, ipc};
use crate::structures::mounts::{Mounts, mounts};
use crate::structures::pressure::{Pressures, pressures};
use crate::structures::rcu::{Rcu, rcu};
use crate::structures::signals::{Signals, signals};
use crate::structures::sockets::{Sockets, sockets};
use crate::structures::swap::{Swap, swap};
use crate::structures::timers::{Timers, timers};
use crate::structures::workqueues::{Workqueues, workqueues};

/// A section that is read only when it is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requested {
    /// Pending timers.
    Timers,
    /// Interrupts and softirqs.
    Interrupts,
    /// Workqueues and their pools.
    Workqueues,
    /// RCU.
    Rcu,
    /// Signals that wait.
    Signals,
    /// Counts of tasks.
    Counts,
    /// Pressure (PSI).
    Pressure,
    /// Sockets.
    Sockets,
    /// Mounts.
    Mounts,
    /// Swap devices.
    Swap,
    /// IPC of System V.
    Ipc,
}

impl Requested {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Timers,
        Self::Interrupts,
        Self::Workqueues,
        Self::Rcu,
        Self::Signals,
        Self::Counts,
        Self::Pressure,
        Self::Sockets,
        Self::Mounts,
        Self::Swap,
        Self::Ipc,
    ];
}

/// What was asked for.
#[derive(Debug, Default, Serialize)]
pub struct OnRequest {
    /// Pending timers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timers: Option<Timers>,
    /// Interrupts and softirqs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interrupts: Option<Interrupts>,
    /// Workqueues and their pools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workqueues: Option<Workqueues>,
    /// RCU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rcu: Option<Rcu>,
    /// Signals that wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signals: Option<Signals>,
    /// Counts of tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    /// Pressure (PSI).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pressure: Option<Pressures>,
    /// Sockets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockets: Option<Sockets>,
    /// Mounts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mounts: Option<Mounts>,
    /// Swap devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<Swap>,
    /// IPC of System V.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ipc: Option<Ipc>,
}

impl OnRequest {
    /// Reads the sections that are asked for.
    pub fn read(machine: &Machine<'_>, report: &TriageReport, asked: &[Requested]) -> Self {
        let tasks = &report.tasks;
        let mut found = Self::default();
        for section in asked {
            match section {
                Requested::Timers => found.timers = whole(machine, || timers(machine, tasks)),
                Requested::Interrupts => found.interrupts = whole(machine, || interrupts(machine)),
                Requested::Workqueues => found.workqueues = whole(machine, || workqueues(machine)),
                Requested::Rcu => found.rcu = whole(machine, || rcu(machine, tasks)),
                Requested::Signals => found.signals = whole(machine, || signals(machine, tasks)),
                Requested::Counts => found.counts = whole(machine, || counts(tasks)),
                Requested::Pressure => found.pressure = whole(machine, || pressures(machine)),
                Requested::Sockets => found.sockets = whole(machine, || sockets(machine, tasks)),
                Requested::Mounts => found.mounts = whole(machine, || mounts(machine, tasks)),
                Requested::Swap => found.swap = whole(machine, || swap(machine)),
                Requested::Ipc => found.ipc = whole(machine, || ipc(machine, tasks)),
            }
        }
        found
    }

    /// Returns the names of the sections of which something could not be read, in the order of the report.
    pub fn incomplete(&self) -> Vec<&'static str> {
        fn reasons<T: Partial>(found: &Option<T>) -> usize {
            found.as_ref().map_or(0, |found| found.broken().len())
        }
        let sections = [
            ("workqueues", reasons(&self.workqueues)),
            ("interrupts", reasons(&self.interrupts)),
            ("rcu", reasons(&self.rcu)),
            ("timers", reasons(&self.timers)),
            ("signals", reasons(&self.signals)),
            ("counts", reasons(&self.counts)),
            ("pressure", reasons(&self.pressure)),
            ("sockets", reasons(&self.sockets)),
            ("mounts", reasons(&self.mounts)),
            ("swap", reasons(&self.swap)),
            ("ipc", reasons(&self.ipc)),
        ];
        sections.into_iter().filter(|(_, reasons)| *reasons > 0).map(|(name, _)| name).collect()
    }
}

/// What can be read in part.
trait Partial {
    /// Why some may be missing.
    fn broken(&self) -> &[String];
    /// The same, to add to.
    fn broken_mut(&mut self) -> &mut Vec<String>;
}

macro_rules! partial {
    ($($section:ident),*) => {
        $(impl Partial for $section {
            fn broken(&self) -> &[String] {
                &self.broken
            }

            fn broken_mut(&mut self) -> &mut Vec<String> {
                &mut self.broken
            }
        })*
    };
}

partial!(Timers, Interrupts, Workqueues, Rcu, Signals, Counts, Pressures, Sockets, Mounts, Swap, Ipc);

/// Reads a section. If the source lost memory that this needs, the section says so, whatever its reader makes of it.
fn whole<T: Partial>(machine: &Machine<'_>, read: impl FnOnce() -> T) -> Option<T> {
    drop(machine.take_lost());
    let mut found = read();
    let lost = machine.take_lost().describe().or_else(|| {
        (!machine.symbols_whole()).then(|| "not all of the symbols that it needs could be read".to_owned())
    });
    if found.broken().is_empty() {
        found.broken_mut().extend(lost);
    }
    Some(found)
}
