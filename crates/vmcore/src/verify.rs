//! Verifies a dump: structure, contents and checksums.

use std::collections::BTreeMap;
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use pagehaul_encryption::Authentic;
use pagehaul_kdump::{KdumpFile, Structure};
use pagehaul_machine::{PageCount, PageSize, Pfn, PhysAddr};
use pagehaul_physmem::file::{ReadAt, is_url, shown};
use pagehaul_physmem::{OpenError, PAGE_SHIFT, PageState, PhysMemory, ReadError};

use pagehaul_output::checksums::{self, ChecksumError, Checksums};
use pagehaul_pool::map_numbers;
use pagehaul_run::{Phase, Progress};

use crate::kind::SourceKind;
use crate::source::{Source, open_file};
use crate::sweep::{Batch, known_runs, sweep_runs};

/// Failures that are named; the others are counted.
pub const NAMED: usize = 1 << 16;
/// Ranges of page data that are compared at a time: 512 MiB of memory at most, in dumps of more than 64 GiB of pages.
const COMPARED: u64 = 1 << 24;
/// Least bytes of a page, to estimate the number of ranges: zstd's shortest frame of 4 KiB.
const LEAST_DATA: u64 = 16;

/// The result of a verification, in pages of the machine.
#[derive(Debug)]
pub struct Findings {
    /// Size of the machine's pages.
    pub page_size: PageSize,
    /// Faults of the dump as a whole.
    pub faults: Vec<String>,
    /// Pages that can be read.
    pub present: PageCount,
    /// Excluded pages.
    pub excluded: PageCount,
    /// Missing pages.
    pub missing: PageCount,
    /// Damaged pages: their data does not decode, or their descriptors are impossible.
    pub damaged: PageCount,
    /// The first of those that are missing or damaged, by PFN, and why.
    pub failures: Vec<(Pfn, PageState, String)>,
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
    pub pages: Option<(Pfn, Pfn, PageCount)>,
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
        self.faults.is_empty()
            && self.missing == PageCount::ZERO
            && self.damaged == PageCount::ZERO
            && self.changed.is_empty()
    }

    fn new(page_size: PageSize, faults: Vec<String>) -> Self {
        Self {
            page_size,
            faults,
            present: PageCount::ZERO,
            excluded: PageCount::ZERO,
            missing: PageCount::ZERO,
            damaged: PageCount::ZERO,
            failures: Vec::new(),
            summed: Vec::new(),
            changed: Vec::new(),
        }
    }

    fn count(&mut self, state: PageState, pages: u64) {
        *match state {
            PageState::Present => &mut self.present,
            PageState::Excluded => &mut self.excluded,
            PageState::Missing => &mut self.missing,
            PageState::Damaged => &mut self.damaged,
            PageState::Absent => return,
        } += PageCount::new(pages);
    }
}

/// Counts pages of the machine, from the states of their parts of 4 KiB.
struct Counter {
    findings: Findings,
    /// Parts of a page.
    parts: u64,
    /// Pages whose parts came in several runs, with the worst state.
    mixed: BTreeMap<u64, PageState>,
    /// The first parts that are missing or damaged, by number, and why.
    failures: Vec<(u64, PageState, String)>,
}

impl Counter {
    fn new(findings: Findings) -> Self {
        let parts = findings.page_size.parts();
        Self { findings, parts, mixed: BTreeMap::new(), failures: Vec::new() }
    }

    /// Counts a run of parts.
    fn run(&mut self, run: Range<u64>, state: PageState) {
        let (first, end) = (run.start.div_ceil(self.parts), run.end / self.parts);
        if first <= end {
            self.findings.count(state, end - first);
        }
        let ends = [run.start..run.end.min(first * self.parts), run.start.max(end * self.parts)..run.end];
        for part in ends.into_iter().filter(|part| !part.is_empty()) {
            let known = self.mixed.entry(part.start / self.parts).or_insert(state);
            *known = worse(*known, state);
        }
    }

    /// Counts parts whose state is known, and records the first missing ones.
    fn known_run(&mut self, memory: &dyn PhysMemory, run: Range<u64>, state: PageState) {
        self.run(run.clone(), state);
        if state == PageState::Missing {
            let mut view = memory.view();
            let room = NAMED - self.failures.len();
            self.failures.extend(run.take(room).filter_map(|part| {
                let error = view.window(part << PAGE_SHIFT, 1).err()?;
                Some((part, error.state(), error.to_string()))
            }));
        }
    }

    /// Counts the parts of a batch.
    fn batch(&mut self, batch: &Batch) {
        let mut run: Option<(Range<u64>, PageState)> = None;
        for (part, state, _) in batch.pages() {
            match &mut run {
                Some((known, of)) if *of == state => known.end = part + 1,
                _ => {
                    let before = run.replace((part..part + 1, state));
                    before.into_iter().for_each(|(run, state)| self.run(run, state));
                }
            }
        }
        run.into_iter().for_each(|(run, state)| self.run(run, state));
        // Those of known runs may be behind them, and be cut off in the end.
        let room = (2 * NAMED).saturating_sub(self.failures.len());
        let named = batch.failures.iter().take(room);
        self.failures.extend(named.map(|(part, error)| (*part, error.state(), error.to_string())));
    }

    fn finish(self) -> Findings {
        let Self { mut findings, parts, mixed, mut failures } = self;
        mixed.into_values().for_each(|state| findings.count(state, 1));
        failures.sort_by_key(|(part, _, _)| *part);
        failures.dedup_by_key(|(part, _, _)| *part / parts);
        failures.truncate(NAMED);
        let pages = failures.into_iter().map(|(part, state, why)| (Pfn::new(part / parts), state, why));
        findings.failures = pages.collect();
        findings
    }
}

