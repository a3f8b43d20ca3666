//! Words and links of all sections.

use std::collections::HashMap;

use maud::{Markup, html};
use pagehaul_inspect::{Task, TriageReport};
use pagehaul_present::number::count;
use pagehaul_present::{Table, printable};

/// Tasks by their thread ID.
pub(super) struct Index<'a> {
    tasks: HashMap<u32, &'a Task>,
    /// Whether each task has a row, to which others lead.
    pub has_rows: bool,
}

impl<'a> Index<'a> {
    pub(super) fn new(report: &'a TriageReport) -> Self {
        let tasks: HashMap<u32, &Task> = report.tasks.all.iter().map(|task| (task.pid, task)).collect();
        Self { tasks, has_rows: report.tasks.all.len() <= super::tasks::MOST_ROWS }
    }

    pub(super) fn task(&self, pid: u32) -> Option<&'a Task> {
        self.tasks.get(&pid).copied()
    }

    /// Builds a link to the row of a task.
    pub(super) fn link(&self, name: &str, pid: u32) -> Markup {
        let label = one_line(&format!("{name}/{pid}"));
        html! {
            @if self.has_rows && self.tasks.contains_key(&pid) { a href=(format!("#pid-{pid}")) { (label) } }
            @else { (label) }
        }
    }
}

/// Text of a dump, as one line.
pub(super) fn one_line(text: &str) -> String {
    printable(text).into_owned()
}

/// A table whose cells are one line each.
pub(super) fn one_line_cells(mut table: Table) -> Table {
    let cells = table.rows.iter_mut().flatten();
    cells.for_each(|cell| cell.text = one_line(&cell.text));
    table
}

/// At most so many letters of it.
pub(super) fn at_most(text: &str, most: usize) -> String {
    let text = one_line(text);
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        None => text,
    }
}

/// Numbers as ranges: `7 12-40`.
pub(super) fn ranges(numbers: impl IntoIterator<Item = u64>) -> String {
    let mut numbers: Vec<u64> = numbers.into_iter().collect();
    numbers.sort_unstable();
    numbers.dedup();
    let runs = numbers.chunk_by(|a, b| b - a == 1).map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        [only] => only.to_string(),
        [] => String::new(),
    });
    runs.collect::<Vec<_>>().join(" ")
}

/// Numbers as ranges, behind a summary if they are many. The script finds numbers in them.
pub(super) fn pids(pids: impl IntoIterator<Item = u32>) -> Markup {
    let text = ranges(pids.into_iter().map(u64::from));
    html! {
        @if text.len() <= 40 { span.pids { (text) } }
        @else {
            details { summary { (at_most(&text, 24)) } span.pids { (text) } }
        }
    }
}

/// At most so many of them, and how many more there are: the table of tasks has them all.
pub(super) fn some_pids(all: impl IntoIterator<Item = u32>, most: usize) -> Markup {
    let mut all = all.into_iter();
    let first: Vec<u32> = all.by_ref().take(most).collect();
    let rest = all.count();
    html! { (pids(first)) @if rest > 0 { " and " (count(rest as u64)) " more" } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_ranges() {
        assert_eq!(ranges([5, 1, 2, 3, 9, 2, 8]), "1-3 5 8-9");
        assert_eq!(ranges([u64::MAX, 0]), "0 18446744073709551615");
        assert_eq!(ranges([]), "");
    }

    #[test]
    fn long_text_is_cut_between_letters() {
        assert_eq!(at_most("äöü\n", 3), "äöü…");
        assert_eq!(at_most("ä\n", 3), "ä\\n");
    }
}
