//! Counts by signature, kernel and host.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::bugs::{Bugs, Regression};
use super::compare::Comparison;
use super::gather::Fleet;
use super::group::{Group, groups};
use super::propose::Proposal;
use super::rates::Rates;
use super::titles::distinguish;
use super::version::by_version;

/// Signatures on one host that make its hardware suspicious.
const MANY_SIGNATURES: usize = 3;

/// What `report` prints: counts by signature, kernel and host, and what was asked for beyond them.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) crashes: usize,
    pub(crate) requested: usize,
    /// Without a crash in the log.
    pub(crate) without_signature: usize,
    /// Without a crash in what could be read of the log, which is not all.
    pub(crate) log_unread: usize,
    pub(crate) hosts: usize,
    /// Only signatures of which the first crash is not before this, in seconds since 1970.
    pub(crate) since: Option<i64>,
    pub(crate) signatures: Vec<Group>,
    /// In the order of their versions.
    pub(crate) kernels: Vec<Kernel>,
    /// With more than one crash, the most first.
    pub(crate) repeated: Vec<Host>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) comparison: Option<Comparison>,
    /// Signatures that are perhaps of one bug, the likeliest first.
    pub(crate) perhaps_same: Vec<Proposal>,
    /// Fixed bugs that kernels with the fix crashed of.
    pub(crate) regressions: Vec<Regression>,
    /// Signatures of the file of bugs that no crash has.
    pub(crate) unseen: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rates: Option<Rates>,
    /// Why the exit status says so.
    pub(crate) alerts: Vec<Alert>,
    pub(crate) unreadable: Vec<String>,
}

/// A reason for the exit status.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Alert {
    pub(crate) kind: AlertKind,
    /// One sentence.
    pub(crate) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum AlertKind {
    /// A signature without an older crash, of no known bug.
    New,
    /// A fixed bug on a kernel that has the fix.
    Regression,
    /// A rate above the limit.
    Rate,
    /// Crashes that are not in the rate of their machines.
    NotCounted,
    /// A file of the tables that cannot be read.
    Unreadable,
}

/// Crashes of one kernel.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Kernel {
    pub(crate) release: String,
    pub(crate) crashes: usize,
    pub(crate) signatures: usize,
    /// Signatures that no older kernel has.
    pub(crate) first_here: usize,
}

/// Crashes of one host.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Host {
    pub(crate) host: String,
    pub(crate) crashes: usize,
    pub(crate) signatures: usize,
    /// Whether its hardware is suspected: many different signatures, machine checks, or one that no other host has.
    pub(crate) hardware: bool,
}

impl Report {
    /// Counts crashes by signature or bug, kernel and host. Comparisons, rates, proposals and alerts are added later.
    pub(crate) fn new(fleet: &Fleet, bugs: &Bugs) -> Self {
        let hosts: BTreeSet<_> = fleet.crashes.iter().filter_map(|crash| crash.host.as_ref()).collect();
        let mut signatures = groups(fleet, bugs);
        distinguish(&mut signatures);
        let (kernels, repeated) = (kernels(&signatures), repeated(fleet, &signatures));
        Self {
            crashes: fleet.crashes.len(),
            requested: fleet.crashes.iter().filter(|crash| crash.is_requested()).count(),
            without_signature: fleet.crashes.iter().filter(|crash| crash.has_none()).count(),
            log_unread: fleet.crashes.iter().filter(|crash| crash.is_unknown()).count(),
            hosts: hosts.len(),
            since: None,
            signatures,
            kernels,
            repeated,
            comparison: None,
            perhaps_same: Vec::new(),
            regressions: bugs.regressions(&fleet.crashes),
            unseen: bugs.unseen(&fleet.crashes),
            rates: None,
            alerts: Vec::new(),
            unreadable: fleet.unreadable.clone(),
        }
    }

    /// Leaves signatures of which no crash is older than `since`, and what may be the same as one of them.
    pub(crate) fn limit(&mut self, since: i64) {
        self.since = Some(since);
        self.signatures.retain(|group| group.first_seen.is_some_and(|first| first >= since));
        let listed: BTreeSet<&str> = self.signatures.iter().map(|group| group.sig.as_str()).collect();
        self.perhaps_same.retain(|pair| {
            listed.contains(pair.first.sig.as_str()) || listed.contains(pair.second.sig.as_str())
        });
    }
}

fn kernels(signatures: &[Group]) -> Vec<Kernel> {
    let mut kernels = BTreeMap::<&str, Kernel>::new();
    for group in signatures {
        let first = group.kernels.keys().min_by(|a, b| by_version(a, b));
        for (release, crashes) in &group.kernels {
            let kernel = kernels.entry(release).or_default();
            kernel.release.clone_from(release);
            kernel.crashes += crashes;
            kernel.signatures += 1;
            kernel.first_here += usize::from(first == Some(release));
        }
    }
    let mut kernels: Vec<Kernel> = kernels.into_values().collect();
    kernels.sort_by(|a, b| by_version(&a.release, &b.release));
    kernels
}

fn repeated(fleet: &Fleet, signatures: &[Group]) -> Vec<Host> {
    let mut hosts = BTreeMap::<&str, Host>::new();
    for group in signatures.iter().filter(|group| !group.is_requested()) {
        for (name, crashes) in &group.hosts {
            let host = hosts.entry(name).or_default();
            host.host.clone_from(name);
            host.crashes += crashes;
            host.signatures += 1;
            host.hardware |= group.hardware;
        }
    }
    let many =
        fleet.crashes.iter().filter_map(|crash| crash.host.as_ref()).collect::<BTreeSet<_>>().len() > 1;
    let mut hosts: Vec<Host> = hosts.into_values().filter(|host| host.crashes > 1).collect();
    for host in &mut hosts {
        host.hardware |= many && host.signatures >= MANY_SIGNATURES;
    }
    hosts.sort_by(|a, b| b.crashes.cmp(&a.crashes).then_with(|| a.host.cmp(&b.host)));
    hosts
}
