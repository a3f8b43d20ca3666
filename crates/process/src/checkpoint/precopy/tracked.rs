//! A process whose memory is copied while it runs, and the pages that it writes to meanwhile.

use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use pagehaul_pool::map_numbers;
use pagehaul_run::{Phase, Progress};

use super::super::marks::Marked;
use super::super::page_list;
use super::super::tree::Process;
use super::page_set::PageSet;
use super::pinned;
use super::registration::Registration;
use super::spill::Spill;
use super::store::{PageStore, Room};
use super::userfault::Userfault;
use crate::copy::{Memory, Shared};
use crate::error::ProcessError;
use crate::mapping::{self, Mapping};
use crate::pagemap::{
    PAGE_IS_NEWER, PAGE_IS_PRESENT, PAGE_IS_SOFT_DIRTY, PAGE_IS_SWAPPED, PAGE_IS_WPALLOWED, PAGE_IS_WRITTEN,
    PageRegion, Pagemap, ScanArguments,
};
use crate::populated::Run;
use crate::procfs::{self, Status};
use crate::units::{Pid, page_size};

/// Bytes of addresses scanned and copied at a time, by each thread where threads spill them.
const WINDOW: u64 = 64 << 20;
/// Fewer bytes than this are not worth the start of threads.
const FEW: usize = 4 << 20;
/// What keeps a process from being copied while it runs.
pub(super) type Reason = String;

/// A process whose writes are tracked.
pub(super) struct Tracked {
    process: Process,
    pub(super) pid: Pid,
    /// Its PID in its namespace, by which CRIU names its images.
    pub(super) image: Pid,
    userfault: Userfault,
    pagemap: Pagemap,
    memory: Memory,
    /// Mappings whose pages may be shared with a parent or child.
    forked: Vec<Range<u64>>,
    registered: Vec<Range<u64>>,
    /// Pages that are those of the base as long as no write to them is found: it has them, and they were tracked ever since.
    trusted: Vec<Range<u64>>,
    /// Whether there are marks since the base.
    pub(super) is_marked: bool,
    /// Pages to which writes were found, if there are marks since the base.
    written: PageSet,
    /// Pages that were protected, and are to be copied in the first round.
    waiting: Vec<Range<u64>>,
    /// The pages that the last round before the freeze left with a copy.
    held: Vec<Range<u64>>,
    /// Those that the base has.
    pub(super) unchanged: Vec<Range<u64>>,
    pub(super) store: PageStore,
    /// How long it was stopped for the descriptor.
    pub(super) stopped: Duration,
    /// Once it is frozen: its private anonymous mappings, and the pages in them that CRIU is not to save.
    frozen: Option<Frozen>,
    pub(super) present: Vec<Range<u64>>,
    /// Bytes copied to the container while it ran.
    pub(super) spilled_bytes: u64,
    /// Bytes copied while it was frozen, and those of its memory that were left to CRIU.
    pub(super) frozen_bytes: u64,
    pub(super) left_bytes: u64,
    /// Why no copy made while it ran counts: it began to have its memory written to without marks.
    pub(super) unmarked: Option<Reason>,
}

struct Frozen {
    mappings: Vec<Range<u64>>,
    memory: Memory,
    /// Where the mappings start whose pages are taken.
    taken: HashSet<u64>,
    /// Pages in them that are left to CRIU, ascending.
    left: Vec<PageRegion>,
}

