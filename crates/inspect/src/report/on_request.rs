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
        let mut found = Self::default();
        for section in asked {
            match section {
                Requested::Timers => found.timers = Some(timers(machine, &report.tasks)),
                Requested::Interrupts => found.interrupts = Some(interrupts(machine)),
                Requested::Workqueues => found.workqueues = Some(workqueues(machine)),
                Requested::Rcu => found.rcu = Some(rcu(machine, &report.tasks)),
                Requested::Signals => found.signals = Some(signals(machine, &report.tasks)),
                Requested::Counts => found.counts = Some(counts(&report.tasks)),
                Requested::Pressure => found.pressure = Some(pressures(machine)),
                Requested::Sockets => found.sockets = Some(sockets(machine, &report.tasks)),
                Requested::Mounts => found.mounts = Some(mounts(machine, &report.tasks)),
                Requested::Swap => found.swap = Some(swap(machine)),
                Requested::Ipc => found.ipc = Some(ipc(machine, &report.tasks)),
            }
        }
        found
    }
}
