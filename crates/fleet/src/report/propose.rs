//! Signatures that are perhaps of one bug. A team decides, and writes it to its file of bugs.

use std::collections::{BTreeMap, HashMap};

use pagehaul_facts::similar;
use serde::Serialize;

use super::gather::{Crash, Row};
use super::group::Group;

/// Pairs of a row that are kept: of a hundred variants of one bug, every pair would be similar.
const MAX_OF_A_ROW: usize = 3;

/// Two rows that are perhaps one bug.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Proposal {
    pub(crate) first: Named,
    pub(crate) second: Named,
    pub(crate) because: Because,
    /// The coarse signature that both have.
    pub(crate) sig_coarse: Option<String>,
    /// What the frames that both have weigh, of all frames of the two; null if only the coarse signature is the same.
    pub(crate) similarity: Option<f64>,
    /// Of both.
    pub(crate) crashes: usize,
}

/// A signature or a bug.
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

/// What two rows have in common.
struct InCommon<'a> {
    coarse: Option<&'a str>,
    similarity: Option<f64>,
}

/// Proposes pairs of rows, the likeliest first. Rows of two bugs are not proposed: a team knows that they differ.
pub(crate) fn propose<'a>(crashes: &'a [Crash], groups: &[Group]) -> Vec<Proposal> {
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
    let mut found: BTreeMap<(usize, usize), InCommon<'_>> = BTreeMap::new();
    let is_open = |row: usize| groups.get(row).is_some_and(|group| group.bug_index.is_none());
    let mut add = |a: usize, b: usize, coarse: Option<&'a str>, similarity: Option<f64>| {
        if a == b || !is_open(a) && !is_open(b) {
            return;
        }
        let pair = found.entry((a.min(b), a.max(b))).or_insert(InCommon { coarse, similarity });
        pair.similarity = [pair.similarity, similarity].into_iter().flatten().max_by(f64::total_cmp);
    };
    let mut by_coarse: HashMap<&str, usize> = HashMap::new();
    for (row, crash) in &signatures {
        if let Some(coarse) = crash.coarse.as_deref() {
            let first = *by_coarse.entry(coarse).or_insert(*row);
            add(first, *row, Some(coarse), None);
        }
    }
    let frames = signatures
        .iter()
        .map(|(_, crash)| (crash.kind.as_deref().unwrap_or_default(), crash.frames.as_slice()));
    for pair in similar(frames) {
        if let (Some((a, _)), Some((b, _))) = (signatures.get(pair.first), signatures.get(pair.second)) {
            add(*a, *b, None, Some(pair.similarity));
        }
    }
    let named = |row: usize| {
        let group = groups.get(row)?;
        let bug = group.bug.as_ref().map(|bug| bug.id.clone());
        Some((Named { sig: group.sig.clone(), bug, title: group.title.clone() }, group.crashes))
    };
    let mut proposals: Vec<([usize; 2], Proposal)> = found
        .into_iter()
        .filter_map(|((a, b), InCommon { coarse, similarity })| {
            let ((first, some), (second, more)) = (named(a)?, named(b)?);
            let because = coarse.map_or(Because::Frames, |_| Because::CoarseSignature);
            let sig_coarse = coarse.map(str::to_owned);
            Some(([a, b], Proposal { first, second, because, sig_coarse, similarity, crashes: some + more }))
        })
        .collect();
    proposals.sort_by(|(rows, a), (other_rows, b)| {
        let likelihood = |pair: &Proposal| pair.similarity.unwrap_or(0.0);
        let by_reason = a.because.cmp(&b.because).then(likelihood(b).total_cmp(&likelihood(a)));
        by_reason.then(b.crashes.cmp(&a.crashes)).then(rows.cmp(other_rows))
    });
    let mut pairs = vec![0; groups.len()];
    proposals.retain(|(rows, _)| {
        let is_full = rows.iter().all(|row| pairs.get(*row).is_none_or(|pairs| *pairs >= MAX_OF_A_ROW));
        for row in rows {
            if let Some(pairs) = pairs.get_mut(*row) {
                *pairs += usize::from(!is_full);
            }
        }
        !is_full
    });
    proposals.into_iter().map(|(_, proposal)| proposal).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::bugs::Bugs;
    use crate::report::gather::Fleet;
    use crate::report::group::groups;

    fn crash(sig: &str, coarse: &str, frames: &str) -> Crash {
        Crash {
            id: sig.to_owned(),
            sig: Some(sig.to_owned()),
            coarse: Some(coarse.to_owned()),
            frames: frames.split(' ').map(str::to_owned).collect(),
            title: Some(format!("bug in {sig}")),
            kind: Some("bug".to_owned()),
            ..Crash::default()
        }
    }

    fn proposals(crashes: Vec<Crash>) -> Vec<Proposal> {
        let fleet = Fleet { crashes, unreadable: Vec::new() };
        propose(&fleet.crashes, &groups(&fleet, &Bugs::default()))
    }

    #[test]
    fn coarse_signatures_come_before_frames_and_bugs_of_a_team_are_left_alone() {
        let crashes = vec![
            crash("a", "1", "f g h i"),
            crash("b", "1", "f x y"),
            crash("c", "2", "g h i j"),
            crash("d", "3", "k l m"),
            Crash { kind: Some("requested".to_owned()), ..crash("e", "1", "f g h") },
        ];
        let pairs = |crashes: Vec<Crash>| -> Vec<String> {
            let name = |pair: &Proposal| format!("{} {} {:?}", pair.first.sig, pair.second.sig, pair.because);
            proposals(crashes).iter().map(name).collect()
        };
        assert_eq!(pairs(crashes.clone()), ["a b CoarseSignature", "a c Frames"]);
        let mut known = crashes;
        (known[0].bug, known[2].bug) = (Some(0), Some(1));
        assert_eq!(pairs(known), ["a b CoarseSignature"]);
    }

    #[test]
    fn a_hundred_variants_have_a_few_pairs_each() {
        let variants = (0..100).map(|at| crash(&format!("{at:02}"), &at.to_string(), "f g h i"));
        let found = proposals(variants.collect());
        assert!((50..=100 * MAX_OF_A_ROW).contains(&found.len()), "{}", found.len());
    }
}
