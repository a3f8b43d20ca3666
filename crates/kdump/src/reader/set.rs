//! Split dumps: one machine's memory in several files, each with all headers and bitmaps and its own range of pages.

use std::path::PathBuf;

use pagehaul_memory::{
    Arch, KernelMapping, PAGE_SHIFT, PageBuf, PhysMemory, RangeMap, ReadError, View, bits,
};

use super::KdumpFile;
use super::view::at_address;

/// Several parts of one dump.
pub struct SplitSet {
    /// Ascending and disjoint.
    parts: Vec<KdumpFile>,
    faults: Vec<String>,
}

/// Why files are not the parts of one dump.
#[derive(Debug, thiserror::Error)]
pub enum SplitError {
    /// No file at all.
    #[error("a split set has at least one part")]
    Empty,
    /// A file that says of itself that it is whole.
    #[error("{path} is no part of a split set: give it alone", path = path.display())]
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
        /// What tells them apart.
        what: &'static str,
    },
    /// Two parts that both have the same pages, without being the same.
    #[error("{path} and {other} both have PFN {pfn:#x}: give one of them", path = path.display(), other = other.display())]
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
    /// Puts parts together, given in any order. Parts may be missing: their pages are then
    /// [`Missing`](ReadError::Missing).
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
        // makedumpfile leaves parts without any PFN where the machine is smaller than its blocks.
        if parts.iter().any(|part| !range(part).is_empty()) {
            parts.retain(|part| !range(part).is_empty());
        }
        parts.dedup_by(|second, first| {
            let twice = range(first) == range(second);
            if twice {
                faults.push(format!(
                    "{} covers the same PFNs as {} and is not read",
                    second.path().display(),
                    first.path().display()
                ));
            }
            twice
        });
        for pair in parts.windows(2) {
            if range(&pair[1]).start < range(&pair[0]).end {
                let (path, other) = (pair[0].path().to_owned(), pair[1].path().to_owned());
                return Err(SplitError::Overlap { path, other, pfn: range(&pair[1]).start });
            }
        }
        let mut next = 0;
        let end = parts.first().map_or(0, |part| part.info.max_mapnr);
        for part in parts.iter().map(range).chain(std::iter::once(end..end)) {
            if part.start > next {
                faults.push(format!("the part of PFNs {next:#x} to {:#x} is missing", part.start - 1));
            }
            next = part.end;
        }
        for part in &parts {
            let name = part.path().display();
            faults.extend(part.faults.iter().chain(&part.doubt).map(|fault| format!("{name}: {fault}")));
            if part.is_incomplete() {
                faults.push(format!("{name} is marked incomplete: its writer did not finish"));
            }
        }
        Ok(Self { parts, faults })
    }

    /// The parts, in the order of their pages.
    pub fn parts(&self) -> &[KdumpFile] {
        &self.parts
    }

    /// Whether a part says that it is not whole, or is not there at all.
    pub fn is_incomplete(&self) -> bool {
        !self.faults.is_empty()
    }

    fn first(&self) -> &KdumpFile {
        // `new` makes no set of none.
        &self.parts[0]
    }
}

/// What tells the dumps apart that two parts belong to.
fn difference(one: &KdumpFile, other: &KdumpFile) -> Option<&'static str> {
    let (a, b) = (&one.info, &other.info);
    if a.uts != b.uts {
        Some("machines")
    } else if a.crash_time != b.crash_time {
        Some("crash times")
    } else if (a.max_mapnr, a.block_size) != (b.max_mapnr, b.block_size) {
        Some("sizes of memory")
    } else if one.shape != other.shape {
        Some("layouts")
    } else if one.index != other.index {
        Some("bitmaps")
    } else {
        None
    }
}

impl PhysMemory for SplitSet {
    fn ranges(&self) -> &RangeMap {
        self.first().ranges()
    }

    fn mark_stored(&self, first_pfn: u64, out: &mut [u64]) -> Result<(), ReadError> {
        out.fill(0);
        let end = first_pfn + out.len() as u64 * 64;
        let mut own = vec![0; out.len()];
        for part in &self.parts {
            let range = part.part();
            if range.start < end && first_pfn < range.end {
                part.mark_stored(first_pfn, &mut own)?;
                out.iter_mut().zip(&own).for_each(|(word, own)| *word |= own);
            }
        }
        Ok(())
    }

    fn view(&self) -> Box<dyn View + '_> {
        Box::new(SetView { set: self, views: self.parts.iter().map(|_| None).collect(), last: 0 })
    }

    fn notes(&self) -> &[u8] {
        self.first().notes()
    }

    fn arch(&self) -> Arch {
        self.first().arch()
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

/// A view into each part, made when it is first needed.
struct SetView<'a> {
    set: &'a SplitSet,
    views: Vec<Option<Box<dyn View + 'a>>>,
    /// The part read last.
    last: usize,
}

impl View for SetView<'_> {
    fn window(&mut self, paddr: u64, len: usize) -> Result<&[u8], ReadError> {
        self.view_of(paddr >> PAGE_SHIFT).map_err(|error| at_address(error, paddr))?.window(paddr, len)
    }

    fn copy_page(&mut self, pfn: u64, page: &mut PageBuf) -> Result<(), ReadError> {
        self.view_of(pfn)?.copy_page(pfn, page)
    }

    fn end_of_hole(&self, paddr: u64) -> u64 {
        (paddr | (pagehaul_memory::PAGE_SIZE as u64 - 1)).saturating_add(1)
    }
}

impl<'a> SetView<'a> {
    /// The view into the part that has the page.
    fn view_of(&mut self, pfn: u64) -> Result<&mut (dyn View + 'a), ReadError> {
        let parts = &self.set.parts;
        let has = |at: usize| parts[at].part().contains(&pfn);
        if !has(self.last) {
            match (0..parts.len()).find(|&at| has(at)) {
                Some(at) => self.last = at,
                None => return Err(self.nowhere(pfn << PAGE_SHIFT)),
            }
        }
        let part = &parts[self.last];
        Ok(self.views[self.last].get_or_insert_with(|| part.view()).as_mut())
    }

    /// Why no part has the page.
    fn nowhere(&self, paddr: u64) -> ReadError {
        let pfn = paddr >> PAGE_SHIFT;
        let mut bits = [0];
        let dumped = self.set.first().mark_dumped(pfn, &mut bits).is_ok() && bits::get(&bits, 0);
        match self.set.ranges().find(paddr) {
            _ if dumped => ReadError::Missing {
                paddr,
                reason: "the part of the split set that has it is missing".into(),
            },
            Some(_) => ReadError::NotInDump { paddr },
            None => ReadError::NotPresent { paddr },
        }
    }
}
