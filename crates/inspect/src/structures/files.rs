//! Open files of all processes.

use std::collections::HashSet;

use pagehaul_btf::{Fault, Object};

use super::tasks::{Task, Tasks};
use crate::machine::Machine;

/// Descriptors of one process that are read (`sysctl_nr_open` is 1,048,576).
const MAX_DESCRIPTORS: u64 = 1 << 20;
/// Descriptors of all processes that are read.
const MAX_ALTOGETHER: u64 = 16 << 20;

/// Passes each open file (`struct file`) of each table of descriptors on, with a task that has the table. Returns why some are
/// missing.
pub fn open_files(
    machine: &Machine<'_>,
    tasks: &Tasks,
    mut each: impl FnMut(&Task, &Object<'_>) -> Result<(), Fault>,
) -> Option<String> {
    let mut tables = HashSet::new();
    let mut left = MAX_ALTOGETHER;
    let mut broken = None;
    for task in tasks.all.iter().filter(|task| !task.kernel_thread) {
        let result = (|| {
            let files = machine.space().object(task.address.0, "task_struct")?.get("files")?;
            let address = files.pointer()?;
            if address == 0 || !tables.insert(address) {
                return Ok(());
            }
            let table = files.target()?.get("fdt")?.target()?;
            let room = table.number("max_fds")?.min(MAX_DESCRIPTORS).min(left);
            left -= room;
            let first = table.get("fd")?.pointer()?;
            let (bytes, _) = machine.memory().readable_bytes(first, 8 * room as usize);
            for word in bytes.as_chunks::<8>().0 {
                let file = u64::from_le_bytes(*word);
                // One file that cannot be read does not end the table.
                if file != 0 && each(task, &machine.space().object(file, "file")?).is_err() {
                    continue;
                }
            }
            Ok::<(), Fault>(())
        })();
        if let Err(why) = result {
            broken.get_or_insert_with(|| format!("open files of {}: {why}", task.label()));
        }
    }
    if left == 0 {
        broken = Some(format!("open files: more than {MAX_ALTOGETHER} descriptors are not read"));
    }
    broken
}