impl Tracked {
    /// Starts tracking a process's writes. It is stopped for about a millisecond, unless all its memory has marks that were kept
    /// since an earlier checkpoint, which holds the pages `base`.
    pub(super) fn new(
        process: &Process,
        room: &Arc<Room>,
        kept: Option<Marked>,
        base: impl FnOnce(Pid) -> Vec<Range<u64>>,
        keeps_marks: bool,
    ) -> Result<Self, Reason> {
        let pid = process.pid;
        let said = |error: ProcessError| match error {
            ProcessError::NoSnapshot { reason, .. } => reason,
            error => error.to_string(),
        };
        let status = Status::read(pid).map_err(said)?;
        let mappings = mapping::read(pid, pid).map_err(said)?;
        let is_tracked = |mapping: &Mapping| mapping.has(b"uw");
        // The marks of a process that has called exec are gone, and the descriptor is of no use.
        let kept = kept.filter(|_| mappings.iter().any(is_tracked));
        // The flags say it also where another process has the descriptor.
        if kept.is_none() && mappings.iter().any(|mapping| mapping.has(b"um") || is_tracked(mapping)) {
            return Err(pinned::USERFAULTFD.into());
        }
        pinned::find(pid, &mappings)?;
        let Registration { userfault, tracked, old, new, stopped } =
            Registration::new(pid, kept, &mappings).map_err(said)?;
        let opened = |error: std::io::Error| format!("its page tables cannot be read: {error}");
        let pagemap = Pagemap::open(&procfs::path(pid, "pagemap")).map_err(opened)?;
        let forked = mappings.iter().filter(|mapping| mapping.has_forked());
        let forked: Vec<Range<u64>> = forked.map(|mapping| mapping.range.clone()).collect();
        let image = status.ns_pids.last().copied().unwrap_or(pid);
        // Of mappings that were replaced since, the kernel has removed the flag.
        let now: Vec<Range<u64>> = mappings
            .iter()
            .filter(|mapping| is_tracked(mapping))
            .map(|mapping| mapping.range.clone())
            .collect();
        let trusted = common(&common(&tracked, &now), &base(image));
        let mut this = Self {
            process: *process,
            pid,
            image,
            userfault,
            pagemap,
            memory: Memory::open(pid, Shared::In(forked.clone())).map_err(said)?,
            forked,
            registered: Vec::new(),
            is_marked: !trusted.is_empty(),
            trusted,
            written: PageSet::default(),
            waiting: Vec::new(),
            held: Vec::new(),
            unchanged: Vec::new(),
            store: PageStore::new(Arc::clone(room)),
            stopped,
            frozen: None,
            present: Vec::new(),
            spilled_bytes: 0,
            frozen_bytes: 0,
            left_bytes: 0,
            unmarked: None,
        };
        // Marks since another checkpoint than the base say nothing, and pages without one have to be copied too.
        if !this.is_marked {
            old.iter().for_each(|mapping| this.userfault.release(mapping));
        }
        // Before Linux 6.13 (commit 0cef0bb836e3) pages moved by mremap keep their marks, and can be written to without a fault
        // while they are not tracked. Kept marks would say that they are as they were.
        if keeps_marks {
            new.iter().for_each(|mapping| this.userfault.release(mapping));
        }
        this.registered = old.into_iter().chain(new).collect();
        this.registered.sort_unstable_by_key(|mapping| mapping.start);
        Ok(this)
    }

    /// Whether it has ended.
    pub(super) fn is_dead(&self) -> bool {
        self.process.is_dead()
    }

    /// Bytes that were written to since the last round.
    pub(super) fn written_bytes(&self) -> u64 {
        let written = |mapping| self.pagemap.categories_by(mapping, PAGE_IS_WRITTEN, 1);
        let regions = self.registered.iter().filter_map(|mapping| written(mapping).ok()).flatten();
        let written = regions.filter(|region| region.categories & PAGE_IS_WRITTEN != 0);
        written.map(|region| region.end - region.start).sum()
    }

    /// Protects all pages. The first round copies them.
    pub(super) fn protect(&mut self) -> Result<(), Reason> {
        for mapping in &self.registered {
            let mut start = mapping.start;
            while start < mapping.end {
                let range = start..mapping.end;
                let waiting = &mut self.waiting;
                let end = self.pagemap.protect_written(&range, &mut |range| push_joined(waiting, range));
                start = end.map_err(not_found)?;
            }
        }
        Ok(())
    }

