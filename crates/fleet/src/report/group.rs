//! The crashes of each signature or bug.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::bugs::Bugs;
use super::gather::{Crash, Fleet, Row};

/// Crashes of one signature, or of one bug.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Group {
    /// Of a bug with several, the most frequent.
    pub(crate) sig: String,
    pub(crate) sig_coarse: Option<String>,
    /// All, with their crashes.
    pub(crate) signatures: BTreeMap<String, usize>,
    pub(crate) bug: Option<KnownBug>,
    /// Place of the bug in its file.
    #[serde(skip)]
    pub(crate) bug_index: Option<usize>,
    pub(crate) title: String,
    pub(crate) frames: Vec<String>,
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

    /// Returns what its crashes are counted under.
    pub(crate) fn row(&self) -> Row<'_> {
        self.bug_index.map_or(Row::Signature(&self.sig), Row::Bug)
    }
}

/// What a team knows of a bug.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct KnownBug {
    pub(crate) id: String,
    pub(crate) link: Option<String>,
    /// `open`, `fixed`, `fixed in RELEASE`.
    pub(crate) state: String,
    /// Crashes of kernels that have the fix.
    pub(crate) regressions: usize,
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

/// Groups the crashes: those that were requested last, the most frequent first.
pub(crate) fn groups(fleet: &Fleet, bugs: &Bugs) -> Vec<Group> {
    let mut groups = BTreeMap::<Row<'_>, (Group, Vec<&Crash>)>::new();
    for crash in &fleet.crashes {
        let Some(row) = crash.row() else { continue };
        let (group, members) = groups.entry(row).or_insert_with(|| {
            let group = Group { bug_index: crash.bug, example: crash.id.clone(), ..Group::default() };
            (group, Vec::new())
        });
        members.push(crash);
        group.crashes += 1;
        group.times.extend(crash.time);
        let names = [
            (&mut group.kernels, &crash.release),
            (&mut group.hosts, &crash.host),
            (&mut group.signatures, &crash.sig),
        ];
        for (names, name) in names {
            if let Some(name) = name {
                *names.entry(name.clone()).or_default() += 1;
            }
        }
    }
    let hosts: BTreeSet<_> = fleet.crashes.iter().filter_map(|crash| crash.host.as_ref()).collect();
    let mut signatures: Vec<Group> = groups
        .into_values()
        .map(|(mut group, members)| {
            describe(&mut group, &members, bugs);
            group.first_seen = group.times.iter().copied().min();
            group.last_seen = group.times.iter().copied().max();
            group.hardware = !group.is_requested()
                && (group.kind == "mce" || hosts.len() > 1 && group.hosts.len() == 1 && group.crashes > 1);
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
    signatures
}

/// Names a group by its most frequent signature, or by its bug.
fn describe(group: &mut Group, members: &[&Crash], bugs: &Bugs) {
    let most = group.signatures.iter().max_by_key(|(sig, crashes)| (**crashes, Reverse(sig.as_str())));
    group.sig = most.map(|(sig, _)| sig.clone()).unwrap_or_default();
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    if let Some(crash) = members.iter().find(|crash| crash.sig.as_ref() == Some(&group.sig)) {
        group.title = text(&crash.title);
        group.kind = text(&crash.kind);
        group.frames.clone_from(&crash.frames);
        group.sig_coarse.clone_from(&crash.coarse);
        group.example.clone_from(&crash.id);
    }
    let Some(bug) = group.bug_index.and_then(|bug| bugs.bugs.get(bug)) else { return };
    if let Some(title) = &bug.title {
        group.title.clone_from(title);
    }
    let regressions = members.iter().filter_map(|crash| crash.release.as_deref());
    group.bug = Some(KnownBug {
        id: bug.id.clone(),
        link: bug.link.clone(),
        state: bug.state(),
        regressions: regressions.filter(|release| bug.is_regression(release)).count(),
    });
}

fn at_death(crashes: &[&Crash]) -> AtDeath {
    let states = || crashes.iter().map(|crash| &crash.state);
    let counted: Vec<_> = states().filter(|state| !state.classes.is_empty()).collect();
    let names: BTreeSet<&String> = counted.iter().flat_map(|state| state.classes.keys()).collect();
    let percent = |name: &String| {
        let shares = counted.iter().map(|state| {
            let all: f64 = state.classes.values().map(|pages| *pages as f64).sum();
            100.0 * state.classes.get(name).copied().unwrap_or(0) as f64 / all.max(1.0)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_a_value() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(1.0));
        assert_eq!(median(Vec::new()), None);
    }
}
