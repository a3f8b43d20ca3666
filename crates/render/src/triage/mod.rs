//! Why a machine crashed or stalled: the report, one task, and the changes between two reports.

/// Writing to a string does not fail.
macro_rules! put {
    ($out:expr, $($text:tt)*) => {{ let _ = writeln!($out, $($text)*); }};
}

mod cpus;
mod diff;
#[cfg(feature = "html")]
mod html;
mod io;
mod lines;
mod log;
mod memory;
mod modules;
mod net;
mod next;
mod one_task;
mod section;
mod stack;
mod tasks;
mod text;
mod timers;
mod verdict;
mod waits;
mod what;

#[cfg(feature = "html")]
pub use html::page;
pub use next::name_commands;
use pagehaul_inspect::{Detail, Difference, StackTrace, Task, TaskStack, Timers, TriageReport};
pub use section::Section;

/// Formats the one screen of the dump `name`.
pub fn summary(report: &TriageReport, name: &str) -> String {
    printable(&text::summary(report, name))
}

/// Formats some sections, in full, and what is missing.
pub fn sections(report: &TriageReport, timers: &Timers, sections: &[Section]) -> String {
    printable(&text::sections(report, timers, sections))
}

/// Formats all tasks, with their stacks if there are any.
pub fn tasks(report: &TriageReport, stacks: &[TaskStack]) -> String {
    printable(&tasks::tasks(report, stacks))
}

/// Formats one task.
pub fn one_task(report: &TriageReport, task: &Task, detail: &Detail, stack: Option<&StackTrace>) -> String {
    printable(&one_task::one_task(report, task, detail, stack))
}

/// Formats the changes from one dump to another, whose names are given.
pub fn difference(difference: &Difference, names: [&str; 2]) -> String {
    printable(&diff::text(difference, names))
}

/// Replaces control characters: what programs of the crashed machine named themselves must not steer the terminal of the reader.
pub fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}
