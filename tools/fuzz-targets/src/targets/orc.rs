//! ORC tables: a version, a number of addresses, then addresses and entries.

use pagehaul_inspect::unwind::{Table, Version};
use pagehaul_kernel::{ReadVirtual, TranslateError};

const START: u64 = 0xffff_ffff_8200_0000;

struct Memory<'a>(&'a [u8]);

impl ReadVirtual for Memory<'_> {
    fn read(&self, vaddr: u64, buf: &mut [u8]) -> Result<(), TranslateError> {
        let outside = TranslateError::NotCanonical { vaddr };
        let at = vaddr.checked_sub(START).and_then(|at| usize::try_from(at).ok());
        let bytes = at.and_then(|at| self.0.get(at..)?.get(..buf.len())).ok_or(outside)?;
        buf.copy_from_slice(bytes);
        Ok(())
    }
}

/// Runs the target.
pub fn run(data: &[u8]) {
    let Some(([version, count], rest)) = data.split_first_chunk::<2>() else { return };
    let version = [Version::V1, Version::V2, Version::V3, Version::V4][usize::from(version % 4)];
    let count = u64::from(*count);
    let table = Table::new(START, START + 4 * count, count, version);
    for pc in [0, START - 64, START, START + 64, u64::MAX] {
        let _ = table.find(&Memory(rest), pc);
    }
}
