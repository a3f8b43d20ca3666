//! Signatures that are perhaps of one bug. A team decides, and writes it to its file of bugs.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use pagehaul_facts::similar;
use serde::Serialize;

use super::gather::{Crash, Row};
use super::summary::Group;

/// Two rows that are perhaps one bug.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Proposal {
    pub(crate) first: Named,
    pub(crate) second: Named,
    pub(crate) because: Because,
    /// What the frames that both have weigh, of all frames of the two; null if only the coarse signature is the same.
    pub(crate) similarity: Option<f64>,
    /// Of both.
    pub(crate) crashes: usize,
}

/// A row.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Named {
    pub(crate) sig: String,
    pub(crate) bug: Option<String>,
    pub(crate) title: String,
}

/// What two signatures have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Because {
    CoarseSignature,
    Frames,
}

/// Proposes pairs of rows, the likeliest first. Rows of two bugs are not proposed: a team knows that they differ.
pub(crate) fn propose(crashes: &[Crash], groups: &[Group]) -> Vec<Proposal> {
    let rows: HashMap<Row<'_>, usize> =
        groups.iter().enumerate().map(|(at, group)| (group.row(), at)).collect();
    let mut signatures: BTreeMap<&str, (usize, &Crash)> = BTreeMap::new();
    for crash in crashes.iter().filter(|crash| !crash.is_requested()) {
        let row = crash.row().and_then(|row| rows.get(&row));
        if let (Some(sig), Some(row)) = (crash.sig.as_deref(), row) {
            signatures.entry(sig).or_insert((*row, crash));
        }
    }
    let signatures: Vec<(usize, &Crash)> = signatures.into_values().collect();
    let mut found: BTreeMap<(usize, usize), (Because, Option<f64>)> = BTreeMap::new();
    let is_open = |row: usize| groups.get(row).is_some_and(|group| group.bug_index.is_none());
    let mut add = |a: usize, b: usize, because: Because, similarity: Option<f64>| {
        if a == b || !is_open(a) && !is_open(b) {
            return;
        }
        let pair = found.entry((a.min(b), a.max(b))).or_insert((because, similarity));
        pair.1 = [pair.1, similarity].into_iter().flatten().max_by(f64::total_cmp);
    };
    let mut by_coarse: HashMap<&str, usize> = HashMap::new();
    for (row, crash) in &signatures {
        if let Some(coarse) = crash.coarse.as_deref() {
            let first = *by_coarse.entry(coarse).or_insert(*row);
            add(first, *row, Because::CoarseSignature, None);
        }
    }
    let frames = signatures
        .iter()
        .map(|(_, crash)| (crash.kind.as_deref().unwrap_or_default(), crash.frames.as_slice()));
    for pair in similar(frames) {
        if let (Some((a, _)), Some((b, _))) = (signatures.get(pair.first), signatures.get(pair.second)) {
            add(*a, *b, Because::Frames, Some(pair.similarity));
        }
    }
    let named = |row: usize| {
        let group = groups.get(row)?;
        let bug = group.bug.as_ref().map(|bug| bug.id.clone());
        Some((Named { sig: group.sig.clone(), bug, title: group.title.clone() }, group.crashes))
    };
    let mut proposals: Vec<Proposal> = found
        .into_iter()
        .filter_map(|((a, b), (because, similarity))| {
            let ((first, some), (second, more)) = (named(a)?, named(b)?);
            Some(Proposal { first, second, because, similarity, crashes: some + more })
        })
        .collect();
    proposals.sort_by(|a, b| {
        let likelihood = |pair: &Proposal| pair.similarity.unwrap_or(0.0);
        a.because.cmp(&b.because).then(likelihood(b).total_cmp(&likelihood(a))).then_with(|| {
            (Reverse(a.crashes), &a.first.sig, &a.second.sig).cmp(&(
                Reverse(b.crashes),
                &b.first.sig,
                &b.second.sig,
            ))
        })
    });
    proposals
}
