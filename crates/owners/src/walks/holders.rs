//! Who holds files: the processes that have an inode open.

use std::collections::{HashMap, HashSet};

use pagehaul_inspect::{Machine, Tasks, open_files};

/// Names of processes that are kept for one file.
const MAX_HOLDERS: usize = 4;

/// Processes that hold an inode.
#[derive(Debug, Clone, Default)]
pub(crate) struct Held {
    pub(crate) names: Vec<String>,
    pub(crate) count: usize,
}

impl Held {
    pub(crate) fn add(&mut self, name: String) {
        if !self.names.contains(&name) {
            self.count += 1;
            if self.names.len() < MAX_HOLDERS {
                self.names.push(name);
            }
        }
    }
}

/// Returns who has one of `inodes` open.
pub(crate) fn holders(
    machine: &Machine<'_>,
    tasks: &Tasks,
    inodes: &HashSet<u64>,
) -> (HashMap<u64, Held>, Option<String>) {
    let mut found: HashMap<u64, Held> = HashMap::new();
    let broken = open_files(machine, tasks, |task, file| {
        let inode = file.get("f_inode")?.pointer()?;
        if inodes.contains(&inode) {
            found.entry(inode).or_default().add(format!("{}/{}", task.comm, task.tgid));
        }
        Ok(())
    });
    (found, broken)
}
