//! One block on its way through the rules: pure logic over slices of struct pages, so that all reading is elsewhere.

use super::Trouble;
use crate::PageClass;
use crate::rules::{Compound, Head, PageLayout, Rules, Words, half, word};

/// Why [`Block::advance`] came back.
pub(super) enum Stop {
    /// The struct pages given are used up, or the block is done.
    More,
    /// The next page is of a compound page whose head has to be read first.
    Compound {
        /// Address of the head's struct page.
        head_at: u64,
        /// Flags of the page at hand.
        flags: u64,
    },
}

pub(super) struct Block<'b> {
    rules: &'b Rules,
    /// Virtual address of the struct page of page 0 of the block.
    map: u64,
    first_pfn: u64,
    out: &'b mut [PageClass],
    /// The next page, counted from the block's first.
    next: usize,
    /// The compound page met last, and its end counted from the block's first page.
    compound: Option<Compound>,
    compound_end: usize,
    /// The free block met last.
    free_end: usize,
    free: PageClass,
    /// The address last found to be no head, so that its supposed tails need not be looked up one by one.
    no_head: Option<u64>,
    trouble: Option<Trouble>,
}

impl<'b> Block<'b> {
    pub(super) fn new(rules: &'b Rules, map: u64, first_pfn: u64, out: &'b mut [PageClass]) -> Self {
        Self {
            rules,
            map,
            first_pfn,
            out,
            next: 0,
            compound: None,
            compound_end: 0,
            free_end: 0,
            free: PageClass::Free,
            no_head: None,
            trouble: None,
        }
    }

    pub(super) fn done(&self) -> bool {
        self.next >= self.out.len()
    }

    /// Virtual address of the next struct page.
    pub(super) fn struct_page(&self) -> u64 {
        self.address(self.next)
    }

    /// Bytes of struct pages from there to the end of the block.
    pub(super) fn bytes_left(&self) -> u64 {
        (self.out.len().saturating_sub(self.next) * self.rules.layout.size) as u64
    }

    pub(super) fn pfn(&self) -> u64 {
        self.first_pfn + self.next as u64
    }

    pub(super) fn first_pfn(&self) -> u64 {
        self.first_pfn
    }

    pub(super) fn map(&self) -> u64 {
        self.map
    }

    pub(super) fn trouble(self) -> Option<Trouble> {
        self.trouble
    }

    fn address(&self, index: usize) -> u64 {
        self.map.wrapping_add((index * self.rules.layout.size) as u64)
    }