    /// Copies the pages that were written to since the last round, at first all. Returns their bytes. Those for which there is no room
    /// in memory are spilled; if `spills_all`, those as well that were not written to since they were protected.
    pub(super) fn round(
        &mut self,
        mut spill: Option<&mut Spill<'_>>,
        spills_all: bool,
        is_first: bool,
        progress: &Progress,
    ) -> Result<u64, Reason> {
        let mut bytes = 0;
        // What is opened and closed again between the start and the freeze is seen here at best.
        self.look_again();
        if self.unmarked.is_some() {
            return Ok(0);
        }
        // Of one with marks the first round copies little.
        let spills_all = spills_all && !self.is_marked;
        let at_once = match &spill {
            Some(spill) if spills_all => WINDOW * spill.threads.max(1) as u64,
            _ => WINDOW,
        };
        let waiting = std::mem::take(&mut self.waiting);
        for mapping in self.registered.clone() {
            let mut start = mapping.start;
            while start < mapping.end {
                let mut written = Vec::new();
                let mut window = start..mapping.end.min(start + at_once);
                let end = self.pagemap.protect_written(&window, &mut |range| written.push(range));
                // They are protected again: without a new copy nothing else would show that the old one is stale.
                for range in &written {
                    self.store.set_held(range, false);
                    if self.is_marked {
                        self.written.insert(range);
                    }
                }
                start = end.map_err(|error| {
                    self.store.set_held(&window, false);
                    self.written.insert(&window);
                    not_found(error)
                })?;
                window.end = start;
                let mut unwritten = Vec::new();
                for range in common(std::slice::from_ref(&window), &waiting) {
                    exclude(range, &written, &mut |range| push_joined(&mut unwritten, range));
                }
                let all = length(&written) + length(&unwritten);
                let mut spilled = if spill.is_some() && spills_all {
                    std::mem::take(&mut unwritten)
                } else {
                    written.append(&mut unwritten);
                    written.sort_unstable_by_key(|range| range.start);
                    Vec::new()
                };
                spilled.extend(self.store.reserve(&written));
                spilled.sort_unstable_by_key(|range| range.start);
                // What cannot be read now is gone, or copied in the freeze.
                copy(&mut self.store, &self.memory, &written, 1);
                if !spilled.is_empty() {
                    let spill = spill
                        .as_deref_mut()
                        .ok_or_else(|| Reason::from("the memory for its copy is too short (--max-memory)"))?;
                    // Marks show what is in the base.
                    let list = (!self.is_marked).then(|| page_list::name(self.image));
                    self.spilled_bytes +=
                        spill.copy(&mut self.store, &self.memory, list.as_deref(), &spilled, progress)?;
                }
                if progress.is_cancelled() {
                    return Ok(0);
                }
                if is_first {
                    progress.advance(Phase::Copy, all);
                }
                bytes += all;
            }
        }
        Ok(bytes)
    }

    /// Notes which pages have a copy: there are no more rounds. The less is left to do in the freeze.
    pub(super) fn note_held(&mut self) {
        self.held = self.store.held();
    }