/// The state of a page of which two parts have these. It is present, excluded or damaged as a whole, but RAM may have a part only.
fn worse(one: PageState, other: PageState) -> PageState {
    let rank = |state: PageState| match state {
        PageState::Absent => 0,
        PageState::Excluded => 1,
        PageState::Present => 2,
        PageState::Missing => 3,
        PageState::Damaged => 4,
    };
    if rank(one) >= rank(other) { one } else { other }
}

/// Verifies structure, contents and, if there are any, checksums, with `threads` threads.
pub fn verify(source: &Source, threads: usize, progress: &Progress) -> Result<Findings, VerifyError> {
    let memory = source.memory();
    let mut findings = Findings::new(memory.platform().page_size, source.warnings());
    for dump in source.dumps() {
        findings.faults.extend(overlaps(dump)?);
    }
    progress.begin(Phase::Pack, memory.ranges().bytes());
    let mut counter = Counter::new(findings);
    for (run, state) in known_runs(memory) {
        if let Some(state) = state {
            progress.advance(Phase::Pack, (run.end - run.start) << PAGE_SHIFT);
            counter.known_run(memory, run, state);
        }
    }
    let unknown = known_runs(memory).filter(|(_, state)| state.is_none()).map(|(run, _)| run);
    let none: Option<()> = sweep_runs(memory, unknown, threads, |batch| {
        counter.batch(batch);
        progress.advance(Phase::Pack, batch.bytes().len() as u64);
        ControlFlow::Continue(())
    });
    debug_assert!(none.is_none());
    let mut findings = counter.finish();
    for (index, path) in source.paths().iter().enumerate() {
        if let Some(authentic) = source.authentic(index) {
            findings.summed.push(shown(path));
            findings.faults.extend(forged(&*open_file(path)?, authentic, threads));
            continue;
        }
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

/// Reads what was not read yet of an encrypted file, whose chunks have checksums that nobody else can make. Returns what is wrong with it.
fn forged(file: &dyn ReadAt, authentic: &Authentic, threads: usize) -> Option<String> {
    let read = |buffer: &mut Vec<u8>, index: u64| {
        let start = index * checksums::EXTENT as u64;
        let size = (file.size() - start).min(checksums::EXTENT as u64) as usize;
        if authentic.has(start..start + size as u64) {
            return None;
        }
        file.read_exact_at(start, &mut buffer[..size]).err().map(|error| error.to_string())
    };
    let extents = file.size().div_ceil(checksums::EXTENT as u64);
    let faults = map_numbers("verify", threads, extents, || vec![0; checksums::EXTENT], read);
    let (first, more) = faults.split_first()?;
    let more = if more.is_empty() { String::new() } else { format!(" (and {} more ranges)", more.len()) };
    Some(format!("{}: {first}{more}", shown(file.path()).display()))
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
    let size = source.memory().platform().page_size;
    let mut pages: Option<(Pfn, Pfn, PageCount)> = None;
    let mut add = |first: Pfn, last: Pfn| {
        let more = last.since(first) + PageCount::new(1);
        match &mut pages {
            None => pages = Some((first, last, more)),
            Some((low, high, count)) => {
                *low = first.min(*low);
                *high = last.max(*high);
                *count += more;
            }
        }
    };
    match source.kind() {
        // In no file.
        SourceKind::Simulated(_) => {}
        // Offsets in the stream differ from those in the file it describes.
        SourceKind::Flattened(_) => holds.push("flattened records"),
        SourceKind::Elf(vmcore) if vmcore.is_flattened() => holds.push("flattened records"),
        SourceKind::Elf(_) | SourceKind::Image(_) => {
            for piece in source.memory().ranges().pieces().iter().filter(|piece| piece.stored > 0) {
                let start = piece.offset.max(bytes.start);
                let end = (piece.offset + piece.stored).min(bytes.end);
                if start < end {
                    let page = |offset: u64| PhysAddr::new(piece.start + (offset - piece.offset)).pfn(size);
                    add(page(start), page(end - 1));
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
            dump.for_each_descriptor(|pfn, desc| {
                let start = desc.offset.get() as u64;
                if start < bytes.end && start.saturating_add(desc.size.get().into()) > bytes.start {
                    add(Pfn::new(pfn), Pfn::new(pfn));
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
    fn parts_of_a_page_count_once() {
        use PageState::{Damaged, Excluded, Missing, Present};

        let runs =
            [(0..6, Present), (6..8, Excluded), (9..11, Damaged), (12..40, Missing), (41..42, Present)];
        let count = |kib: u64| {
            let size = PageSize::new(kib << 10).unwrap();
            let mut counter = Counter::new(Findings::new(size, Vec::new()));
            for (run, state) in runs.clone() {
                counter.run(run.clone(), state);
                if state == Damaged {
                    counter.failures.extend(run.map(|part| (part, state, part.to_string())));
                }
            }
            let found = counter.finish();
            let failures: Vec<u64> = found.failures.iter().map(|(pfn, ..)| pfn.number()).collect();
            ([found.present, found.excluded, found.missing, found.damaged].map(PageCount::get), failures)
        };
        assert_eq!(count(4), ([7, 2, 28, 2], vec![9, 10]));
        // Pages 0 and 1 are present, 2 is damaged, 3 to 9 are missing, 10 is present in part.
        assert_eq!(count(16), ([3, 0, 7, 1], vec![2]));
        // Page 0 is damaged, 1 and 2 are missing.
        assert_eq!(count(64), ([0, 0, 2, 1], vec![0]));
    }

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
