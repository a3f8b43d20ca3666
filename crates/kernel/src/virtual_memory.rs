//! The kernel's virtual memory, for analysis that follows pointers.

use std::cell::RefCell;
use std::ops::Range;

use pagehaul_physmem::{PAGE_SHIFT, PAGE_SIZE, PhysMemory, ReadError, View};

use crate::address_space::AddressSpace;
use crate::direct_map::DirectMap;
use crate::error::TranslateError;
use crate::lost::Lost;
use crate::translate::Translator;
use pagehaul_machine::Extent;

/// Pages kept: 4 MiB. Walking 100,000 tasks touches each page several times, but in order.
const SLOTS: usize = 1 << 10;
/// No virtual page has this number.
const EMPTY: u64 = u64::MAX;

/// Pages that are announced at a time.
const MAX_ANNOUNCED: usize = 1 << 14;

/// Memory by virtual address.
pub trait ReadVirtual {
    /// Fills `buf` from `vaddr` on.
    fn read(&self, vaddr: u64, buf: &mut [u8]) -> Result<(), TranslateError>;

    /// Returns whether a read may take the time of a request to a server.
    fn is_remote(&self) -> bool {
        false
    }

    /// Returns another reader of the same memory, for another thread; `None` if reads are not worth threads: they wait for no server.
    fn another(&self) -> Option<Box<dyn ReadVirtual + Send + '_>> {
        None
    }

    /// Returns what reads could not have since the last call, because the source lost it.
    fn take_lost(&self) -> Lost {
        Lost::default()
    }

    /// Adds what was taken by [`take_lost`](Self::take_lost) again.
    fn put_back_lost(&self, _taken: Lost) {}

    /// Announces ranges that are read soon. A source on a server fetches them together; others do nothing.
    fn will_need(&self, _ranges: &[Range<u64>]) {}

    /// Returns the little-endian word of 8 bytes at `vaddr`.
    fn u64(&self, vaddr: u64) -> Result<u64, TranslateError> {
        let mut word = [0; 8];
        self.read(vaddr, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    /// Returns the little-endian word of 4 bytes at `vaddr`.
    fn u32(&self, vaddr: u64) -> Result<u32, TranslateError> {
        let mut word = [0; 4];
        self.read(vaddr, &mut word)?;
        Ok(u32::from_le_bytes(word))
    }

    /// Returns `len` bytes at `vaddr`. The caller bounds `len`.
    fn bytes(&self, vaddr: u64, len: usize) -> Result<Vec<u8>, TranslateError> {
        let mut bytes = vec![0; len];
        self.read(vaddr, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns `len` bytes at `vaddr`, with zeros in place of pages that cannot be read, and the number of these pages.
    fn readable_bytes(&self, vaddr: u64, len: usize) -> (Vec<u8>, usize) {
        let mut bytes = vec![0; len];
        if self.read(vaddr, &mut bytes).is_ok() {
            return (bytes, 0);
        }
        let mut lost = 0;
        let mut at = 0;
        while at < len {
            let start = vaddr.saturating_add(at as u64);
            let end = len.min(at + PAGE_SIZE - start as usize % PAGE_SIZE);
            let Some(piece) = bytes.get_mut(at..end) else { break };
            if self.read(start, piece).is_err() {
                piece.fill(0);
                lost += 1;
            }
            at = end;
        }
        (bytes, lost)
    }

    /// Returns the text at `vaddr` up to its terminating zero, or up to `most` bytes. Bytes that are not UTF-8 are
    /// replaced.
    fn text(&self, vaddr: u64, most: usize) -> Result<String, TranslateError> {
        let mut bytes = Vec::new();
        while bytes.len() < most {
            let at = vaddr.saturating_add(bytes.len() as u64);
            let len = (PAGE_SIZE - at as usize % PAGE_SIZE).min(most - bytes.len()).min(64);
            let mut piece = [0; 64];
            let piece = piece.get_mut(..len).unwrap_or_default();
            self.read(at, piece)?;
            match piece.iter().position(|byte| *byte == 0) {
                Some(end) => {
                    bytes.extend_from_slice(piece.get(..end).unwrap_or_default());
                    break;
                }
                None => bytes.extend_from_slice(piece),
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// Reads the kernel's virtual memory through a cache of pages, for one thread.
///
/// The direct map is translated by subtraction: the dump may lack its page tables, and they say nothing else.
pub struct VirtualMemory<'a> {
    translator: &'a Translator,
    memory: &'a dyn PhysMemory,
    direct_map: RefCell<DirectMap>,
    state: RefCell<State<'a>>,
    lost: RefCell<Lost>,
}

struct State<'a> {
    view: Box<dyn View + 'a>,
    /// Virtual page number in each slot.
    numbers: Vec<u64>,
    pages: Vec<u8>,
}

impl<'a> VirtualMemory<'a> {
    /// Opens the memory of a kernel.
    pub fn new(space: &'a AddressSpace, memory: &'a dyn PhysMemory) -> Self {
        let opened = Self::with_direct_map(space.translator(), memory, DirectMap::default());
        space.direct_map().into_iter().for_each(|start| opened.set_direct_map(start));
        opened
    }

    fn with_direct_map(
        translator: &'a Translator,
        memory: &'a dyn PhysMemory,
        direct_map: DirectMap,
    ) -> Self {
        let state =
            State { view: memory.view(), numbers: vec![EMPTY; SLOTS], pages: vec![0; SLOTS * PAGE_SIZE] };
        Self {
            translator,
            memory,
            direct_map: RefCell::new(direct_map),
            state: RefCell::new(state),
            lost: RefCell::default(),
        }
    }

    /// Sets where the direct map starts, for a kernel whose memory sections do not tell.
    pub fn set_direct_map(&self, start: u64) {
        let bounds = self.translator.layout().direct_map_bounds();
        *self.direct_map.borrow_mut() = DirectMap::new(start, self.memory.ranges().end(), &bounds);
    }

    /// Returns the direct map; empty if its start is unknown.
    pub fn direct_map(&self) -> DirectMap {
        self.direct_map.borrow().clone()
    }

    /// Returns the physical address behind `vaddr`.
    pub fn physical(&self, vaddr: u64) -> Result<u64, TranslateError> {
        self.translate(self.state.borrow_mut().view.as_mut(), vaddr).map(|extent| extent.paddr)
    }

    fn read_in_page(&self, vaddr: u64, inside: usize, piece: &mut [u8]) -> Result<(), TranslateError> {
        let number = vaddr >> PAGE_SHIFT;
        let state = &mut *self.state.borrow_mut();
        let slot = slot(number);
        let held = slot * PAGE_SIZE..(slot + 1) * PAGE_SIZE;
        let (Some(kept), Some(page)) = (state.numbers.get_mut(slot), state.pages.get_mut(held)) else {
            return Err(TranslateError::NotCanonical { vaddr });
        };
        if *kept != number {
            *kept = EMPTY;
            let paddr = self.translate(state.view.as_mut(), vaddr)?.paddr;
            let read = state
                .view
                .read(paddr.wrapping_sub(inside as u64), page)
                .and_then(|()| whole(state.view.as_mut(), paddr));
            match read {
                Ok(()) => *kept = number,
                // A segment may begin or end inside the page.
                Err(_) => {
                    let read = state.view.read(paddr, piece).and_then(|()| whole(state.view.as_mut(), paddr));
                    return read.map_err(|source| TranslateError::Contents { vaddr, paddr, source });
                }
            }
        }
        piece.copy_from_slice(page.get(inside..inside + piece.len()).unwrap_or_default());
        Ok(())
    }

    /// Reads whole pages that follow each other in physical memory, past the cache. Returns the number of bytes; 0 if they
    /// cannot be read in one go.
    fn read_run(&self, vaddr: u64, buf: &mut [u8]) -> usize {
        let state = &mut *self.state.borrow_mut();
        let view = state.view.as_mut();
        let Ok(extent) = self.translate(view, vaddr) else { return 0 };
        let len = extent.len.min(buf.len() as u64) as usize / PAGE_SIZE * PAGE_SIZE;
        let Some(buf) = buf.get_mut(..len) else { return 0 };
        let read = view.read(extent.paddr, buf).and_then(|()| whole(view, extent.paddr));
        if read.is_ok() { len } else { 0 }
    }

    /// Announces the pages of these ranges that are not here.
    fn announce(&self, ranges: &[Range<u64>]) {
        let state = &mut *self.state.borrow_mut();
        let pages =
            ranges.iter().flat_map(|range| range.start >> PAGE_SHIFT..range.end.div_ceil(PAGE_SIZE as u64));
        let mut pages: Vec<u64> = pages
            .take(MAX_ANNOUNCED)
            .filter(|number| state.numbers.get(slot(*number)) != Some(number))
            .collect();
        pages.sort_unstable();
        pages.dedup();
        let (mut found, mut others) = (Vec::new(), Vec::new());
        for vaddr in pages.into_iter().map(|number| number << PAGE_SHIFT) {
            let direct = self.direct_map.borrow().extent(vaddr);
            match direct {
                Some(extent) => found.push(extent.paddr),
                None => others.push(vaddr),
            }
        }
        found.extend(self.translator.translate_together(state.view.as_mut(), others));
        let page = |paddr: u64| paddr..paddr.saturating_add(PAGE_SIZE as u64);
        state.view.will_need(&found.into_iter().map(page).collect::<Vec<_>>());
    }

    fn translate(&self, view: &mut dyn View, vaddr: u64) -> Result<Extent, TranslateError> {
        match self.direct_map.borrow().extent(vaddr) {
            Some(extent) => Ok(extent),
            None => self.translator.translate(view, vaddr),
        }
    }
}

impl ReadVirtual for VirtualMemory<'_> {
    fn is_remote(&self) -> bool {
        self.state.borrow().view.is_remote()
    }

    fn another(&self) -> Option<Box<dyn ReadVirtual + Send + '_>> {
        let other = || Self::with_direct_map(self.translator, self.memory, self.direct_map());
        self.is_remote().then(|| Box::new(other()) as _)
    }

    fn take_lost(&self) -> Lost {
        self.lost.take()
    }

    fn put_back_lost(&self, mut taken: Lost) {
        taken.merge(self.lost.take());
        self.lost.replace(taken);
    }

    fn will_need(&self, ranges: &[Range<u64>]) {
        if self.is_remote() {
            self.announce(ranges);
        }
    }

    fn read(&self, vaddr: u64, buf: &mut [u8]) -> Result<(), TranslateError> {
        let mut at = vaddr;
        // Reads of several pages are of tables that are read once: symbols, types.
        let mut in_runs = true;
        if buf.len() >= 2 * PAGE_SIZE {
            self.will_need(&[vaddr..vaddr.saturating_add(buf.len() as u64)]);
        }
        let mut rest = buf;
        while !rest.is_empty() {
            let inside = at as usize % PAGE_SIZE;
            let several = in_runs && inside == 0 && rest.len() >= 2 * PAGE_SIZE;
            let run = if several { self.read_run(at, rest) } else { 0 };
            // Page by page the error names the page that is missing.
            in_runs &= !several || run > 0;
            let len = if run > 0 { run } else { rest.len().min(PAGE_SIZE - inside) };
            let (piece, later) = rest.split_at_mut(len);
            if run == 0 {
                self.read_in_page(at, inside, piece).inspect_err(|why| self.lost.borrow_mut().add(why))?;
            }
            at = at.checked_add(piece.len() as u64).ok_or(TranslateError::NotCanonical { vaddr })?;
            rest = later;
        }
        Ok(())
    }
}

/// Returns the slot of a page.
fn slot(number: u64) -> usize {
    (number ^ number >> 10 ^ number >> 20) as usize % SLOTS
}

/// Fails if the file ended under a mapping, whose bytes then read as zeros.
fn whole(view: &mut dyn View, paddr: u64) -> Result<(), ReadError> {
    if !view.take_fault() {
        return Ok(());
    }
    Err(ReadError::Damaged { paddr, reason: "the file became shorter or its disk failed".into() })
}
