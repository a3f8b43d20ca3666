//! What changed between two reports.

use std::collections::HashSet;

use serde::Serialize;

use super::gaps::{Gaps, Part};
use super::triage::TriageReport;
use crate::model::stacks::StackGroup;
use crate::structures::memory::counter_bytes;

/// A number that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// What it counts.
    pub name: String,
    /// In the first dump.
    pub before: u64,
    /// In the second.
    pub after: u64,
}

impl Change {
    /// Returns how much it grew.
    pub fn growth(&self) -> i128 {
        i128::from(self.after) - i128::from(self.before)
    }
}

/// What one of two dumps has and the other lacks.
#[derive(Debug, Clone, Serialize)]
pub struct Sides<T> {
    /// Only in the first dump.
    pub gone: Vec<T>,
    /// Only in the second.
    pub new: Vec<T>,
}

/// What changed. Numbers that are equal are left out; the others come by the size of the change.
#[derive(Debug, Clone, Serialize)]
pub struct Difference {
    /// Releases, if they differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub releases: Option<[String; 2]>,
    /// Signatures, if they differ. "not known" without a log that could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signatures: Option<[String; 2]>,
    /// Findings, without regard to the numbers in their texts.
    pub findings: Sides<String>,
    /// Findings of one dump that the other may have: it lacks parts that this one has.
    pub unsure_findings: Sides<String>,
    /// Tasks by state, and all.
    pub tasks: Vec<Change>,
    /// Stacks of blocked tasks (D), by their functions.
    pub stacks: Sides<StackGroup>,
    /// Memory in bytes.
    pub memory: Vec<Change>,
    /// Slab caches in bytes.
    pub slab: Vec<Change>,
    /// Callers of vmalloc, and the backlog, in bytes.
    pub vmalloc: Vec<Change>,
    /// Modules.
    pub modules: Sides<String>,
    /// Parts that are not compared, as nothing of them was read in one dump.
    pub not_compared: Vec<Part>,
    /// Parts that were read in part in one dump: only rows that both have are compared. Numbers of tasks are the least possible ones.
    pub partial: Vec<Part>,
    /// The parts that were not read in whole, of each dump.
    pub gaps: [Gaps; 2],
    /// What is missing in each dump, one sentence each.
    pub missing: [Vec<String>; 2],
}

/// The parts that are compared.
const COMPARED: [Part; 6] =
    [Part::Tasks, Part::Stacks, Part::Memory, Part::Slab, Part::Vmalloc, Part::Modules];

/// Compares two reports.
pub fn difference(before: &TriageReport, after: &TriageReport) -> Difference {
    let differ = |a: &String, b: &String| (a != b).then(|| [a.clone(), b.clone()]);
    let findings =
        |report: &TriageReport| report.verdict.iter().map(|finding| finding.text.clone()).collect();
    let modules = |report: &TriageReport| report.modules.iter().map(|module| module.name.clone()).collect();
    let signature = |report: &TriageReport| {
        let none = if report.death.unknown.is_some() { "not known" } else { "none" };
        report.signature.as_ref().map_or_else(|| none.into(), |it| format!("{} ({})", it.sig, it.text()))
    };
    let functions = |group: &StackGroup| group.stack.functions().map(str::to_owned).collect::<Vec<_>>();
    let gaps = [&before.gaps, &after.gaps];
    let lacks = |part| gaps.iter().any(|gaps| gaps.lacks(part));
    let is_partial = |part| !lacks(part) && gaps.iter().any(|gaps| gaps.is_partial(part));
    let compare = |part: Part, before: Rows, after: Rows| match (lacks(part), is_partial(part)) {
        (true, _) => Vec::new(),
        (_, true) => changes_of_both(before, after),
        _ => changes(before, after),
    };
    let mut tasks = compare(Part::Tasks, states(before), states(after));
    tasks.sort_by(|a, b| a.name.cmp(&b.name));
    let mut findings =
        sides(findings(before), findings(after), |text| text.replace(|c: char| c.is_ascii_digit(), ""));
    let mut unsure_findings = Sides { gone: Vec::new(), new: Vec::new() };
    // Without symbols, places have the names that the log has.
    let differ_in_names = before.symbols_known != after.symbols_known;
    if after.gaps.exceed(&before.gaps) || differ_in_names {
        unsure_findings.gone = std::mem::take(&mut findings.gone);
    }
    if before.gaps.exceed(&after.gaps) || differ_in_names {
        unsure_findings.new = std::mem::take(&mut findings.new);
    }
    // What could be read of a stack that ends early is not another stack.
    let stacks = |report: &TriageReport| {
        report.blocked.iter().filter(|group| !group.stack.is_cut()).cloned().collect()
    };
    let mut stacks = sides(stacks(before), stacks(after), functions);
    forget_unknown(&mut stacks, gaps, Part::Tasks);
    forget_unknown(&mut stacks, gaps, Part::Stacks);
    let mut modules = sides(modules(before), modules(after), Clone::clone);
    forget_unknown(&mut modules, gaps, Part::Modules);
    Difference {
        releases: differ(&before.system.release, &after.system.release),
        signatures: differ(&signature(before), &signature(after)),
        findings,
        unsure_findings,
        tasks,
        stacks,
        memory: compare(Part::Memory, memory(before), memory(after)),
        slab: compare(Part::Slab, slab(before), slab(after)),
        vmalloc: compare(Part::Vmalloc, vmalloc(before), vmalloc(after)),
        modules,
        not_compared: COMPARED.into_iter().filter(|part| lacks(*part)).collect(),
        partial: COMPARED.into_iter().filter(|part| is_partial(*part)).collect(),
        gaps: gaps.map(Clone::clone),
        missing: [before.missing.clone(), after.missing.clone()],
    }
}

