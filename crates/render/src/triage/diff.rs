//! `triage diff`: what changed, as text.

use pagehaul_inspect::{Change, Difference, Part, Sides};
use pagehaul_present::number::{bytes, count};
use pagehaul_present::{Cell, Table, Tone};

use super::lines::{INNERMOST, Lines as _};
use super::stack::stack_lines;

/// Rows of each table, and stacks, that are shown; JSON has all.
const FEW: usize = 15;
/// Facts that are missing, of each dump.
const MAX_MISSING: usize = 20;

/// The changes from the dump `before` to the dump `after`.
pub(super) fn text(difference: &Difference, [before, after]: [&str; 2]) -> String {
    let mut out = String::new();
    put!(out, "Changes from {before} to {after}");
    let names = [before, after];
    match &difference.gaps {
        [a, b] if a == b && !a.is_empty() => put!(out, "  both: {}", a.describe()),
        gaps => {
            for (gaps, name) in gaps.iter().zip(names).filter(|(gaps, _)| !gaps.is_empty()) {
                put!(out, "  {name}: {}", gaps.describe());
            }
        }
    }
    parts("not compared", &difference.not_compared, &mut out);
    parts("compared as far as both dumps have it", &difference.partial, &mut out);
    let about = out.lines().count();
    for (what, values) in [("release", &difference.releases), ("signature", &difference.signatures)] {
        if let Some([before, after]) = values {
            put!(out, "  {what}: {before}, then {after}");
        }
    }
    list("Findings", &difference.findings, &mut out);
    let Sides { gone, new } = &difference.unsure_findings;
    for (findings, has, lacks) in [(gone, before, after), (new, after, before)] {
        if !findings.is_empty() {
            put!(out, "\nFindings of {has} that {lacks} may have: not all of it was read");
            findings.iter().for_each(|finding| put!(out, "  ? {finding}"));
        }
    }
    // Of a list that broke off.
    let partial = |part| difference.partial.contains(&part);
    changes(
        if partial(Part::Tasks) { "Tasks, at least" } else { "Tasks" },
        "state",
        &difference.tasks,
        count,
        &mut out,
    );
    for (title, groups) in [("New", &difference.stacks.new), ("Gone", &difference.stacks.gone)] {
        for group in groups.iter().take(FEW) {
            put!(
                out,
                "\n{title} stack of blocked tasks: {} and {} more",
                group.first,
                group.pids.len().saturating_sub(1)
            );
            match title {
                "New" => stack_lines(&group.stack, &mut out),
                _ => put!(out, "    {}", group.stack.innermost(INNERMOST)),
            }
        }
    }
    changes("Memory", "counter", &difference.memory, bytes, &mut out);
    changes("Slab", "cache", &difference.slab, bytes, &mut out);
    changes(
        if partial(Part::Vmalloc) { "vmalloc, at least" } else { "vmalloc" },
        "caller",
        &difference.vmalloc,
        bytes,
        &mut out,
    );
    list("Modules", &difference.modules, &mut out);
    if out.lines().count() == about {
        put!(out, "  none");
    }
    let [old, new] = &difference.missing;
    let only = |of: &[String], other: &[String]| {
        of.iter().filter(|why| !other.contains(why)).cloned().collect::<Vec<_>>()
    };
    let both: Vec<String> = old.iter().filter(|why| new.contains(why)).cloned().collect();
    missing(&format!("Missing in {before}"), &only(old, new), &mut out);
    missing(&format!("Missing in {after}"), &only(new, old), &mut out);
    missing("Missing in both", &both, &mut out);
    out
}

fn parts(what: &str, parts: &[Part], out: &mut String) {
    if !parts.is_empty() {
        let names: Vec<&str> = parts.iter().map(|part| part.name()).collect();
        put!(out, "  {what}: {}", names.join(", "));
    }
}

fn missing(title: &str, reasons: &[String], out: &mut String) {
    if reasons.is_empty() {
        return;
    }
    put!(out, "\n{title}");
    reasons.iter().take(MAX_MISSING).for_each(|why| put!(out, "  {why}"));
    if reasons.len() > MAX_MISSING {
        put!(out, "  and {} more", reasons.len() - MAX_MISSING);
    }
}

fn list(title: &str, sides: &Sides<String>, out: &mut String) {
    if sides.new.is_empty() && sides.gone.is_empty() {
        return;
    }
    put!(out, "\n{title}");
    sides.gone.iter().for_each(|item| put!(out, "  - {item}"));
    sides.new.iter().for_each(|item| put!(out, "  + {item}"));
}

fn changes(title: &str, name: &str, changes: &[Change], show: impl Fn(u64) -> String, out: &mut String) {
    if changes.is_empty() {
        return;
    }
    let mut table = Table::new([name, "before", "after", "change"]);
    for change in changes.iter().take(FEW) {
        let size = show(u64::try_from(change.growth().unsigned_abs()).unwrap_or(u64::MAX));
        let sign = if change.growth() < 0 { '-' } else { '+' };
        let cell = |text: String| Cell::new(text, Tone::Plain);
        table.row([
            cell(change.name.clone()),
            cell(show(change.before)),
            cell(show(change.after)),
            cell(format!("{sign}{size}")),
        ]);
    }
    put!(out, "\n{title}");
    out.put_table(&table);
    if changes.len() > FEW {
        put!(out, "  and {} smaller changes", changes.len() - FEW);
    }
}
