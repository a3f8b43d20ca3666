//! Applies the rules to one block: pure logic over slices of struct pages, without any reading.

use std::ops::Range;

use pagehaul_machine::Pfn;

use super::inconsistency::Inconsistency;
use super::kinds::SIZE;
use super::matcher::PageMatcher;
use crate::class::PageClass;
use crate::rules::{Compound, Head, PageLayout, Rules, Words, half, word};

/// What contradicts the class of a reserved page.
const RESERVED: &str = "a page of a process, a file or a free block is reserved, as the kernel image is";

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
    /// The text of the kernel image: runs of PFNs, ascending.
    image: &'b [Range<u64>],
    inconsistency: Option<Inconsistency>,
    /// Pages whose struct pages contradict each other, or the image.
    contradictions: u64,
    /// The flags of poisoned and of reserved pages.
    marks: u64,
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
            image: &[],
            contradictions: 0,
            marks: rules.poison.flag() | rules.reserved,
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

    /// Keeps the pages of `text` that lie in the block: the kernel never frees its text. Other parts of its image, which it may
    /// free, are reserved as long as they are its own.
    pub(super) fn keep_image(mut self, text: &'b [Range<u64>]) -> Self {
        let pages = self.first_pfn..self.first_pfn + self.out.len() as u64;
        let from = text.partition_point(|run| run.end <= pages.start);
        let text = text.get(from..).unwrap_or_default();
        self.image = text.get(..text.partition_point(|run| run.start < pages.end)).unwrap_or_default();
        self
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

    /// Returns the first inconsistency, and the number of pages that contradict each other or the image.
    pub(super) fn inconsistencies(self) -> (Option<Inconsistency>, u64) {
        (self.inconsistency, self.contradictions)
    }

    /// Corrects the classes of pages of the image from page `first` to the next one.
    pub(super) fn correct_image(&mut self, first: usize) {
        for run in self.image {
            let index = |pfn: u64| pfn.saturating_sub(self.first_pfn).min(self.next as u64) as usize;
            for page in index(run.start).max(first)..index(run.end) {
                let Some(slot) = self.out.get_mut(page) else { break };
                if slot.is_filtered() || *slot == PageClass::Offline {
                    *slot = PageClass::Undecided;
                    self.contradict(
                        page,
                        "a page of the kernel's text is marked as one of a process, a file, or free",
                    );
                }
            }
        }
    }

    /// Records that page `page`, counted from the block's first, contradicts what is known of it.
    fn contradict(&mut self, page: usize, what: &str) {
        self.contradictions += 1;
        self.note_at(page, what);
    }

    /// Remembers what is wrong with page `page`, if no earlier page has anything.
    #[cold]
    #[inline(never)]
    fn note_at(&mut self, page: usize, what: &str) {
        let pfn = Pfn::new(self.first_pfn + page as u64);
        if self.inconsistency.as_ref().is_none_or(|known| pfn < known.pfn) {
            self.inconsistency = Some(Inconsistency { pfn, what: what.into() });
        }
    }

    /// Returns the class of page `page`, which its struct page or its neighbours say is `class`, by its flags.
    #[inline]
    fn checked(&mut self, page: usize, flags: u64, class: PageClass) -> PageClass {
        if flags & self.marks == 0 { class } else { self.of_marked(page, flags, class) }
    }

    /// Does the same for a page that is poisoned or reserved.
    #[cold]
    #[inline(never)]
    pub(super) fn of_marked(&mut self, page: usize, flags: u64, class: PageClass) -> PageClass {
        if self.rules.poison.holds(flags) {
            return PageClass::HwPoison;
        }
        if self.rules.contradicts(flags, class) {
            self.contradict(page, RESERVED);
            return PageClass::Undecided;
        }
        class
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
                    class @ (PageClass::Free | PageClass::Unaccepted | PageClass::HugeTlb) => {
                        self.starts(page, class);
                    }
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
        let class = self.checked(self.next, flags, class);
        if let Some(slot) = self.out.get_mut(self.next) {
            *slot = class;
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
            None if self.no_head == Some(head_at) => self.keep(page),
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
                None if self.no_head == Some(head_at) => self.keep(page),
                None => return Some(Stop::Compound { head_at, flags }),
            },
            Head::Wrong(what) => {
                self.note(what);
                self.no_head = Some(self.address(self.next));
                self.keep(page);
            }
        }
        None
    }

    /// Classifies the next page as one whose struct pages contradict each other.
    #[cold]
    #[inline(never)]
    fn keep(&mut self, page: &[u8]) {
        self.contradictions += 1;
        self.put(page, PageClass::Undecided);
    }

    /// Classifies the next page, which is not compound, by its type: the first of a free block, or hugetlb by mistake.
    pub(super) fn starts(&mut self, page: &[u8], class: PageClass) {
        let what = match class {
            PageClass::HugeTlb => "a single page is marked as hugetlb",
            _ if self.rules.contradicts(word(page, self.rules.layout.flags), class) => RESERVED,
            _ => return self.free_block(page, class),
        };
        self.note(what);
        self.keep(page);
    }

    /// Classifies the next page, the first of a free block.
    fn free_block(&mut self, page: &[u8], class: PageClass) {
        let Some(order) = self.rules.free.order(class, page) else {
            if !self.rules.free.measurable() {
                return self.put(page, PageClass::Undecided);
            }
            self.note("a free block has an impossible order");
            return self.keep(page);
        };
        // Blocks are aligned to their size, so none crosses a section.
        if self.pfn() & ((1 << order) - 1) != 0 {
            self.note("a free block starts at a PFN that its order does not divide");
            return self.keep(page);
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
                self.contradictions += 1;
                self.put_flags(flags, PageClass::Undecided);
            }
        }
    }

    fn note(&mut self, what: &str) {
        self.note_at(self.next, what);
    }
}
