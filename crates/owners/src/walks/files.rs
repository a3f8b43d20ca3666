//! Open files of all processes: buffers of pipes, and who holds files without a name.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use pagehaul_btf::{Fault, Object};
use pagehaul_inspect::{Machine, Tasks, open_files};
use pagehaul_machine::{PageCount, Pfn, VirtAddr};

use super::Walks;
use crate::claims::Claimant;

/// Buffers of a pipe that are read (`pipe-max-size` is 1 MiB: 256 of them; root can have more).
const MAX_BUFFERS: u64 = 1 << 16;
/// `S_IFMT` and `S_IFIFO` (include/uapi/linux/stat.h).
const FILE_TYPE: u64 = 0o170_000;
const FIFO: u64 = 0o010_000;
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

impl Walks<'_> {
    /// Claims the buffers of pipes, whose pages carry no mark.
    pub(super) fn pipes(&mut self) {
        let machine = self.machine;
        let anonymous = machine.symbols().address("anon_pipe_buf_ops");
        let mut seen = HashSet::new();
        let mut pages: Vec<Range<Pfn>> = Vec::new();
        let broken = open_files(machine, self.tasks, |_, file| {
            let inode = file.get("f_inode")?.target()?;
            if inode.number("i_mode")? & FILE_TYPE != FIFO {
                return Ok(());
            }
            let pipe = inode.get("i_pipe")?.target()?;
            if seen.insert(pipe.address()) {
                self.buffers(&pipe, anonymous, &mut pages)?;
            }
            Ok(())
        });
        self.missing.extend(broken);
        let claimant = self.claims.claimant(Claimant::Pipe);
        pages.into_iter().for_each(|pages| self.claims.add(pages, claimant));
    }

    /// Adds the pages of the buffers in use, and those that are kept for the next writes.
    fn buffers(
        &self,
        pipe: &Object<'_>,
        anonymous: Option<u64>,
        pages: &mut Vec<Range<Pfn>>,
    ) -> Result<(), Fault> {
        // 8cefc107ca54 (5.5): slots from tail to head in a ring of ring_size.
        let (head, tail) = (pipe.number("head")?, pipe.number("tail")?);
        let size = pipe.number("ring_size")?.clamp(1, MAX_BUFFERS);
        let ring = pipe.get("bufs")?.target()?;
        for slot in 0..(head.wrapping_sub(tail) & u64::from(u32::MAX)).min(size) {
            let buffer = ring.index(tail.wrapping_add(slot) % size)?;
            // Buffers can also lead to pages of files (splice).
            if anonymous.is_none_or(|known| buffer.number("ops").is_ok_and(|ops| ops == known)) {
                self.page(buffer.number("page")?, pages);
            }
        }
        let kept = pipe.get("tmp_page")?;
        match kept.len() {
            0 => self.page(kept.pointer()?, pages),
            // a194c9f53277 (6.15): two of them.
            count => (0..count.min(16)).try_for_each(|at| {
                self.page(kept.index(at)?.pointer()?, pages);
                Ok::<(), Fault>(())
            })?,
        }
        Ok(())
    }

    fn page(&self, address: u64, pages: &mut Vec<Range<Pfn>>) {
        pages.extend(self.memmap.pfn(VirtAddr::new(address)).map(|pfn| pfn..pfn + PageCount::new(1)));
    }
}
