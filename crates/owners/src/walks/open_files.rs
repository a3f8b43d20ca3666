//! Open files of all processes, which lead to memory without a mark: pipes, sockets, io_uring, perf events.

use std::collections::HashSet;

use pagehaul_btf::{Fault, Object};
use pagehaul_inspect::{Task, open_files};

use super::Walks;

/// The operations that tell what a file is. A kernel built without the feature has no symbol.
struct Kinds {
    socket: Option<u64>,
    io_uring: Option<u64>,
    perf: Option<u64>,
}

impl Walks<'_> {
    /// Claims what open files lead to. One pass over all descriptors serves all kinds of files.
    pub(super) fn open_files(&mut self) {
        let (machine, tasks) = (self.machine, self.tasks);
        let mut symbol = |what: &str, name: &str| match machine.symbol(name) {
            Ok(known) => Some(known),
            Err(Fault::NoSymbol(_)) => None,
            Err(why) => {
                self.missing(what, format_args!("not checked: {why}"));
                None
            }
        };
        let kinds = Kinds {
            socket: symbol("queues of sockets", "socket_file_ops"),
            io_uring: symbol("io_uring", "io_uring_fops"),
            perf: symbol("ring buffers of perf", "perf_fops"),
        };
        let mut seen = HashSet::new();
        let broken = open_files(machine, tasks, |task, file| self.open_file(&kinds, &mut seen, task, file));
        self.missing.extend(broken.map(|why| format!("open files: {why}")));
        if let Some(why) = self.packets.describe() {
            self.missing("queues of sockets", why);
        }
    }

    fn open_file(
        &mut self,
        kinds: &Kinds,
        seen: &mut HashSet<u64>,
        task: &Task,
        file: &Object<'_>,
    ) -> Result<(), Fault> {
        let operations = file.get("f_op")?.pointer()?;
        let claim = match Some(operations) {
            kind if kind == kinds.socket => Self::socket,
            kind if kind == kinds.io_uring => Self::io_uring,
            kind if kind == kinds.perf => Self::perf,
            _ => return self.pipe(seen, file),
        };
        // Several descriptors and processes have the same file, and the first process counts.
        match file.get("private_data")?.pointer()? {
            private if private != 0 && seen.insert(private) => {
                claim(self, private, &format!("{}/{}", task.comm, task.tgid))
            }
            _ => Ok(()),
        }
    }
}
