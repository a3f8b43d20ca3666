//! Verifies a dump: structure, contents and checksums.

use std::io;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use pagehaul_kdump::{KdumpFile, Structure};
use pagehaul_physmem::file::{ReadAt, is_url, shown};
use pagehaul_physmem::{OpenError, PAGE_SHIFT, PageState, PhysMemory, ReadError};

use pagehaul_output::checksums::{self, ChecksumError, Checksums};
use pagehaul_pool::map_numbers;
use pagehaul_run::{Phase, Progress};

use crate::sweep::{known_runs, sweep_runs};
use crate::{Source, SourceKind, open_file};

/// Failures that are named; the others are counted.
pub const NAMED: usize = 1 << 16;
/// Ranges of page data that are compared at a time: 512 MiB of memory at most, in dumps of more than 64 GiB of pages.
const COMPARED: u64 = 1 << 24;
/// Least bytes of a page, to estimate the number of ranges: zstd's shortest frame of 4 KiB.
const LEAST_DATA: u64 = 16;

/// The result of a verification.
#[derive(Debug, Default)]
pub struct Findings {
    /// Faults of the dump as a whole.
    pub faults: Vec<String>,
    /// Pages that can be read.
    pub present: u64,
    /// Excluded pages.
    pub excluded: u64,
    /// Missing pages.
    pub missing: u64,
    /// Damaged pages: their data does not decode, or their descriptors are impossible.
    pub damaged: u64,
    /// The first of those that are missing or damaged, by PFN, and why.
    pub failures: Vec<(u64, PageState, String)>,
    /// Files whose checksums were found.
    pub summed: Vec<PathBuf>,
    /// Ranges of files that have changed since their checksums were taken.
    pub changed: Vec<Changed>,
}

/// A range of a file that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// The file.
    pub path: PathBuf,
    /// Byte offsets.
    pub bytes: Range<u64>,
    /// What the format has there, if known.
    pub holds: Vec<&'static str>,
    /// PFNs of the pages there: the first and the last, and how many.
    pub pages: Option<(u64, u64, u64)>,
}

/// Why a dump cannot be verified.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// A file cannot be opened again.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A file cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Checksums are unusable.
    #[error(transparent)]
    Checksums(#[from] ChecksumError),
}

impl Findings {
    /// Returns whether no damage was found.
    pub fn is_intact(&self) -> bool {
        self.faults.is_empty() && self.missing == 0 && self.damaged == 0 && self.changed.is_empty()
    }

    fn count(&mut self, state: PageState, pages: u64) {
        *match state {
            PageState::Present => &mut self.present,
            PageState::Excluded => &mut self.excluded,
            PageState::Missing => &mut self.missing,
            PageState::Damaged => &mut self.damaged,
            PageState::Absent => return,
        } += pages;
    }

    /// Counts pages whose state is known, and records the first missing ones.
    fn count_run(&mut self, memory: &dyn PhysMemory, pages: Range<u64>, state: PageState) {
        self.count(state, pages.end - pages.start);
        if state == PageState::Missing {
            let mut view = memory.view();
            let room = NAMED - self.failures.len();
            self.failures.extend(pages.take(room).filter_map(|pfn| {
                let error = view.window(pfn << PAGE_SHIFT, 1).err()?;
                Some((pfn, error.state(), error.to_string()))
            }));
        }
    }
}

