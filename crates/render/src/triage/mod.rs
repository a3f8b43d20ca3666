//! Why a machine crashed or stalled: the report, one task, and the changes between two reports.

/// Puts one line. It comes after an empty one if the format begins with a line break; all other line breaks are from the dump, and are
/// escaped: a dump cannot forge lines of the report.
macro_rules! put {
    ($out:expr, $format:literal $($arguments:tt)*) => {{
        use $crate::triage::lines::Lines as _;
        $out.put_line($format, &format!($format $($arguments)*));
    }};
}

mod counts;
mod cpus;
mod diff;
#[cfg(feature = "html")]
mod html;
mod interrupts;
mod io;
mod ipc;
mod lines;
mod log;
mod memory;
mod modules;
mod mounts;
mod net;
mod next;
mod one_task;
mod pressure;
mod rcu;
mod section;
mod signals;
mod sockets;
mod stack;
mod swap;
mod tasks;
mod text;
mod timers;
mod verdict;
mod waits;
mod what;
mod workqueues;

#[cfg(feature = "html")]
pub use html::{Page, page};
pub use next::name_commands;
use pagehaul_inspect::{Detail, Difference, OnRequest, Task, TaskStack, TriageReport};
pub use section::Section;

/// Formats the one screen of the dump `name`.
pub fn summary(report: &TriageReport, name: &str) -> String {
    text::summary(report, name)
}

/// Formats some sections, in full, and what is missing.
pub fn sections(report: &TriageReport, on_request: &OnRequest, sections: &[Section]) -> String {
    text::sections(report, on_request, sections)
}

/// Formats all tasks, with their stacks if there are any.
pub fn tasks(report: &TriageReport, stacks: &[TaskStack]) -> String {
    tasks::tasks(report, stacks)
}

/// Formats one task.
pub fn one_task(report: &TriageReport, task: &Task, detail: &Detail, stack: &TaskStack) -> String {
    one_task::one_task(report, task, detail, stack)
}

/// Formats the changes from one dump to another, whose names are given.
pub fn difference(difference: &Difference, names: [&str; 2]) -> String {
    diff::text(difference, names)
}
