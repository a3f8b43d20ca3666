//! Where the memory of a core comes from.
//!
//! While the kernel waits for room in the pipe, the process is there with all of its memory, which can be read in any order
//! and on every CPU. The kernel writes page by page, and every page that was never touched as zeros. So by default only
//! headers and notes come from the pipe.

use std::fs::File;
use std::sync::{Arc, Mutex};

use pagehaul_elfcore::{ProgramHeader, set_incomplete, set_limited};

use super::head::{ElfHead, Head};
use super::selection::within;
use super::stream::{Part, StreamTiler};
use crate::arena::Arena;
use crate::copy::{Memory, Shared};
use crate::layout::{self, Content, Segment, assemble};
use crate::mapping::{self, Mapping};
use crate::pagemap::Pagemap;
use crate::populated::Populated;
use crate::procfs;
use crate::tiler::Tiler;
use crate::units::{Pid, page_size};

/// Bytes that the kernel may have written to the pipe without waiting: the most that a pipe can have by default
/// (`fs.pipe-max-size`), which [`widen`] asks for.
const PIPE: usize = 1 << 20;

/// Makes the pipe hold more, so that both sides run longer at a time. The system may not allow it.
pub(super) fn widen(input: &File) {
    let _ = rustix::pipe::fcntl_setpipe_size(input, PIPE);
}

/// A process that the kernel keeps, and which of its memory the core is to have.
pub(super) struct Dying {
    tid: Pid,
    mappings: Vec<Mapping>,
    pagemap: Pagemap,
}

impl Dying {
    /// The process of the thread `tid`, if it can be read, is the one that `head` is of, and waits for the pipe.
    pub(super) fn find(pid: Pid, tid: Pid, head: &ElfHead) -> Option<Self> {
        if head.memory() <= PIPE as u64 {
            return None;
        }
        // Addresses of the vDSO, of the program and of random bytes: another process has others.
        let vector = procfs::read(pid, &format!("task/{tid}/auxv")).ok()?;
        if vector.is_empty() || head.auxiliary_vector() != Some(&vector[..]) {
            return None;
        }
        let pagemap = Pagemap::open(&procfs::path(pid, &format!("task/{tid}/pagemap"))).ok()?;
        let mappings = mapping::read(pid, tid).ok()?;
        Some(Self { tid, mappings, pagemap })
    }

    fn mapping_of(&self, load: &ProgramHeader) -> Option<usize> {
        let index = self.mappings.binary_search_by_key(&load.vaddr, |mapping| mapping.range.start).ok()?;
        self.mappings.get(index).filter(|mapping| mapping.range.end - load.vaddr >= load.file_size)?;
        Some(index)
    }

    /// Bytes of a range that probably exist.
    fn existing(&self, load: &ProgramHeader) -> u64 {
        let mapping = self.mapping_of(load).and_then(|index| self.mappings.get(index));
        let own = mapping.filter(|mapping| !mapping.has_file());
        own.map_or(load.file_size, |own| load.file_size.min(own.resident + own.swapped))
    }
}

/// What a core is made from, before there is memory for the copy.
pub(super) struct Plan {
    input: File,
    dying: Option<Dying>,
    head: Vec<u8>,
    /// `None` for a stream of unknown length.
    loads: Option<Vec<ProgramHeader>>,
    parts: Vec<Part>,
    /// Bytes of the core, if they are known.
    size: Option<u64>,
    /// Bytes of a whole core of unknown length, at least.
    least: u64,
    /// Bytes of memory that are to be copied, about; all that come if that is not known.
    pub(super) expected: u64,
    /// Whether the limit leaves memory out.
    pub(super) limited: bool,
}

impl Plan {
    /// For a core that starts with `head`, with at most `limit` bytes of memory.
    pub(super) fn new(input: File, head: Head, dying: Option<Dying>, limit: u64) -> Self {
        match head {
            Head::Elf(head) => Self::of_elf(input, head, dying, limit),
            Head::Other { raw: head, least } => Self {
                input,
                dying: None,
                head,
                loads: None,
                parts: Vec::new(),
                size: None,
                least,
                expected: u64::MAX,
                limited: false,
            },
        }
    }

