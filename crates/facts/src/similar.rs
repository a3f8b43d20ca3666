//! Signatures that share most of their frames: perhaps one bug.

use std::collections::{BTreeSet, HashMap};

use crate::event::Kind;
use crate::skip;

/// A frame that more signatures have proposes no pair: it bounds the work to this many candidates for each frame of a signature.
const MAX_OF_A_FRAME: usize = 200;

/// Least similarity of a pair (docs/benchmarks/2026-11-25-signatures.md).
const LEAST: f64 = 0.5;

/// Two signatures that are perhaps of one bug.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Similar {
    /// Index of the first.
    pub first: usize,
    /// Index of the second, which is larger.
    pub second: usize,
    /// What the frames that both have weigh, of all frames of the two: 0.5 to 1. A frame weighs more the fewer signatures have it.
    pub similarity: f64,
}

/// Finds similar signatures among kinds and frames (`module:function`), the most similar pairs first. Kinds that one bug can have are
/// alike, such as all accesses to a bad address. Takes time and memory in proportion to the number of signatures.
pub fn similar<'a>(signatures: impl IntoIterator<Item = (&'a str, &'a [String])>) -> Vec<Similar> {
    let mut numbers: HashMap<&str, usize> = HashMap::new();
    let signatures: Vec<(&str, BTreeSet<usize>)> = signatures
        .into_iter()
        .map(|(kind, frames)| {
            let frames = functions(frames).into_iter().map(|frame| {
                let next = numbers.len();
                *numbers.entry(frame).or_insert(next)
            });
            (family(kind), frames.collect())
        })
        .collect();
    let mut with: Vec<Vec<usize>> = vec![Vec::new(); numbers.len()];
    for (at, (_, frames)) in signatures.iter().enumerate() {
        for frame in frames {
            if let Some(with) = with.get_mut(*frame) {
                with.push(at);
            }
        }
    }
    let weights: Vec<f64> =
        with.iter().map(|with| (1.0 + signatures.len() as f64 / with.len() as f64).ln()).collect();
    let weight =
        |frames: &BTreeSet<usize>| frames.iter().filter_map(|frame| weights.get(*frame)).sum::<f64>();
    let mut pairs = Vec::new();
    for (first, (kind, frames)) in signatures.iter().enumerate() {
        let lists =
            frames.iter().filter_map(|frame| with.get(*frame)).filter(|with| with.len() <= MAX_OF_A_FRAME);
        let candidates: BTreeSet<usize> = lists.flatten().copied().filter(|second| *second > first).collect();
        for second in candidates {
            let Some((other_kind, others)) = signatures.get(second) else { continue };
            if kind != other_kind {
                continue;
            }
            let common = frames.intersection(others).filter_map(|frame| weights.get(*frame)).sum::<f64>();
            let similarity = common / (weight(frames) + weight(others) - common);
            if similarity >= LEAST {
                pairs.push(Similar { first, second, similarity });
            }
        }
    }
    pairs.sort_by(|a, b| {
        b.similarity.total_cmp(&a.similarity).then((a.first, a.second).cmp(&(b.first, b.second)))
    });
    pairs
}

/// The functions that count: without modules, which a configuration can build in, and without generic ones unless all are.
fn functions(frames: &[String]) -> Vec<&str> {
    let known: Vec<&str> =
        frames.iter().filter(|frame| !skip::list().is_generic(frame)).map(|frame| function(frame)).collect();
    if known.is_empty() { frames.iter().map(|frame| function(frame)).collect() } else { known }
}

/// Names of Rust have `::`.
fn function(frame: &str) -> &str {
    frame
        .split_once(':')
        .map_or(frame, |(_, function)| if function.starts_with(':') { frame } else { function })
}

/// Kinds that one bug can have: what is found first depends on the address, the configuration, and which watchdog is faster.
fn family(kind: &str) -> &str {
    const FAMILIES: [&[Kind]; 2] = [
        &[Kind::PageFault, Kind::NullDeref, Kind::Gpf, Kind::Sanitizer],
        &[Kind::SoftLockup, Kind::HardLockup, Kind::RcuStall],
    ];
    let first = |family: &&[Kind]| family.iter().any(|member| member.name() == kind);
    FAMILIES
        .iter()
        .find(|family| first(family))
        .and_then(|family| family.first())
        .map_or(kind, |kind| kind.name())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(signatures: &[(&str, &str)]) -> Vec<(usize, usize)> {
        let signatures: Vec<(&str, Vec<String>)> = signatures
            .iter()
            .map(|(kind, frames)| (*kind, frames.split(' ').map(str::to_owned).collect()))
            .collect();
        let found = similar(signatures.iter().map(|(kind, frames)| (*kind, frames.as_slice())));
        found.iter().map(|pair| (pair.first, pair.second)).collect()
    }

    #[test]
    fn most_frames_are_the_same() {
        let found = pairs(&[
            ("gpf", "ext4:ext4_bio_write ext4:ext4_writepages do_writepages writeback"),
            ("page-fault", "lock_acquire ext4_writepages do_writepages writeback"),
            ("gpf", "xfs:xfs_vm_writepages do_writepages writeback"),
            ("warn", "ext4:ext4_bio_write ext4:ext4_writepages do_writepages writeback"),
        ]);
        assert_eq!(found, [(0, 1)]);
        assert_eq!(pairs(&[]), []);
        assert_eq!(["ext4:f", "f", "core::f", "m:core::f"].map(function), ["f", "f", "core::f", "core::f"]);
    }

    #[test]
    fn ten_thousand_signatures_with_one_frame_in_common_are_no_work() {
        let frames: Vec<Vec<String>> = (0..10_000)
            .map(|at| vec![format!("f{at}"), format!("g{}", at / 2), "do_writepages".to_owned()])
            .collect();
        let found = similar(frames.iter().map(|frames| ("bug", frames.as_slice())));
        // Half of the weight of each is in the frame that only it has, so nothing is similar.
        assert!(found.is_empty(), "{}", found.len());
        let same: Vec<Vec<String>> = frames.iter().map(|frames| frames[1..].to_vec()).collect();
        assert_eq!(similar(same.iter().map(|frames| ("bug", frames.as_slice()))).len(), 5_000);
    }
}
