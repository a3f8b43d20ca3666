//! Judges the pages of one block after another by their owners.

use pagehaul_kernel::{Kernel, PageClass, Scanned, StructPage};
use pagehaul_machine::Pfn;
use pagehaul_physmem::{PhysMemory, bits};

use super::file::Files;
use super::{CgroupRules, OwnerFilter};

/// Flags in the low bits of `page.mapping`, and of what a page is charged to (MEMCG_DATA_OBJEXTS, MEMCG_DATA_KMEM; 87944e2992bd,
/// 5.11, and one more since 6.10).
const MAPPING_FLAGS: u64 = 3;
const CHARGE_FLAGS: u64 = 7;

/// Pages of a block: bit *n* is its page *n*.
#[derive(Debug, Default)]
pub(crate) struct Verdicts {
    /// Of user space, and of no owner whose pages are kept.
    pub(crate) others: Vec<u64>,
    /// Cached from a file system whose pages are left out.
    pub(crate) dropped: Vec<u64>,
    /// Cached from a file system that is not known, while some are left out.
    pub(crate) unknown: Vec<u64>,
    /// Cached, on their way to or from an LRU list: their struct pages look like those of kernel memory.
    in_transit: Vec<u64>,
}

/// What the struct page of a single page, or of the head of a compound page, says.
#[derive(Debug, Clone, Copy, Default)]
struct Facts {
    /// Charged to a cgroup whose pages are kept.
    kept: bool,
    /// The super block of its file.
    super_block: Option<u64>,
}

/// The state of one scanning thread.
pub(crate) struct Judge<'a> {
    filter: &'a OwnerFilter,
    kernel: &'a Kernel,
    files: Files<'a>,
    first: Pfn,
    /// Pages of this block that kept processes map.
    mapped: Vec<u64>,
    verdicts: Verdicts,
    /// Address of the last head's struct page.
    head: Option<(u64, Facts)>,
    /// What pages were charged to last, and whether it is kept.
    charge: (u64, bool),
    bytes: Vec<u8>,
}

impl<'a> Judge<'a> {
    pub(crate) fn new(filter: &'a OwnerFilter, kernel: &'a Kernel, memory: &'a dyn PhysMemory) -> Self {
        let words = kernel.pages_per_block() / 64;
        let none = || vec![0; words];
        Self {
            filter,
            kernel,
            files: Files::new(kernel.space().translator(), memory.view(), filter.rules.files),
            first: Pfn::new(0),
            mapped: none(),
            verdicts: Verdicts { others: none(), dropped: none(), unknown: none(), in_transit: none() },
            head: None,
            charge: (0, false),
            bytes: vec![0; kernel.struct_page_size()],
        }
    }

    /// Begins with the block whose first page is `first`.
    pub(crate) fn begin(&mut self, first: Pfn) {
        let Verdicts { others, dropped, unknown, in_transit } = &mut self.verdicts;
        for bits in [others, dropped, unknown, in_transit] {
            bits.fill(0);
        }
        self.first = first;
        self.filter.mapped.copy(first.number(), &mut self.mapped);
        self.head = None;
    }

    /// Judges pages that follow those of the last call.
    pub(crate) fn pages(&mut self, scanned: &Scanned<'_>) {
        let start = scanned.first_pfn().since(self.first).get() as usize;
        for (index, class) in scanned.classes().iter().enumerate() {
            if !is_user(*class) && *class != PageClass::Kernel {
                continue;
            }
            let page = scanned.page(index);
            let facts = self.facts(&page, *class);
            let at = start + index;
            match class {
                PageClass::Kernel if facts.super_block.is_none() => {}
                PageClass::Kernel => {
                    set(&mut self.verdicts.in_transit, at);
                    self.judge(at, PageClass::Cache, facts);
                }
                class => self.judge(at, *class, facts),
            }
        }
    }

    fn judge(&mut self, at: usize, class: PageClass, facts: Facts) {
        let rules = &self.filter.rules;
        if rules.keep.is_some() && !facts.kept && !is_set(&self.mapped, at) {
            set(&mut self.verdicts.others, at);
        }
        let Some(drop) = rules.drop.as_ref().filter(|_| class != PageClass::Anon) else { return };
        match facts.super_block {
            Some(super_block) if drop.binary_search(&super_block).is_ok() => {
                set(&mut self.verdicts.dropped, at);
            }
            Some(_) => {}
            // Pages of hugetlbfs that no file has are free, or of a private mapping.
            None if class == PageClass::HugeTlb => {}
            None => set(&mut self.verdicts.unknown, at),
        }
    }

