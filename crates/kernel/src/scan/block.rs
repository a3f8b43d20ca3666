//! Applies the rules to one block: pure logic over slices of struct pages, without any reading.

use pagehaul_machine::Pfn;

use super::Inconsistency;
use super::kinds::SIZE;
use super::matcher::PageMatcher;
use crate::PageClass;
use crate::rules::{Compound, Head, PageLayout, Rules, Words, half, word};

/// Why [`Block::advance`] returned.
pub(super) enum Stop {
    /// The struct pages given are used up, or the block is done.
    More,
    /// The next page is of a compound page whose head has to be read first.
    Compound {
        /// Address of the head's struct page.
        head_at: u64,
        /// Flags of the next page.
        flags: u64,
    },
}

pub(super) struct Block<'b> {
    rules: &'b Rules,
    /// Matches many struct pages at once, where their layout allows it.
    pub(super) matcher: Option<&'b PageMatcher>,
    /// Virtual address of the struct page of page 0 of the block.
    map: u64,
    first_pfn: u64,
    pub(super) out: &'b mut [PageClass],
    /// The next page, counted from the block's first.
    pub(super) next: usize,
    /// The last compound page, and its end counted from the block's first page.
    compound: Option<Compound>,
    pub(super) compound_end: usize,
    /// The last free block.
    pub(super) free_end: usize,
    pub(super) free: PageClass,
    /// The last address that turned out not to be a head, so that its supposed tails are not looked up one by one.
    no_head: Option<u64>,
    inconsistency: Option<Inconsistency>,
}

impl<'b> Block<'b> {
    pub(super) fn new(
        rules: &'b Rules,
        matcher: Option<&'b PageMatcher>,
        map: u64,
        first_pfn: u64,
        out: &'b mut [PageClass],
    ) -> Self {
        Self {
            rules,
            matcher,
            map,
            first_pfn,
            out,
            next: 0,
            compound: None,
            compound_end: 0,
            free_end: 0,
            free: PageClass::Free,
            no_head: None,
            inconsistency: None,
        }
    }

    pub(super) fn done(&self) -> bool {
        self.next >= self.out.len()
    }

    /// Virtual address of the next struct page.
    pub(super) fn struct_page(&self) -> u64 {
        self.address(self.next)
    }

    /// Bytes of struct pages from the next one to the end of the block.
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

    pub(super) fn inconsistency(self) -> Option<Inconsistency> {
        self.inconsistency
    }

    /// Returns the pages from `first` to the next one: PFN and address of the first struct page, and the classes.
    pub(super) fn scanned(&self, first: usize) -> (Pfn, u64, &[PageClass]) {
        let classes = self.out.get(first..self.next).unwrap_or_default();
        (Pfn::new(self.first_pfn + first as u64), self.address(first), classes)
    }

    pub(super) fn address(&self, index: usize) -> u64 {
        self.map.wrapping_add((index * self.rules.layout.size) as u64)
    }

