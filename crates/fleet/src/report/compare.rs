//! Two kernels: which signatures have a larger part of the crashes of the second.

use std::collections::BTreeMap;

use anyhow::ensure;
use serde::Serialize;

use super::gather::{Crash, Row};
use super::group::Group;
use super::version::is_of;

/// A difference that chance makes in one of a hundred comparisons or more is none.
const LEVEL: f64 = 0.01;

/// Crashes of two kernels.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) old: String,
    pub(crate) new: String,
    pub(crate) old_crashes: u64,
    pub(crate) new_crashes: u64,
    /// The most certain regressions first.
    pub(crate) signatures: Vec<Change>,
    /// Crashes of the two kernels that do not count.
    pub(crate) left_out: Vec<LeftOut>,
}

/// A crash that does not count.
#[derive(Debug, Serialize)]
pub(crate) struct LeftOut {
    pub(crate) crash_id: String,
    pub(crate) release: String,
    pub(crate) title: String,
    pub(crate) why: Why,
}

/// Why a crash does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Why {
    /// The user asked for it.
    Requested,
    /// The log has no crash.
    NoSignature,
    /// The log could not be read, or not in whole, or was erased.
    LogUnread,
}

impl Why {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Requested => "requested (sysrq)",
            Self::NoSignature => "no crash in the log",
            Self::LogUnread => "the log was lost or erased",
        }
    }
}

/// A signature on two kernels.
#[derive(Debug, Serialize)]
pub(crate) struct Change {
    pub(crate) sig: String,
    pub(crate) bug: Option<String>,
    pub(crate) title: String,
    pub(crate) old_crashes: u64,
    pub(crate) new_crashes: u64,
    /// Probability of at least as many crashes on the new kernel, if both kernels crash alike (Fisher's exact test).
    pub(crate) p: f64,
    pub(crate) verdict: Verdict,
}

/// What changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// A larger part of the crashes, by more than chance.
    Regression,
    /// Only on the new kernel, and too rare to exclude chance.
    New,
    /// Only on the old kernel.
    Gone,
    /// On both, and too similar to tell.
    Same,
}

impl Verdict {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Regression => "regression",
            Self::New => "new",
            Self::Gone => "gone",
            Self::Same => "same",
        }
    }
}

/// Compares the crashes of two kernels. Requested ones, and those without a signature, are left out.
///
/// # Errors
/// Fails if a kernel has no crashes. `may_lack_new`: the new one may have none.
pub(crate) fn compare(
    crashes: &[Crash],
    groups: &[Group],
    old: &str,
    new: &str,
    may_lack_new: bool,
) -> anyhow::Result<Comparison> {
    let known: BTreeMap<Row<'_>, &Group> = groups.iter().map(|group| (group.row(), group)).collect();
    let mut counted: BTreeMap<Row<'_>, [u64; 2]> = BTreeMap::new();
    let mut totals = [0; 2];
    let mut left_out = Vec::new();
    for crash in crashes {
        let Some(release) =
            crash.release.as_ref().filter(|release| is_of(release, old) || is_of(release, new))
        else {
            continue;
        };
        let Some(row) = crash.row().filter(|_| !crash.is_requested()) else {
            left_out.push(LeftOut {
                crash_id: crash.id.clone(),
                release: release.clone(),
                title: crash.title.clone().unwrap_or_default(),
                why: match crash.is_requested() {
                    true => Why::Requested,
                    false if crash.is_unknown() => Why::LogUnread,
                    false => Why::NoSignature,
                },
            });
            continue;
        };
        for (at, kernel) in [old, new].into_iter().enumerate() {
            if is_of(release, kernel) {
                totals[at] += 1;
                counted.entry(row).or_default()[at] += 1;
            }
        }
    }
    for (kernel, has_enough) in [(old, totals[0] > 0), (new, totals[1] > 0 || may_lack_new)] {
        ensure!(
            has_enough,
            "no crash of a kernel {kernel} counts: {} of {old} and {new} were requested or have none in the log; releases are matched by \
             their start",
            left_out.len()
        );
    }
    let logs = log_factorials(totals[0] + totals[1]);
    let mut signatures: Vec<Change> = counted
        .into_iter()
        .filter_map(|(row, counts)| {
            let group = known.get(&row)?;
            let p = chance(&logs, counts, totals);
            let verdict = match counts {
                [_, 0] => Verdict::Gone,
                _ if p < LEVEL => Verdict::Regression,
                [0, _] => Verdict::New,
                _ => Verdict::Same,
            };
            let (sig, title) = (group.sig.clone(), group.title.clone());
            let bug = group.bug.as_ref().map(|bug| bug.id.clone());
            Some(Change { sig, bug, title, old_crashes: counts[0], new_crashes: counts[1], p, verdict })
        })
        .collect();
    signatures
        .sort_by(|a, b| a.verdict.cmp(&b.verdict).then(a.p.total_cmp(&b.p)).then_with(|| a.sig.cmp(&b.sig)));
    let (old, new) = (old.to_owned(), new.to_owned());
    Ok(Comparison { old, new, old_crashes: totals[0], new_crashes: totals[1], signatures, left_out })
}

/// `ln(n!)` for 0 to `most`.
fn log_factorials(most: u64) -> Vec<f64> {
    let mut sum = 0.0;
    let logs = (1..=most).map(|n| {
        sum += (n as f64).ln();
        sum
    });
    std::iter::once(0.0).chain(logs).collect()
}

/// Upper tail of the hypergeometric distribution: `counts` of `totals` crashes are of a signature.
fn chance(logs: &[f64], [old, new]: [u64; 2], [old_total, new_total]: [u64; 2]) -> f64 {
    let log = |n: u64| logs.get(n as usize).copied().unwrap_or(f64::INFINITY);
    let choose = |n: u64, k: u64| log(n) - log(k) - log(n - k);
    let of_signature = old + new;
    let tail = (new..=of_signature.min(new_total)).filter(|k| of_signature - k <= old_total).map(|k| {
        let ways = choose(new_total, k) + choose(old_total, of_signature - k);
        (ways - choose(old_total + new_total, of_signature)).exp()
    });
    tail.sum::<f64>().min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_is_fishers_exact_test() {
        // scipy.stats.fisher_exact([[1, 9], [8, 2]], "less"), and a table without a difference.
        let logs = log_factorials(200);
        assert!((chance(&logs, [1, 8], [10, 10]) - 0.002_738_58).abs() < 1e-6);
        assert!(chance(&logs, [50, 50], [100, 100]) > 0.5);
        assert!((chance(&logs, [0, 3], [10, 10]) - 120.0 / 1140.0).abs() < 1e-9);
        assert_eq!(chance(&logs, [5, 0], [10, 10]), 1.0);
    }
}