    fn of_elf(input: File, head: ElfHead, dying: Option<Dying>, limit: u64) -> Self {
        let existing =
            |load: &ProgramHeader| dying.as_ref().map_or(load.file_size, |dying| dying.existing(load));
        let existing: Vec<u64> = head.loads.iter().map(existing).collect();
        let kept = within(limit, &head.loads, &existing, &head.stack_pointers(), page_size());
        let each = || head.loads.iter().zip(&kept);
        let parts = each().map(|(load, &kept)| Part { kept, skipped: load.file_size - kept }).collect();
        let limited = each().any(|(load, &kept)| kept < load.file_size);
        let mut loads: Vec<ProgramHeader> =
            each().map(|(load, &kept)| ProgramHeader { file_size: kept, ..*load }).collect();
        let expected = existing.iter().zip(&kept).map(|(&existing, &kept)| existing.min(kept));
        let expected = expected.fold(0, u64::saturating_add);
        let (mut head, size) = assemble(&mut loads, &head.notes, false);
        set_limited(&mut head, limited);
        Self {
            input,
            dying,
            head,
            loads: Some(loads),
            parts,
            size: Some(size),
            least: size,
            expected,
            limited,
        }
    }

    /// The first bytes of the core.
    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Sets or clears the mark of an incomplete core in the first bytes. Only a core of 64 bits has one.
    pub(super) fn mark(&mut self, incomplete: bool) {
        if self.loads.is_some() {
            set_incomplete(&mut self.head, incomplete);
        }
    }

    /// The source, with `arena` for the copy.
    pub(super) fn open(self, arena: Arc<Arena>) -> Source {
        let Self { input, dying, head, loads, parts, size, least, .. } = self;
        let opened = dying.and_then(|dying| {
            let memory = Memory::open(dying.tid, Shared::of(&dying.mappings)).ok()?;
            Some((dying, memory))
        });
        match (opened, loads, size) {
            (Some((dying, memory)), Some(loads), Some(size)) => {
                let in_process = loads.iter().filter(|load| load.file_size > 0 && !is_kernels(load));
                let segments = in_process.map(|load| segment(&dying, load)).collect();
                let Dying { tid, mappings, pagemap } = dying;
                let populated = Populated::new(tid, pagemap, None, segments, mappings);
                let tiler = Mutex::new(Tiler::new(populated, head, size, arena));
                Source::Process { input, memory, tiler, size }
            }
            _ => Source::Pipe(StreamTiler::new(input, head, parts, size, arena).at_least(least)),
        }
    }
}

/// Whether a segment is the page of vsyscalls, the only one of the kernel's half that a core of x86_64 has, unless `vsyscall=none`
/// (`get_gate_vma()`, arch/x86/entry/vsyscall/vsyscall_64.c). No process has it, and it is zeros in the kernel's cores, too, unless
/// `vsyscall=emulate`.
fn is_kernels(load: &ProgramHeader) -> bool {
    load.vaddr >> 63 == 1
}

/// What is in no mapping is read as a file's.
fn segment(dying: &Dying, load: &ProgramHeader) -> Segment {
    let index = dying.mapping_of(load);
    let mapping = index.and_then(|index| dying.mappings.get(index));
    Segment {
        addresses: load.vaddr..load.vaddr.saturating_add(load.file_size),
        offset: load.offset,
        content: mapping.map_or(Content::File, layout::content),
        mapping: index.unwrap_or(usize::MAX),
    }
}

/// An open source of memory. The kernel lets the process go once it is dropped.
pub(super) enum Source {
    Process {
        /// Held open: the process waits for it.
        input: File,
        memory: Memory,
        tiler: Mutex<Tiler>,
        size: u64,
    },
    Pipe(StreamTiler),
}