    /// Answers a scan that CRIU makes of the frozen process's page tables, which `file` has: copies what is not held yet, and
    /// leaves out all that is held then. Returns the regions for CRIU and the address up to which they were found.
    ///
    /// CRIU asks twice: for all pages, and before, since 4.2, for guard regions (MADV_GUARD_INSTALL). The page tables are looked at once.
    pub(super) fn answer(
        &mut self,
        file: File,
        asked: &ScanArguments,
        threads: usize,
    ) -> std::io::Result<(Vec<PageRegion>, u64)> {
        if self.frozen.is_none() {
            let other = |error: ProcessError| std::io::Error::other(error.to_string());
            // The process may have called exec since: these are the mappings and the memory that CRIU saves.
            let mappings = mapping::read_plain(self.pid, self.pid).map_err(other)?;
            self.look_at(&mappings);
            let mappings = mappings.iter().filter(|mapping| is_private_anonymous(mapping));
            let mappings = mappings.map(|mapping| mapping.range.clone()).collect();
            let memory = Memory::open(self.pid, Shared::In(self.forked.clone())).map_err(other)?;
            self.frozen = Some(Frozen { mappings, memory, taken: HashSet::new(), left: Vec::new() });
        }
        let mut pagemap = Pagemap::new(file);
        let (mut regions, mut at) = (Vec::new(), asked.start);
        while at < asked.end {
            let room = asked.regions_len as usize - regions.len();
            let frozen = self.frozen.as_ref().map_or(&[][..], |frozen| &frozen.mappings);
            let next = frozen.partition_point(|mapping| mapping.end <= at);
            match frozen.get(next).cloned() {
                Some(mapping) if mapping.contains(&at) => {
                    self.take(&pagemap, asked, &mapping, threads)?;
                    let part = at..mapping.end.min(asked.end);
                    let mut left = self.left(asked, &part);
                    at = part.end;
                    // There is no room for this one: CRIU asks again from there.
                    if let Some(region) = left.get(room) {
                        at = region.start;
                        left.truncate(room);
                    }
                    regions.extend(left);
                    if at < part.end {
                        break;
                    }
                }
                _ if room == 0 => break,
                mapping => {
                    let end = mapping.map_or(asked.end, |mapping| mapping.start.min(asked.end));
                    let (found, to) = pagemap.repeat(asked, &(at..end), room)?;
                    regions.extend_from_slice(found);
                    at = to;
                }
            }
        }
        Ok((regions, at))
    }

    /// The pages of a part of a mapping that are left to CRIU, as far as it asks for them.
    fn left(&self, asked: &ScanArguments, part: &Range<u64>) -> Vec<PageRegion> {
        let left = self.frozen.as_ref().map_or(&[][..], |frozen| &frozen.left);
        let first = left.partition_point(|region| region.end <= part.start);
        let left = left.iter().skip(first).take_while(|region| region.start < part.end);
        let left = left.filter(|region| asked.finds(region.categories)).map(|region| PageRegion {
            start: region.start.max(part.start),
            end: region.end.min(part.end),
            categories: region.categories & asked.return_mask,
        });
        left.collect()
    }

    /// Takes the pages of a private anonymous mapping, once, and keeps which are left to CRIU.
    fn take(
        &mut self,
        pagemap: &Pagemap,
        asked: &ScanArguments,
        mapping: &Range<u64>,
        threads: usize,
    ) -> std::io::Result<()> {
        if self.frozen.as_ref().is_some_and(|frozen| frozen.taken.contains(&mapping.start)) {
            return Ok(());
        }
        // What CRIU asks for now and later.
        let wanted = asked.return_mask | PAGE_IS_PRESENT | PAGE_IS_SWAPPED | PAGE_IS_SOFT_DIRTY;
        let regions =
            pagemap.categories_by(mapping, wanted | PAGE_IS_WRITTEN | PAGE_IS_WPALLOWED, threads)?;
        // CRIU knows what to do with guard regions and the like.
        let (ordinary, mut left): (Vec<_>, Vec<_>) =
            regions.into_iter().partition(|region| region.categories & PAGE_IS_NEWER == 0);
        let mut wanting: Vec<Range<u64>> = Vec::new();
        for region in &ordinary {
            let range = region.start..region.end;
            // Marks say nothing in a mapping that is not tracked: it was moved, or made later.
            if self.unmarked.is_none()
                && region.categories & (PAGE_IS_WRITTEN | PAGE_IS_WPALLOWED) == PAGE_IS_WPALLOWED
            {
                let mut missing = Vec::new();
                exclude(range, &self.held, &mut |range| push_joined(&mut missing, range));
                let mut unchanged = Vec::new();
                for range in common(&missing, &self.trusted) {
                    self.written.missing(&range, &mut |range| push_joined(&mut unchanged, range));
                }
                for range in missing {
                    exclude(range, &unchanged, &mut |range| push_joined(&mut wanting, range));
                }
                self.unchanged.append(&mut unchanged);
            } else {
                push_joined(&mut wanting, range);
            }
        }
        let mut unreadable = self.store.reserve(&wanting);
        match &self.frozen {
            Some(frozen) => unreadable.extend(copy(&mut self.store, &frozen.memory, &wanting, threads)),
            None => unreadable.clone_from(&wanting),
        }
        unreadable.sort_unstable_by_key(|range| range.start);
        self.frozen_bytes += length(&wanting) - length(&unreadable);
        self.left_bytes += length(&unreadable);
        for range in &unreadable {
            self.store.set_held(range, false);
            left.push(PageRegion { start: range.start, end: range.end, categories: PAGE_IS_PRESENT });
        }
        for region in &ordinary {
            exclude(region.start..region.end, &unreadable, &mut |range| {
                push_joined(&mut self.present, range);
            });
        }
        if let Some(frozen) = &mut self.frozen {
            frozen.left.append(&mut left);
            frozen.left.sort_by_key(|region| region.start);
            frozen.taken.insert(mapping.start);
        }
        Ok(())
    }