/// Verifies structure, contents and, if there are any, checksums, with `threads` threads.
pub fn verify(source: &Source, threads: usize, progress: &Progress) -> Result<Findings, VerifyError> {
    let mut findings = Findings { faults: source.warnings(), ..Findings::default() };
    for dump in source.dumps() {
        findings.faults.extend(overlaps(dump)?);
    }
    progress.begin(Phase::Pack, source.memory().ranges().bytes());
    let memory = source.memory();
    for (pages, state) in known_runs(memory) {
        if let Some(state) = state {
            progress.advance(Phase::Pack, (pages.end - pages.start) << PAGE_SHIFT);
            findings.count_run(memory, pages, state);
        }
    }
    let unknown = known_runs(memory).filter(|(_, state)| state.is_none()).map(|(pages, _)| pages);
    let none: Option<()> = sweep_runs(memory, unknown, threads, |batch| {
        for (_, state, _) in batch.pages() {
            findings.count(state, 1);
        }
        // Those of known runs may be behind them, and be cut off in the end.
        let room = (2 * NAMED).saturating_sub(findings.failures.len());
        let named = batch.failures.iter().take(room);
        findings.failures.extend(named.map(|(pfn, error)| (*pfn, error.state(), error.to_string())));
        progress.advance(Phase::Pack, batch.bytes().len() as u64);
        ControlFlow::Continue(())
    });
    debug_assert!(none.is_none());
    findings.failures.sort_by_key(|(pfn, _, _)| *pfn);
    findings.failures.truncate(NAMED);
    for (index, path) in source.paths().iter().enumerate() {
        let sums = match open_file(&Checksums::path_of(path)) {
            Ok(sums) => Checksums::read(&*sums)?,
            Err(OpenError::Io { source, .. }) if is_absent(path, source.kind()) => continue,
            Err(error) => return Err(error.into()),
        };
        let file = open_file(path)?;
        let path = shown(path);
        findings.summed.push(path.clone());
        if file.size() != sums.size {
            findings.faults.push(format!(
                "{}: {} bytes, but {} when its checksums were taken",
                path.display(),
                file.size(),
                sums.size
            ));
        }
        for bytes in changes(&*file, &sums, threads) {
            findings.changed.push(describe(source, index, path.clone(), bytes)?);
        }
    }
    Ok(findings)
}

/// Returns whether an error means that a file has no checksums.
fn is_absent(path: &Path, error: io::ErrorKind) -> bool {
    // Object stores deny access to what does not exist, unless the credentials may list the bucket.
    error == io::ErrorKind::NotFound || (is_url(path) && error == io::ErrorKind::PermissionDenied)
}

/// Returns the extents of `file` that have changed; adjacent ones are joined.
fn changes(file: &dyn ReadAt, sums: &Checksums, threads: usize) -> Vec<Range<u64>> {
    let changed = |buffer: &mut Vec<u8>, index: u64| {
        let start = index * sums.extent;
        let part = &mut buffer[..(sums.size - start).min(sums.extent) as usize];
        let is_same = file.read_exact_at(start, part).is_ok()
            && Some(&checksums::hash(part)) == sums.hashes.get(index as usize);
        (!is_same).then_some(index)
    };
    let extents = sums.hashes.len() as u64;
    let wrong = map_numbers("verify", threads, extents, || vec![0; checksums::EXTENT], changed);
    let mut out: Vec<Range<u64>> = Vec::new();
    for index in wrong {
        let start = index * sums.extent;
        let end = (start + sums.extent).min(sums.size);
        match out.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => out.push(start..end),
        }
    }
    out
}