/// Forgets what one dump has and the other may have, too: it was not read in whole.
fn forget_unknown<T>(sides: &mut Sides<T>, [before, after]: [&Gaps; 2], part: Part) {
    if !before.is_whole(part) {
        sides.new.clear();
    }
    if !after.is_whole(part) {
        sides.gone.clear();
    }
}

/// Compares the rows that both have.
fn changes_of_both(mut before: Rows, mut after: Rows) -> Vec<Change> {
    let names = |rows: &Rows| rows.iter().map(|(name, _)| name.clone()).collect::<HashSet<_>>();
    let both: HashSet<String> = names(&before).intersection(&names(&after)).cloned().collect();
    for rows in [&mut before, &mut after] {
        rows.retain(|(name, _)| both.contains(name));
    }
    changes(before, after)
}

type Rows = Vec<(String, u64)>;

fn states(report: &TriageReport) -> Rows {
    let all = ("all".to_owned(), report.tasks.all.len() as u64);
    let states = report.states.iter().map(|(letter, number)| (letter.to_string(), *number as u64));
    states.chain([all]).collect()
}

fn memory(report: &TriageReport) -> Rows {
    let size = report.system.page_size;
    let mut rows: Rows = Vec::new();
    for zone in &report.memory.zones {
        for (name, pages) in [("free", zone.free), ("per-CPU lists", zone.per_cpu), ("managed", zone.managed)]
        {
            rows.push((format!("node {} {} {name}", zone.node, zone.name), pages.bytes(size)));
        }
    }
    rows.extend(
        report.memory.counters.iter().map(|counter| (counter.0.to_owned(), counter_bytes(*counter, size))),
    );
    rows.extend(report.memory.swap.map(|(_, free)| ("swap free".to_owned(), free.bytes(size))));
    rows
}

fn slab(report: &TriageReport) -> Rows {
    report.slab.iter().map(|cache| (cache.name.clone(), cache.bytes)).collect()
}

fn vmalloc(report: &TriageReport) -> Rows {
    let Some(vmalloc) = &report.vmalloc else { return Vec::new() };
    let size = report.system.page_size;
    let backlog = vmalloc.backlog_pages.map(|pages| ("freed but not purged".to_owned(), pages.bytes(size)));
    vmalloc.callers.iter().map(|caller| (caller.caller.clone(), caller.bytes)).chain(backlog).collect()
}

/// Joins rows by name. A name that one side lacks counts as 0 there.
fn changes(before: Rows, after: Rows) -> Vec<Change> {
    let mut found: std::collections::BTreeMap<String, [u64; 2]> = std::collections::BTreeMap::new();
    for (side, rows) in [before, after].into_iter().enumerate() {
        for (name, value) in rows {
            // Several caches can have one name.
            if let Some(sum) = found.entry(name).or_default().get_mut(side) {
                *sum = sum.saturating_add(value);
            }
        }
    }
    let changed = found.into_iter().filter(|(_, [before, after])| before != after);
    let mut changed: Vec<Change> =
        changed.map(|(name, [before, after])| Change { name, before, after }).collect();
    changed.sort_by_key(|change| std::cmp::Reverse(change.growth().abs()));
    changed
}

/// Returns what only one side has, by `key`.
fn sides<T, K: Eq + std::hash::Hash>(before: Vec<T>, after: Vec<T>, key: impl Fn(&T) -> K) -> Sides<T> {
    let old: HashSet<K> = before.iter().map(&key).collect();
    let new: HashSet<K> = after.iter().map(&key).collect();
    Sides {
        gone: before.into_iter().filter(|item| !new.contains(&key(item))).collect(),
        new: after.into_iter().filter(|item| !old.contains(&key(item))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_numbers_are_left_out_and_large_changes_come_first() {
        let rows =
            |rows: &[(&str, u64)]| rows.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let before = rows(&[("a", 1), ("b", 5), ("c", 100), ("c", 1)]);
        let after = rows(&[("a", 1), ("b", 9), ("d", 7), ("c", 1)]);
        let found = changes(before, after);
        let found: Vec<_> = found.iter().map(|change| (change.name.as_str(), change.growth())).collect();
        assert_eq!(found, [("c", -100), ("d", 7), ("b", 4)]);
    }

    #[test]
    fn a_part_that_one_side_lacks_is_forgotten() {
        let mut gaps = Gaps::default();
        gaps.add(Part::Modules, false);
        let mut found = sides(vec!["a", "b"], vec!["b", "c"], |text| *text);
        forget_unknown(&mut found, [&Gaps::default(), &gaps], Part::Modules);
        assert_eq!((found.gone, found.new), (vec![], vec!["c"]));
        let rows =
            |rows: &[(&str, u64)]| rows.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let found = changes_of_both(rows(&[("a", 1), ("b", 5)]), rows(&[("b", 4)]));
        assert_eq!(found, [Change { name: "b".into(), before: 5, after: 4 }]);
    }

    #[test]
    fn sides_have_what_the_other_lacks() {
        let found = sides(vec!["a 1", "b 2"], vec!["b 3", "c 4"], |text| text.get(..1));
        assert_eq!((found.gone, found.new), (vec!["a 1"], vec!["c 4"]));
    }
}
