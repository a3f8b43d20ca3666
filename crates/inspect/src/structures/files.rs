//! Open files of all processes.

use std::collections::HashSet;

use pagehaul_btf::{Fault, Object};
use pagehaul_present::number::{count, counted};

use super::tasks::{Task, Tasks};
use crate::machine::Machine;

/// Descriptors of one process that are read (`sysctl_nr_open` is 1,048,576).
const MAX_DESCRIPTORS: u64 = 1 << 20;
/// Descriptors of all processes that are read.
const MAX_ALTOGETHER: u64 = 16 << 20;

/// What could not be read.
#[derive(Default)]
struct Unread {
    /// Files, and processes that have them.
    files: u64,
    processes: u64,
    /// Processes whose table of descriptors, or its end, could not be read.
    tables: u64,
    /// The reason of the first.
    first: Option<String>,
}

/// Passes each open file (`struct file`) of each table of descriptors on, with a task that has the table. Returns why some are
/// missing.
pub fn open_files(
    machine: &Machine<'_>,
    tasks: &Tasks,
    mut each: impl FnMut(&Task, &Object<'_>) -> Result<(), Fault>,
) -> Option<String> {
    let mut tables = HashSet::new();
    let mut left = MAX_ALTOGETHER;
    let mut unread = Unread::default();
    for task in tasks.all.iter().filter(|task| !task.kernel_thread) {
        let words = match descriptors(machine, task, &mut tables, &mut left) {
            Ok((words, lost)) => {
                if lost > 0 {
                    unread.tables += 1;
                    let why = format!("{} of the table of {}", counted(lost as u64, "page"), task.label());
                    unread.first.get_or_insert(why);
                }
                words
            }
            Err(why) => {
                unread.tables += 1;
                unread.first.get_or_insert_with(|| format!("the table of {}: {why}", task.label()));
                continue;
            }
        };
        let before = unread.files;
        for word in words.as_chunks::<8>().0 {
            let address = u64::from_le_bytes(*word);
            if address == 0 {
                continue;
            }
            let passed = machine.space().object(address, "file").and_then(|file| each(task, &file));
            match passed {
                // A file without what is asked for.
                Ok(()) | Err(Fault::Null(_)) => {}
                // One file that cannot be read does not end the table.
                Err(why) => {
                    unread.files += 1;
                    unread.first.get_or_insert_with(|| format!("a file of {}: {why}", task.label()));
                }
            }
        }
        unread.processes += u64::from(unread.files > before);
    }
    let most = (left == 0)
        .then(|| format!("open files: more than {} descriptors are not read", count(MAX_ALTOGETHER)));
    most.or_else(|| unread.describe())
}

/// The table of descriptors of a task, and how many pages of it could not be read; empty if another task had the same.
fn descriptors(
    machine: &Machine<'_>,
    task: &Task,
    tables: &mut HashSet<u64>,
    left: &mut u64,
) -> Result<(Vec<u8>, usize), Fault> {
    let files = machine.space().object(task.address.0, "task_struct")?.get("files")?;
    let address = files.pointer()?;
    if address == 0 || !tables.insert(address) {
        return Ok((Vec::new(), 0));
    }
    let table = files.target()?.get("fdt")?.target()?;
    let room = table.number("max_fds")?.min(MAX_DESCRIPTORS).min(*left);
    *left -= room;
    let first = table.get("fd")?.pointer()?;
    Ok(machine.memory().readable_bytes(first, 8 * room as usize))
}

impl Unread {
    fn describe(self) -> Option<String> {
        let first = self.first?;
        let files = || {
            let of = format!("{} of {}", counted(self.files, "open file"), processes(self.processes));
            (self.files > 0).then_some(of)
        };
        let tables = || {
            let of = format!("descriptors of {}", processes(self.tables));
            (self.tables > 0).then_some(of)
        };
        let what = files().into_iter().chain(tables()).collect::<Vec<_>>().join(", and ");
        Some(format!("{what} could not be read, the first: {first}"))
    }
}

fn processes(number: u64) -> String {
    match number {
        1 => "1 process".to_owned(),
        number => format!("{} processes", count(number)),
    }
}