/// Describes the contents of `bytes` of file number `index` of the source.
fn describe(source: &Source, index: usize, path: PathBuf, bytes: Range<u64>) -> Result<Changed, ReadError> {
    let mut holds = Vec::new();
    let mut pages: Option<(u64, u64, u64)> = None;
    let mut add = |first: u64, last: u64| match &mut pages {
        None => pages = Some((first, last, last - first + 1)),
        Some((low, high, count)) => {
            *low = first.min(*low);
            *high = last.max(*high);
            *count += last - first + 1;
        }
    };
    match source.kind() {
        // In no file.
        SourceKind::Simulated(_) => {}
        // Offsets in the stream differ from those in the file it describes.
        SourceKind::Flattened(_) => holds.push("flattened records"),
        SourceKind::Elf(vmcore) if vmcore.is_flattened() => holds.push("flattened records"),
        SourceKind::Elf(vmcore) => {
            for piece in vmcore.ranges().pieces().iter().filter(|piece| piece.stored > 0) {
                let start = piece.offset.max(bytes.start);
                let end = (piece.offset + piece.stored).min(bytes.end);
                if start < end {
                    let paddr = |offset: u64| (piece.start + (offset - piece.offset)) >> PAGE_SHIFT;
                    add(paddr(start), paddr(end - 1));
                }
            }
            holds.push(if pages.is_some() { "page data" } else { "headers" });
        }
        SourceKind::Kdump(_) | SourceKind::Split(_) => {
            let Some(dump) =
                source.dumps().iter().find(|dump| dump.path() == path).or(source.dumps().get(index))
            else {
                return Ok(Changed { path, bytes, holds, pages });
            };
            let (first, last) =
                (dump.structure_at(bytes.start), dump.structure_at(bytes.end.saturating_sub(1)));
            let all = [
                Structure::Headers,
                Structure::Bitmap1,
                Structure::Bitmap2,
                Structure::Descriptors,
                Structure::Data,
            ];
            holds.extend(all.into_iter().filter(|at| (first..=last).contains(at)).map(Structure::name));
            let larger = u64::from(dump.info().block_size >> PAGE_SHIFT);
            dump.for_each_descriptor(|pfn, desc| {
                let start = desc.offset.get() as u64;
                if start < bytes.end && start.saturating_add(desc.size.get().into()) > bytes.start {
                    add(pfn * larger, (pfn + 1) * larger - 1);
                }
            })?;
        }
    }
    Ok(Changed { path, bytes, holds, pages })
}

/// Finds pages whose data overlaps that of others. Pages may share all their data, as zero pages do, but not a part of it.
fn overlaps(dump: &KdumpFile) -> Result<Option<String>, ReadError> {
    let passes = dump.info().dumped_pages.min(dump.data_bytes() / LEAST_DATA).div_ceil(COMPARED).max(1);
    let size = dump.file().size();
    let (mut count, mut first) = (0u64, None);
    for pass in 0..passes {
        // Of a very large dump, one range of the file after the other.
        let here =
            size / passes * pass..if pass + 1 == passes { u64::MAX } else { size / passes * (pass + 1) };
        let mut places = Places::default();
        dump.for_each_descriptor(|_, desc| {
            let offset = desc.offset.get() as u64;
            if offset > 0 && here.contains(&offset) {
                places.add((offset, desc.size.get()));
            }
        })?;
        places.compact();
        for pair in places.found.windows(2) {
            if pair[0].0.saturating_add(pair[0].1.into()) > pair[1].0 {
                count += 1;
                first.get_or_insert(pair[1].0);
            }
        }
    }
    Ok(first.map(|offset| {
        format!(
            "{}: the data of {count} pages overlaps other pages', first at {offset:#x}",
            dump.path().display()
        )
    }))
}

/// Distinct ranges of page data, by offset and size.
#[derive(Default)]
struct Places {
    found: Vec<(u64, u32)>,
    /// How many of them are known to be distinct, in order.
    compacted: usize,
}

impl Places {
    fn add(&mut self, place: (u64, u32)) {
        // Zero pages share one range, and come in runs.
        if self.found.last() == Some(&place) {
            return;
        }
        self.found.push(place);
        if self.found.len() >= (2 * self.compacted).max(1 << 16) {
            self.compact();
        }
    }

    fn compact(&mut self) {
        self.found.sort_unstable();
        self.found.dedup();
        self.compacted = self.found.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_that_pages_share_take_no_memory() {
        let mut places = Places::default();
        for page in 0..1 << 20u64 {
            places.add((4096, 4096));
            // Other pages between zero pages.
            places.add((8192 + page % 100 * 64, 64));
        }
        assert!(places.found.capacity() <= 1 << 17, "{} places", places.found.capacity());
        places.compact();
        assert_eq!(places.found.len(), 101);
    }
}