    /// Returns what the head of the page's compound page says, or the page itself.
    fn facts(&mut self, page: &StructPage<'_>, class: PageClass) -> Facts {
        let at = page.head().unwrap_or_else(|| page.address());
        if let Some((known, facts)) = self.head
            && known == at
        {
            return facts;
        }
        let facts = if at == page.address() {
            self.own(page, class)
        } else {
            let mut bytes = std::mem::take(&mut self.bytes);
            let is_read = self.files.bytes(at, &mut bytes).is_some();
            let facts = if is_read {
                self.own(&StructPage::of(self.kernel, at, &bytes), class)
            } else {
                Facts::default()
            };
            self.bytes = bytes;
            facts
        };
        self.head = Some((at, facts));
        facts
    }

    fn own(&mut self, page: &StructPage<'_>, class: PageClass) -> Facts {
        let mapping = page.mapping();
        // Below -1, the page has a type, and its owner defines `mapping`.
        let may_be_cached = class != PageClass::Anon
            && mapping & MAPPING_FLAGS == 0
            && (class != PageClass::Kernel || page.mapcount() as i32 >= -1);
        let super_block = may_be_cached.then(|| self.files.super_block(mapping)).flatten();
        if class == PageClass::Kernel && super_block.is_none() {
            return Facts::default();
        }
        Facts { kept: self.is_charged(page), super_block }
    }

    fn is_charged(&mut self, page: &StructPage<'_>) -> bool {
        let Some(cgroups) = self.filter.rules.keep.as_ref().and_then(|keep| keep.cgroups.as_ref()) else {
            return false;
        };
        let charged_to = page.word(cgroups.charged_to) & !CHARGE_FLAGS;
        if charged_to != self.charge.0 {
            self.charge = (charged_to, self.is_kept(cgroups, charged_to));
        }
        self.charge.1
    }

    fn is_kept(&mut self, cgroups: &CgroupRules, charged_to: u64) -> bool {
        if charged_to == 0 {
            return false;
        }
        let group = match cgroups.through {
            None => Some(charged_to),
            Some(offset) => self.files.word(charged_to.wrapping_add(offset)),
        };
        group.is_some_and(|group| cgroups.groups.binary_search(&group).is_ok())
    }

    /// Returns the verdicts on the pages of the block.
    pub(crate) fn verdicts(&self) -> &Verdicts {
        &self.verdicts
    }

    /// Counts among `pages` those of user space that are kept for their owner, and that the level does not exclude.
    pub(crate) fn count_kept(
        &self,
        classes: &[PageClass],
        excludes: &[bool; PageClass::COUNT],
        pages: impl Iterator<Item = u64>,
    ) -> u64 {
        if self.filter.rules.keep.is_none() {
            return 0;
        }
        let Verdicts { others, dropped, .. } = &self.verdicts;
        let words = pages.zip(others.iter().zip(dropped)).zip(classes.chunks(64));
        let count = |((pages, (others, dropped)), classes): ((u64, (&u64, &u64)), &[PageClass])| {
            let is_kept = |class: &PageClass| {
                is_user(*class) && excludes.get(*class as usize).is_some_and(|excluded| !excluded)
            };
            let kept = [pages & !others & !dropped];
            bits::ones(&kept).filter(|page| classes.get(*page).is_some_and(is_kept)).count() as u64
        };
        words.map(count).sum()
    }

    /// Corrects the classes of cached pages that look like kernel memory, and the verdicts by the final classes.
    pub(crate) fn finish(&mut self, classes: &mut [PageClass]) {
        let keeps_some = self.filter.rules.keep.is_some();
        let Verdicts { others, dropped, unknown, in_transit } = &mut self.verdicts;
        for (at, class) in classes.iter_mut().enumerate() {
            match class {
                PageClass::Kernel if is_set(in_transit, at) => *class = PageClass::Cache,
                // What is left in free pages was anybody's.
                PageClass::Free if keeps_some => set(others, at),
                class if is_user(*class) => {}
                _ => {
                    for bits in [&mut *others, &mut *dropped, &mut *unknown] {
                        clear(bits, at);
                    }
                }
            }
        }
    }
}

/// Whether pages of the class belong to processes or files.
fn is_user(class: PageClass) -> bool {
    matches!(class, PageClass::Cache | PageClass::CachePrivate | PageClass::Anon | PageClass::HugeTlb)
}

fn set(bits: &mut [u64], at: usize) {
    if let Some(word) = bits.get_mut(at / 64) {
        *word |= 1 << (at % 64);
    }
}

fn clear(bits: &mut [u64], at: usize) {
    if let Some(word) = bits.get_mut(at / 64) {
        *word &= !(1 << (at % 64));
    }
}

fn is_set(bits: &[u64], at: usize) -> bool {
    bits.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
}