    /// Looks again for files and mappings by which the process's memory is written to without marks.
    fn look_again(&mut self) {
        // A process that is gone is found so by what follows.
        if let Ok(mappings) = mapping::read_plain(self.pid, self.pid) {
            self.look_at(&mappings);
        }
    }

    fn look_at(&mut self, mappings: &[Mapping]) {
        if self.unmarked.is_none() {
            self.unmarked = pinned::find(self.pid, mappings).err();
        }
    }

    /// Ends this without ending the tracking. None if not all that was written to it since is marked.
    pub(super) fn into_marks(self) -> Option<Marked> {
        let (pid, start) = self.process.identity();
        let descriptor = self.userfault.into_descriptor();
        self.unmarked.is_none().then_some(Marked { pid, start, tracked: self.registered, descriptor })
    }

    /// Ends the tracking. The descriptor is closed when this is dropped; what is left to do then is little.
    pub(super) fn release(&self) {
        self.registered.iter().for_each(|mapping| self.userfault.release(mapping));
    }
}

fn not_found(error: std::io::Error) -> Reason {
    match error.raw_os_error() {
        // The descriptor of its page tables is of memory that is gone.
        Some(libc::ESRCH) => "it called exec while its memory was copied".into(),
        _ => format!("the pages written to cannot be found: {error}"),
    }
}

/// Whether pages of a mapping are the process's own and not a file's. The kernel's special mappings have other names.
pub(super) fn is_private_anonymous(mapping: &Mapping) -> bool {
    let name = mapping.name.as_slice();
    !mapping.has_file()
        && (name.is_empty() || name == b"[heap]" || name == b"[stack]" || name.starts_with(b"[anon:"))
}

/// Copies those of some pages that the store has room for. Returns those of them that cannot be read, which are not held afterwards.
fn copy(store: &mut PageStore, memory: &Memory, ranges: &[Range<u64>], threads: usize) -> Vec<Range<u64>> {
    let pieces = store.pieces(ranges);
    let bytes: usize = pieces.iter().map(super::store::Piece::len).sum();
    let threads = if bytes < FEW { 1 } else { threads };
    let shared = &*store;
    let one = |(): &mut (), number: u64| {
        let piece = pieces.get(number as usize)?;
        // SAFETY: no two pieces overlap, and nothing reads the store meanwhile.
        let buffer = unsafe { shared.memory(piece) };
        let mut unreadable = Vec::new();
        read(memory, &piece.addresses, buffer, &mut unreadable);
        Some(unreadable)
    };
    let unreadable = if threads == 1 {
        (0..pieces.len() as u64).filter_map(|number| one(&mut (), number)).flatten().collect()
    } else {
        let mut all: Vec<Range<u64>> =
            map_numbers("copy", threads, pieces.len() as u64, || (), one).into_iter().flatten().collect();
        all.sort_unstable_by_key(|range| range.start);
        all
    };
    ranges.iter().for_each(|range| store.set_held(range, true));
    unreadable.iter().for_each(|range| store.set_held(range, false));
    unreadable
}

