//! Counts by signature, kernel and host.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::compare::Comparison;
use super::gather::{Crash, Fleet};

/// Signatures on one host that make its hardware suspicious.
const MANY_SIGNATURES: usize = 3;

/// The report.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) crashes: usize,
    pub(crate) requested: usize,
    /// Without a crash in the log.
    pub(crate) without_signature: usize,
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
    pub(crate) unreadable: Vec<String>,
}

/// Crashes of one signature.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Group {
    pub(crate) sig: String,
    pub(crate) title: String,
    pub(crate) kind: String,
    pub(crate) crashes: usize,
    /// Seconds since 1970.
    pub(crate) first_seen: Option<i64>,
    pub(crate) last_seen: Option<i64>,
    pub(crate) kernels: BTreeMap<String, usize>,
    pub(crate) hosts: BTreeMap<String, usize>,
    /// Whether the hardware of its host is suspected: no other host has it, or it is a machine check.
    pub(crate) hardware: bool,
    pub(crate) at_death: AtDeath,
    /// One of its crashes.
    pub(crate) example: String,
    #[serde(skip)]
    pub(crate) times: Vec<i64>,
    /// The crashes, the newest first, for the web page.
    #[serde(skip)]
    pub(crate) members: Vec<Member>,
}

/// A crash of a signature.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) time: Option<i64>,
    pub(crate) host: Option<String>,
    pub(crate) release: Option<String>,
    pub(crate) dumps: Vec<String>,
}

impl Member {
    fn of(crash: &Crash) -> Self {
        let Crash { id, time, host, release, dumps, .. } = crash.clone();
        Self { id, time, host, release, dumps }
    }
}

impl Group {
    pub(crate) fn is_requested(&self) -> bool {
        self.kind == "requested"
    }
}

/// The state of machines at their death: medians.
#[derive(Debug, Default, Serialize)]
pub(crate) struct AtDeath {
    /// Crashes whose pages were counted.
    pub(crate) crashes: usize,
    /// Percentage of memory by page class.
    pub(crate) classes: BTreeMap<String, f64>,
    /// Crashes with a zone below its min watermark; null if no zone is known.
    pub(crate) below_min: Option<usize>,
    /// Tasks in state D; null if no task is known.
    pub(crate) blocked_tasks: Option<usize>,
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
    /// Counts.
    pub(crate) fn new(fleet: &Fleet, since: Option<i64>) -> Self {
        let mut groups = BTreeMap::<&str, (Group, Vec<&Crash>)>::new();
        for crash in &fleet.crashes {
            let Some(sig) = &crash.sig else { continue };
            let (group, members) = groups.entry(sig).or_insert_with(|| {
                let text = |text: &Option<String>| text.clone().unwrap_or_default();
                let group = Group {
                    sig: sig.clone(),
                    title: text(&crash.title),
                    kind: text(&crash.kind),
                    example: crash.id.clone(),
                    ..Group::default()
                };
                (group, Vec::new())
            });
            members.push(crash);
            group.crashes += 1;
            group.times.extend(crash.time);
            for (names, name) in [(&mut group.kernels, &crash.release), (&mut group.hosts, &crash.host)] {
                if let Some(name) = name {
                    *names.entry(name.clone()).or_default() += 1;
                }
            }
        }
        let hosts: BTreeSet<_> = fleet.crashes.iter().filter_map(|crash| crash.host.as_ref()).collect();
        let mut signatures: Vec<Group> = groups
            .into_values()
            .map(|(mut group, members)| {
                group.first_seen = group.times.iter().copied().min();
                group.last_seen = group.times.iter().copied().max();
                group.hardware = !group.is_requested()
                    && (group.kind == "mce"
                        || hosts.len() > 1 && group.hosts.len() == 1 && group.crashes > 1);
                group.at_death = at_death(&members);
                group.members = members.into_iter().map(Member::of).collect();
                group.members.sort_by(|a, b| b.time.cmp(&a.time).then_with(|| a.id.cmp(&b.id)));
                group
            })
            .collect();
        signatures.sort_by(|a, b| {
            let key = |group: &Group| (group.is_requested(), Reverse(group.crashes));
            key(a).cmp(&key(b)).then_with(|| a.sig.cmp(&b.sig))
        });
        let (kernels, repeated) = (kernels(&signatures), repeated(fleet, &signatures));
        if let Some(since) = since {
            signatures.retain(|group| group.first_seen.is_some_and(|first| first >= since));
        }
        Self {
            crashes: fleet.crashes.len(),
            requested: fleet.crashes.iter().filter(|crash| crash.is_requested()).count(),
            without_signature: fleet.crashes.iter().filter(|crash| crash.sig.is_none()).count(),
            hosts: hosts.len(),
            since,
            signatures,
            kernels,
            repeated,
            comparison: None,
            unreadable: fleet.unreadable.clone(),
        }
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

fn at_death(crashes: &[&Crash]) -> AtDeath {
    let states = || crashes.iter().map(|crash| &crash.state);
    let counted: Vec<_> = states().filter(|state| !state.classes.is_empty()).collect();
    let names: BTreeSet<&String> = counted.iter().flat_map(|state| state.classes.keys()).collect();
    let percent = |name: &String| {
        let shares = counted.iter().map(|state| {
            let all: i64 = state.classes.values().sum();
            100.0 * state.classes.get(name).copied().unwrap_or(0) as f64 / all.max(1) as f64
        });
        median(shares.collect())
    };
    let below: Vec<bool> = states().filter_map(|state| state.below_min()).collect();
    let blocked = states().filter_map(|state| Some(state.tasks?.1 as f64));
    AtDeath {
        crashes: counted.len(),
        classes: names.into_iter().filter_map(|name| Some((name.clone(), percent(name)?))).collect(),
        below_min: (!below.is_empty()).then(|| below.iter().filter(|below| **below).count()),
        blocked_tasks: median(blocked.collect()).map(|count| count as usize),
    }
}

/// The middle value; of two, the lower.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().saturating_sub(1) / 2).copied()
}

/// Compares releases number by number: 6.9 comes before 6.12.
fn by_version(a: &str, b: &str) -> Ordering {
    let parts = |text: &str| -> Vec<(u64, String)> {
        let text = text.split(['.', '-', '_', '~', '+']);
        text.map(|part| {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            let (number, rest) = part.split_at(digits);
            (number.parse::<u64>().map_or(0, |number| number.saturating_add(1)), rest.to_owned())
        })
        .collect()
    };
    parts(a).cmp(&parts(b)).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_in_the_order_of_their_numbers() {
        let mut releases = ["6.12.1", "6.1.0-40-amd64", "6.9.3", "6.1.0-9-amd64", "5.10", "6.12.1-rc2"];
        releases.sort_by(|a, b| by_version(a, b));
        assert_eq!(releases, ["5.10", "6.1.0-9-amd64", "6.1.0-40-amd64", "6.9.3", "6.12.1", "6.12.1-rc2"]);
    }

    #[test]
    fn the_median_is_a_value() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(1.0));
        assert_eq!(median(Vec::new()), None);
    }
}