    /// Classifies pages from the struct pages in `bytes`, the first of which is the next one's.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Stop {
        // The usual size as a constant makes addresses shifts and lets the compiler see that fields are in bounds.
        match self.rules.layout.size {
            64 => self.advance_by::<64>(bytes),
            _ => self.advance_by::<0>(bytes),
        }
    }

    fn advance_by<const SIZE: usize>(&mut self, bytes: &[u8]) -> Stop {
        let size = if SIZE == 0 { self.rules.layout.size } else { SIZE };
        let base = self.next;
        let end = self.out.len().min(base + bytes.len() / size);
        while let Some(page) =
            bytes.get((self.next.wrapping_sub(base)) * size..).and_then(|rest| rest.get(..size))
        {
            let index = self.next;
            if index >= end {
                break;
            }
            if index < self.free_end {
                self.put(page, self.free);
                continue;
            }
            let compound = word(page, self.rules.layout.compound);
            if compound & 1 != 0 {
                let head_at = PageLayout::head_of(self.address(index), compound);
                match self.carried(index, head_at) {
                    Some(class) => self.tails::<SIZE>(bytes, base, end, head_at, class),
                    None if self.no_head == Some(head_at) => self.put(page, PageClass::Undecided),
                    None => return Stop::Compound { head_at, flags: word(page, self.rules.layout.flags) },
                }
                continue;
            }
            let flags = word(page, self.rules.layout.flags);
            if flags & self.rules.head != 0 {
                let pair = bytes.get((index - base) * size..).and_then(|rest| rest.get(..2 * size));
                let Some(pair) = pair else {
                    return Stop::Compound { head_at: self.address(index), flags };
                };
                if let Some(stop) = self.head(page, pair, flags) {
                    return stop;
                }
                continue;
            }
            let words = Words {
                flags,
                mapping: word(page, self.rules.layout.mapping),
                mapcount: half(page, self.rules.layout.mapcount),
            };
            match self.rules.class(words) {
                class @ (PageClass::Free | PageClass::Unaccepted) => self.free_block(page, class),
                class => self.put(page, class),
            }
        }
        Stop::More
    }

    /// Gives the next page its class, unless it is poisoned.
    #[inline]
    fn put(&mut self, page: &[u8], class: PageClass) {
        self.put_flags(word(page, self.rules.layout.flags), class);
    }

    #[inline]
    fn put_flags(&mut self, flags: u64, class: PageClass) {
        if let Some(slot) = self.out.get_mut(self.next) {
            *slot = if self.rules.poison.holds(flags) { PageClass::HwPoison } else { class };
        }
        self.next += 1;
    }

    /// The class of page `index` if it is a tail of the compound page met last.
    #[inline]
    fn carried(&self, index: usize, head_at: u64) -> Option<PageClass> {
        let compound = self.compound.as_ref()?;
        (compound.head_at == head_at && index < self.compound_end).then_some(compound.class)
    }

    /// Goes through the tails of the compound page met last. The next page is one of them.
    fn tails<const SIZE: usize>(
        &mut self,
        bytes: &[u8],
        base: usize,
        end: usize,
        head_at: u64,
        class: PageClass,
    ) {
        let size = if SIZE == 0 { self.rules.layout.size } else { SIZE };
        let end = end.min(self.compound_end);
        let page_at = |index: usize| bytes.get((index - base) * size..).and_then(|rest| rest.get(..size));
        let is_tail = |block: &Self, index: usize, page: &[u8]| {
            let compound = word(page, block.rules.layout.compound);
            compound & 1 != 0 && PageLayout::head_of(block.address(index), compound) == head_at
        };
        while self.next < end {
            let Some(page) = page_at(self.next).filter(|page| is_tail(self, self.next, page)) else { return };
            self.put(page, class);
        }
    }

    /// The next page has `PG_head`; `pair` is its struct page and the one after.
    fn head(&mut self, page: &[u8], pair: &[u8], flags: u64) -> Option<Stop> {
        match self.rules.head(pair, self.address(self.next), self.pfn()) {
            Head::Real(compound) => {
                self.carry(compound);
                self.put(page, compound.class);
            }
            Head::Fake(head_at) => match self.carried(self.next, head_at) {
                Some(class) => self.put(page, class),
                None if self.no_head == Some(head_at) => self.put(page, PageClass::Undecided),
                None => return Some(Stop::Compound { head_at, flags }),
            },
            Head::Wrong(what) => {
                self.note(what);
                self.no_head = Some(self.address(self.next));
                self.put(page, PageClass::Undecided);
            }
        }
        None
    }

    /// The next page is the first of a free block.
    fn free_block(&mut self, page: &[u8], class: PageClass) {
        let Some(order) = self.rules.free.order(class, page) else {
            if self.rules.free.measurable() {
                self.note("a free block has an order that none can have");
            }
            return self.put(page, PageClass::Undecided);
        };
        // Blocks are aligned to their size, so none crosses a section.
        if self.pfn() & ((1 << order) - 1) != 0 {
            self.note("a free block starts at a PFN that its order does not divide");
            return self.put(page, PageClass::Undecided);
        }
        let end = self.next + (1 << order);
        self.put(page, class);
        self.free = class;
        self.free_end = end;
    }

    fn carry(&mut self, compound: Compound) {
        let end = compound.end_pfn.saturating_sub(self.first_pfn);
        self.compound_end = self.out.len().min(usize::try_from(end).unwrap_or(usize::MAX));
        self.compound = Some(compound);
    }

    /// Gives the pages up to `end`, counted from the block's first, one class.
    fn fill(&mut self, end: usize, class: PageClass) {
        let end = end.min(self.out.len());
        if let Some(pages) = self.out.get_mut(self.next..end) {
            pages.fill(class);
        }
        self.next = self.next.max(end);
    }

    /// Gives one class to the next page and to all whose struct pages start at the virtual address `last` or before.
    pub(super) fn fill_until(&mut self, last: u64, class: PageClass) {
        let size = self.rules.layout.size as u64;
        let pages = last.wrapping_sub(self.struct_page()) / size + 1;
        let pages = pages.min(self.out.len() as u64) as usize;
        self.fill(self.next + pages, class);
    }

    /// The struct pages that start at `last` or before cannot be read.
    pub(super) fn give_up(&mut self, last: u64, what: String) {
        let pfn = self.pfn();
        self.trouble.get_or_insert(Trouble { pfn, what });
        self.fill_until(last, PageClass::Undecided);
    }

    /// What was read since the struct page at `from` was not what is there.
    pub(super) fn distrust(&mut self, from: u64) {
        let first = (from.wrapping_sub(self.map) / self.rules.layout.size as u64) as usize;
        let pfn = self.first_pfn + first as u64;
        self.trouble
            .get_or_insert(Trouble { pfn, what: "its struct page could not be read to the end".into() });
        // At least one page, or nothing would get done.
        self.next = self.next.max(first + 1).min(self.out.len());
        if let Some(pages) = self.out.get_mut(first..self.next) {
            pages.fill(PageClass::Undecided);
        }
        self.compound = None;
        self.free_end = 0;
    }

    /// The head that [`Stop::Compound`] asked for has been read.
    pub(super) fn resolved(&mut self, head_at: u64, flags: u64, found: Result<Compound, &'static str>) {
        match found {
            Ok(compound) => {
                self.carry(compound);
                self.put_flags(flags, compound.class);
            }
            Err(what) => {
                self.note(what);
                self.no_head = Some(head_at);
                self.put_flags(flags, PageClass::Undecided);
            }
        }
    }

    fn note(&mut self, what: &str) {
        let pfn = self.pfn();
        self.trouble.get_or_insert_with(|| Trouble { pfn, what: what.into() });
    }
}
