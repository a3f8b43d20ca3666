//! Reads pages of a raw vmcore, for tests. Shares no code with pagehaul.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const PAGE: u64 = 4096;
const PT_LOAD: u32 = 1;

/// An ELF64 little-endian vmcore.
pub struct Vmcore {
    file: File,
    segments: Vec<Segment>,
}

struct Segment {
    offset: u64,
    physical: u64,
    in_file: u64,
}

impl Vmcore {
    /// Opens a vmcore and reads its program headers.
    pub fn open(path: &Path) -> Result<Vmcore> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        let mut header = [0; 64];
        file.read_exact_at(&mut header, 0).with_context(|| format!("ELF header of {}", path.display()))?;
        if !header.starts_with(b"\x7fELF\x02\x01") {
            bail!("{} is not an ELF64 file", path.display());
        }
        let headers = word(&header, 32, 8);
        let (size, count) = (word(&header, 54, 2), word(&header, 56, 2));
        let mut segments = Vec::new();
        for i in 0..count {
            let mut entry = [0; 56];
            let at = headers.saturating_add(i * size);
            file.read_exact_at(&mut entry, at)
                .with_context(|| format!("program header {i} of {}", path.display()))?;
            if word(&entry, 0, 4) == u64::from(PT_LOAD) {
                let (offset, physical, in_file) =
                    (word(&entry, 8, 8), word(&entry, 24, 8), word(&entry, 32, 8));
                segments.push(Segment { offset, physical, in_file });
            }
        }
        Ok(Vmcore { file, segments })
    }

    /// Reads the page with this PFN into `page`. Returns false if the vmcore does not hold all of it.
    pub fn page(&self, pfn: u64, page: &mut [u8; PAGE as usize]) -> Result<bool> {
        let address = pfn.saturating_mul(PAGE);
        let holds = |s: &&Segment| {
            address.checked_sub(s.physical).is_some_and(|at| at.saturating_add(PAGE) <= s.in_file)
        };
        let Some(segment) = self.segments.iter().find(holds) else { return Ok(false) };
        let offset = segment.offset.saturating_add(address - segment.physical);
        self.file.read_exact_at(page, offset).with_context(|| format!("page {pfn:#x} of the vmcore"))?;
        Ok(true)
    }

    /// Returns the PFNs of all complete pages, by segment.
    pub fn frames(&self) -> impl Iterator<Item = u64> + '_ {
        self.segments
            .iter()
            .flat_map(|s| s.physical.div_ceil(PAGE)..s.physical.saturating_add(s.in_file) / PAGE)
    }
}

/// Reads a little-endian number of `size` bytes. Bytes past the end are 0.
fn word(bytes: &[u8], at: usize, size: usize) -> u64 {
    let field = bytes.get(at..at + size).unwrap_or_default();
    field.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
