//! `triage diff`: what changed, as text.

use std::fmt::Write as _;

use pagehaul_inspect::{Change, Difference, Sides};
use pagehaul_present::number::{bytes, count};
use pagehaul_present::{Cell, Table, Tone};

use super::text::{INNERMOST, stack_lines};

/// Rows of each table, and stacks, that are shown; JSON has all.
const FEW: usize = 15;

/// Writing to a string does not fail.
macro_rules! put {
    ($out:expr, $($text:tt)*) => {{ let _ = writeln!($out, $($text)*); }};
}

/// The changes from the dump `before` to the dump `after`.
pub(super) fn text(difference: &Difference, [before, after]: [&str; 2]) -> String {
    let mut out = String::new();
    put!(out, "Changes from {before} to {after}");
    for (what, values) in [("release", &difference.releases), ("signature", &difference.signatures)] {
        if let Some([before, after]) = values {
            put!(out, "  {what}: {before}, then {after}");
        }
    }
    list("Findings", &difference.findings, &mut out);
    changes("Tasks", "state", &difference.tasks, count, &mut out);
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
    changes("vmalloc", "caller", &difference.vmalloc, bytes, &mut out);
    list("Modules", &difference.modules, &mut out);
    if out.lines().count() == 1 {
        put!(out, "  none");
    }
    out
}

fn list(title: &str, sides: &Sides<String>, out: &mut String) {
    if sides.new.is_empty() && sides.gone.is_empty() {
        return;
    }
    put!(out, "\n{title}");
    let marked = |mark: char, items: &[String]| {
        items.iter().map(|item| format!("  {mark} {item}\n")).collect::<String>()
    };
    out.push_str(&marked('-', &sides.gone));
    out.push_str(&marked('+', &sides.new));
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
    put!(out, "\n{title}\n{}", table.to_string().trim_end());
    if changes.len() > FEW {
        put!(out, "  and {} smaller changes", changes.len() - FEW);
    }
}