    /// Classifies pages by the struct pages in `bytes`, which begin with that of the next page.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> Stop {
        match self.matcher {
            Some(matcher) => {
                let (structs, _) = bytes.as_chunks::<SIZE>();
                let before = self.next;
                if let Some(stop) = self.groups(matcher, structs) {
                    return stop;
                }
                self.singles(bytes.get((self.next - before) * SIZE..).unwrap_or_default())
            }
            None => self.singles(bytes),
        }
    }

    /// Does the same one page at a time.
    fn singles(&mut self, bytes: &[u8]) -> Stop {
        let size = self.rules.layout.size;
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
            let flags = word(page, self.rules.layout.flags);
            let stop = if word(page, self.rules.layout.compound) & 1 != 0 {
                self.tail(page)
            } else if flags & self.rules.head != 0 {
                self.head(page, bytes.get((index - base) * size..).and_then(|rest| rest.get(..2 * size)))
            } else {
                let words = Words {
                    flags,
                    mapping: word(page, self.rules.layout.mapping),
                    mapcount: half(page, self.rules.layout.mapcount),
                };
                match self.rules.class(words) {
                    class @ (PageClass::Free | PageClass::Unaccepted) => self.free_block(page, class),
                    class => self.put(page, class),
                }
                None
            };
            if let Some(stop) = stop {
                return stop;
            }
        }
        Stop::More
    }

    /// Sets the class of the next page, unless it is poisoned.
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

    /// Returns the class of page `index` if it is a tail of the last compound page.
    #[inline]
    fn carried(&self, index: usize, head_at: u64) -> Option<PageClass> {
        let compound = self.compound.as_ref()?;
        (compound.head_at == head_at && index < self.compound_end).then_some(compound.class)
    }

    /// Classifies the next page, a tail.
    pub(super) fn tail(&mut self, page: &[u8]) -> Option<Stop> {
        let head_at = PageLayout::head_of(self.address(self.next), word(page, self.rules.layout.compound));
        match self.carried(self.next, head_at) {
            Some(class) => self.put(page, class),
            None if self.no_head == Some(head_at) => self.put(page, PageClass::Undecided),
            None => return Some(Stop::Compound { head_at, flags: word(page, self.rules.layout.flags) }),
        }
        None
    }

    /// Returns the class of the compound page of tail `index`, which is classified; `None` if its head is not a head.
    pub(super) fn tails_of(&self, index: usize, page: &[u8]) -> Option<PageClass> {
        let head_at = PageLayout::head_of(self.address(index), word(page, self.rules.layout.compound));
        self.carried(index, head_at)
    }

    /// Returns the class of the last compound page, if page `index` is its head.
    pub(super) fn headed_by(&self, index: usize) -> Option<PageClass> {
        let compound = self.compound.as_ref()?;
        (compound.head_at == self.address(index)).then_some(compound.class)
    }

    /// Classifies the next page, which has `PG_head`. `pair` is its struct page and the next one, if available.
    pub(super) fn head(&mut self, page: &[u8], pair: Option<&[u8]>) -> Option<Stop> {
        let flags = word(page, self.rules.layout.flags);
        let Some(pair) = pair else {
            return Some(Stop::Compound { head_at: self.address(self.next), flags });
        };
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

    /// Classifies the next page, the first of a free block.
    pub(super) fn free_block(&mut self, page: &[u8], class: PageClass) {
        let Some(order) = self.rules.free.order(class, page) else {
            if self.rules.free.measurable() {
                self.note("a free block has an impossible order");
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

    /// Sets one class for the pages up to `end`, counted from the block's first.
    pub(super) fn fill(&mut self, end: usize, class: PageClass) {
        let end = end.min(self.out.len());
        if let Some(pages) = self.out.get_mut(self.next..end) {
            pages.fill(class);
        }
        self.next = self.next.max(end);
    }

    /// Sets one class for the next page and all whose struct pages start at the virtual address `last` or before.
    pub(super) fn fill_until(&mut self, last: u64, class: PageClass) {
        let size = self.rules.layout.size as u64;
        let pages = last.wrapping_sub(self.struct_page()) / size + 1;
        let pages = pages.min(self.out.len() as u64) as usize;
        self.fill(self.next + pages, class);
    }

    /// Records that the struct pages that start at `last` or before are unreadable.
    pub(super) fn give_up(&mut self, last: u64, what: String) {
        let pfn = Pfn::new(self.pfn());
        self.inconsistency.get_or_insert(Inconsistency { pfn, what });
        self.fill_until(last, PageClass::Undecided);
    }

    /// Undoes the classes since the struct page at `from`, whose bytes were not what the source has.
    pub(super) fn distrust(&mut self, from: u64) {
        let first = (from.wrapping_sub(self.map) / self.rules.layout.size as u64) as usize;
        let pfn = Pfn::new(self.first_pfn + first as u64);
        self.inconsistency.get_or_insert(Inconsistency {
            pfn,
            what: "its struct page could not be read to the end".into(),
        });
        // At least one page, so that the scan makes progress.
        self.next = self.next.max(first + 1).min(self.out.len());
        if let Some(pages) = self.out.get_mut(first..self.next) {
            pages.fill(PageClass::Undecided);
        }
        self.compound = None;
        self.free_end = 0;
    }

    /// Continues with the head that [`Stop::Compound`] asked for.
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
        let pfn = Pfn::new(self.pfn());
        self.inconsistency.get_or_insert_with(|| Inconsistency { pfn, what: what.into() });
    }
}
