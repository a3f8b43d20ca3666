//! Buffers of pipes, whose pages carry no mark.

use std::collections::HashSet;

use pagehaul_btf::{Fault, Object};

use super::Walks;
use crate::claims::Claimant;

/// Buffers of a pipe that are read (`pipe-max-size` is 1 MiB: 256 of them; root can have more).
const MAX_BUFFERS: u64 = 1 << 16;
/// `S_IFMT` and `S_IFIFO` (include/uapi/linux/stat.h).
const FILE_TYPE: u64 = 0o170_000;
const FIFO: u64 = 0o010_000;

impl Walks<'_> {
    /// Claims the buffers of a pipe, if the file is one.
    pub(super) fn pipe(&mut self, seen: &mut HashSet<u64>, file: &Object<'_>) -> Result<(), Fault> {
        let inode = file.get("f_inode")?.target()?;
        if inode.number("i_mode")? & FILE_TYPE != FIFO {
            return Ok(());
        }
        let pipe = inode.get("i_pipe")?.target()?;
        if seen.insert(pipe.address()) { self.buffers(&pipe) } else { Ok(()) }
    }

    /// Claims the pages of the buffers in use, and those that are kept for the next writes.
    fn buffers(&mut self, pipe: &Object<'_>) -> Result<(), Fault> {
        let claimant = self.claims.claimant(Claimant::Pipe);
        let anonymous = self.machine.symbols().address("anon_pipe_buf_ops");
        // 8cefc107ca54 (5.5): slots from tail to head in a ring of ring_size.
        let (head, tail) = (pipe.number("head")?, pipe.number("tail")?);
        let size = pipe.number("ring_size")?.clamp(1, MAX_BUFFERS);
        let ring = pipe.get("bufs")?.target()?;
        for slot in 0..(head.wrapping_sub(tail) & u64::from(u32::MAX)).min(size) {
            let buffer = ring.index(tail.wrapping_add(slot) % size)?;
            let operations = buffer.number("ops")?;
            // Buffers can also lead to pages of files (splice).
            if anonymous.is_none_or(|known| operations == known) {
                self.claim_struct_page(buffer.number("page")?, claimant);
            }
        }
        let kept = pipe.get("tmp_page")?;
        match kept.len() {
            0 => self.claim_struct_page(kept.pointer()?, claimant),
            // a194c9f53277 (6.15): two of them.
            count => {
                for at in 0..count.min(16) {
                    self.claim_struct_page(kept.index(at)?.pointer()?, claimant);
                }
            }
        }
        Ok(())
    }
}
