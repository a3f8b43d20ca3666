//! Split sets: one machine's memory in several files, each with all headers, both bitmaps, and its own range of pages.

use std::path::PathBuf;

use pagehaul_machine::{KernelMapping, PhysAddr, Platform};
use pagehaul_physmem::{PAGE_SHIFT, PageState, PhysMemory, RangeMap, ReadError, View};

use super::KdumpFile;
use super::set_view::SetView;

/// Several parts of one dump.
pub struct SplitSet {
    /// In ascending order of their PFNs.
    parts: Vec<KdumpFile>,
    /// Whether no PFN is in the range of two parts.
    pub(super) disjoint: bool,
    faults: Vec<String>,
}

/// Why files are not the parts of one dump.
#[derive(Debug, thiserror::Error)]
pub enum SplitError {
    /// No file at all.
    #[error("a split set has at least one part")]
    Empty,
    /// A file that is a whole dump.
    #[error("{path} is not part of a split set: name it alone", path = path.display())]
    NoPart {
        /// The file.
        path: PathBuf,
    },
    /// Parts of two dumps.
    #[error("{path} and {other} are parts of different dumps: their {what} differ", path = path.display(), other = other.display())]
    Different {
        /// One of them.
        path: PathBuf,
        /// The other.
        other: PathBuf,
        /// What differs.
        what: &'static str,
    },
    /// A file that is named twice.
    #[error("{path} is named twice: name each part once", path = .0.display())]
    Twice(PathBuf),
    /// Two complete parts whose ranges overlap.
    #[error("{path} and {other} both have PFN {pfn:#x}: name only one of them", path = path.display(), other = other.display())]
    Overlap {
        /// One of them.
        path: PathBuf,
        /// The other.
        other: PathBuf,
        /// The first page that both have, counted in the dump's own page size.
        pfn: u64,
    },
}

impl SplitSet {
    /// Joins parts, in any order. Parts may be missing: their pages are then
    /// [`Missing`](ReadError::Missing).
    ///
    /// The ranges of parts that are marked incomplete may overlap: the header of a part that pagehaul is still writing says
    /// that it has all pages ([`SplitPartWriter`](crate::write::SplitPartWriter)). Each page is read from the part that has
    /// it.
    pub fn new(mut parts: Vec<KdumpFile>) -> Result<Self, SplitError> {
        if parts.is_empty() {
            return Err(SplitError::Empty);
        }
        let range = |part: &KdumpFile| part.info.split.clone().unwrap_or(0..0);
        if let Some(whole) = parts.iter().find(|part| part.info.split.is_none()) {
            return Err(SplitError::NoPart { path: whole.path().to_owned() });
        }
        parts.sort_by_key(|part| (range(part).start, range(part).end));
        let mut faults = Vec::new();
        for pair in parts.windows(2) {
            let (one, other) = (&pair[0], &pair[1]);
            if let Some(what) = difference(one, other) {
                let (path, other) = (one.path().to_owned(), other.path().to_owned());
                return Err(SplitError::Different { path, other, what });
            }
        }
        // makedumpfile writes parts without any PFN if the machine is smaller than its blocks.
        if parts.iter().any(|part| !range(part).is_empty()) {
            parts.retain(|part| !range(part).is_empty());
        }
        let overlap = |one: &KdumpFile, other: &KdumpFile| range(other).start < range(one).end;
        let finished: Vec<&KdumpFile> = parts.iter().filter(|part| !part.is_incomplete()).collect();
        if let Some(pair) = finished.windows(2).find(|pair| overlap(pair[0], pair[1])) {
            let (path, other) = (pair[0].path().to_owned(), pair[1].path().to_owned());
            return Err(match pair[0].files() == pair[1].files() {
                true => SplitError::Twice(path),
                false => SplitError::Overlap { path, other, pfn: range(pair[1]).start },
            });
        }
        let disjoint = !parts.windows(2).any(|pair| overlap(&pair[0], &pair[1]));
        let mut next = 0;
        let end = parts.first().map_or(0, |part| part.info.max_mapnr);
        for part in parts.iter().map(range).chain(std::iter::once(end..end)) {
            if part.start > next {
                faults.push(format!("the part of PFNs {next:#x} to {:#x} is missing", part.start - 1));
            }
            next = part.end.max(next);
        }
        for part in &parts {
            let name = part.path().display();
            faults.extend(part.faults.iter().chain(&part.doubt).map(|fault| format!("{name}: {fault}")));
            if part.cut_stream.is_some() {
                faults.push(format!("{name}: {}", super::TRUNCATED_STREAM));
            } else if part.is_incomplete() {
                faults.push(format!("{name} is marked incomplete: its writer did not finish"));
            }
        }
        Ok(Self { parts, disjoint, faults })
    }

    /// The parts, in the order of their pages.
    pub fn parts(&self) -> &[KdumpFile] {
        &self.parts
    }

    /// Returns whether ranges of unfinished parts overlap. Each page is in one of them.
    pub fn overlaps(&self) -> bool {
        !self.disjoint
    }

    /// Returns whether a part is incomplete or missing.
    pub fn is_incomplete(&self) -> bool {
        !self.faults.is_empty()
    }

    pub(super) fn first(&self) -> &KdumpFile {
        // `new` refuses an empty set.
        &self.parts[0]
    }
}

/// Returns what differs between the dumps that two parts belong to.
fn difference(one: &KdumpFile, other: &KdumpFile) -> Option<&'static str> {
    let (a, b) = (&one.info, &other.info);
    if a.uts != b.uts {
        Some("machines")
    } else if a.crash_time != b.crash_time {
        Some("crash times")
    } else if (a.max_mapnr, a.block_size) != (b.max_mapnr, b.block_size) {
        Some("sizes of memory")
    } else if one.byte_layout != other.byte_layout {
        Some("layouts")
    } else if one.index != other.index {
        Some("bitmaps")
    } else if !one.is_incomplete() && !other.is_incomplete() && one.eraseinfo().ok() != other.eraseinfo().ok()
    {
        // makedumpfile writes the record last.
        Some("records of what was erased")
    } else {
        None
    }
}

impl PhysMemory for SplitSet {
    fn ranges(&self) -> &RangeMap {
        self.first().ranges()
    }

    fn mark_stored(&self, from: PhysAddr, out: &mut [u64]) -> Result<(), ReadError> {
        out.fill(0);
        let first_pfn = from.get() >> PAGE_SHIFT;
        let end = first_pfn + out.len() as u64 * 64;
        let mut own = vec![0; out.len()];
        for part in &self.parts {
            let range = part.part();
            if range.start < end && first_pfn < range.end {
                part.mark_stored(from, &mut own)?;
                out.iter_mut().zip(&own).for_each(|(word, own)| *word |= own);
            }
        }
        Ok(())
    }

    fn held_bytes(&self) -> u64 {
        self.parts.iter().map(PhysMemory::held_bytes).sum()
    }

    fn known_state(&self, paddr: u64) -> (Option<PageState>, u64) {
        // The bitmaps are the same in all parts.
        self.first().known_state(paddr)
    }

    fn view(&self) -> Box<dyn View + '_> {
        Box::new(SetView::new(self))
    }

    fn notes(&self) -> &[u8] {
        self.first().notes()
    }

    fn platform(&self) -> Platform {
        self.first().platform()
    }

    fn faults(&self) -> Vec<String> {
        self.faults.clone()
    }

    fn files(&self) -> Vec<(u64, u64)> {
        self.parts.iter().flat_map(PhysMemory::files).collect()
    }

    fn kernel_mapping(&self) -> Option<KernelMapping> {
        self.first().kernel_mapping()
    }
}