/// Reads pages, and lists those that cannot be read.
pub(super) fn read(
    memory: &Memory,
    addresses: &Range<u64>,
    buffer: &mut [u8],
    unreadable: &mut Vec<Range<u64>>,
) {
    let run = |range: &Range<u64>| Run { range: 0..range.end - range.start, address: range.start };
    match memory.copy(&[run(addresses)], buffer) {
        Ok(missing) if missing.pages == 0 => {}
        _ => {
            // In whole pages: of a part of one it could not be seen whether it was read.
            let bytes = page_size();
            for (page, buffer) in
                addresses.clone().step_by(bytes as usize).zip(buffer.chunks_mut(bytes as usize))
            {
                let page = page..page + bytes;
                if !memory.copy(&[run(&page)], buffer).is_ok_and(|missing| missing.pages == 0) {
                    push_joined(unreadable, page);
                }
            }
        }
    }
}

pub(super) fn length(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// The parts of ranges that are in other ranges. Both are in order.
pub(super) fn common(ranges: &[Range<u64>], others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut all = Vec::new();
    for range in ranges {
        let first = others.partition_point(|other| other.end <= range.start);
        for other in others.iter().skip(first).take_while(|other| other.start < range.end) {
            push_joined(&mut all, range.start.max(other.start)..range.end.min(other.end));
        }
    }
    all
}

/// Adds a range to the last one if it follows it.
pub(super) fn push_joined(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}

/// Passes the parts of a range to `push` that are in none of `without`, which are in order.
pub(super) fn exclude(range: Range<u64>, without: &[Range<u64>], push: &mut impl FnMut(Range<u64>)) {
    let mut at = range.start;
    let first = without.partition_point(|hole| hole.end <= range.start);
    for hole in without.iter().skip(first).take_while(|hole| hole.start < range.end) {
        if hole.start > at {
            push(at..hole.start);
        }
        at = hole.end.max(at);
    }
    if at < range.end {
        push(at..range.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a machine of any page size.
    #[test]
    fn pages_that_cannot_be_read_are_named() {
        let page = page_size();
        let bytes = 5 * page as usize;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping; no other memory changes.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert_ne!(base, libc::MAP_FAILED);
        // SAFETY: the mapping just made; its second and its last page are not used afterwards.
        unsafe {
            std::ptr::write_bytes(base.cast::<u8>(), 7, bytes);
            libc::munmap(base.byte_add(page as usize), page as usize);
            libc::munmap(base.byte_add(4 * page as usize), page as usize);
        }
        let start = base.addr() as u64;
        let memory = Memory::open(std::process::id() as Pid, Shared::In(Vec::new())).unwrap();
        let (mut buffer, mut unreadable) = (vec![0; bytes], Vec::new());
        read(&memory, &(start..start + 5 * page), &mut buffer, &mut unreadable);
        assert_eq!(unreadable, [start + page..start + 2 * page, start + 4 * page..start + 5 * page]);
        for (number, content) in buffer.chunks(page as usize).enumerate() {
            let expected = if [1, 4].contains(&number) { 0 } else { 7 };
            assert!(content.iter().all(|byte| *byte == expected), "page {number}");
        }
        // SAFETY: nothing refers to it any more.
        unsafe { libc::munmap(base, bytes) };
    }
}
