//! Why a page has its class, for people who ask about one page. The class itself is the scan's.

use pagehaul_machine::{Pfn, VirtAddr};
use pagehaul_physmem::PhysMemory;

use crate::class::PageClass;
use crate::detail::Zones;
use crate::error::KernelError;
use crate::kernel::Kernel;
use crate::rules::{HugeTlb, PageLayout, half, word};
use crate::scan::{Inconsistency, PageScanner};

/// Why a page has its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explanation {
    /// The class.
    pub class: PageClass,
    /// What decided, in one sentence.
    pub rule: String,
    /// Node and zone, if known.
    pub place: Option<(u64, &'static str)>,
    /// The struct page, if it could be read.
    pub struct_page: Option<Fields>,
    /// The struct page of the head, of a tail of a compound page, if it could be read.
    pub head: Option<Fields>,
}

/// Fields of a struct page that rules read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields {
    /// Its address.
    pub address: VirtAddr,
    /// `page.flags`.
    pub flags: u64,
    /// Names of the flags that are set, as far as VMCOREINFO has them.
    pub flag_names: Vec<&'static str>,
    /// `page.mapping`.
    pub mapping: u64,
    /// `page._mapcount`, which is the page type of pages that no process maps.
    pub mapcount: u32,
    /// `page.compound_head`, since 7.1 `page.compound_info`.
    pub compound: u64,
    /// `page.private`, if its place is known.
    pub private: Option<u64>,
}

impl Kernel {
    /// Explains the class of a page of `memory`.
    ///
    /// # Errors
    /// Fails if no machine can have such a page.
    pub fn explain(&self, memory: &dyn PhysMemory, pfn: Pfn) -> Result<Explanation, KernelError> {
        let pages = self.pages_per_block() as u64;
        let (block, index) = (pfn.number() / pages, (pfn.number() % pages) as usize);
        let mut classes = vec![PageClass::Absent; index + 1];
        let mut own = None;
        let report = PageScanner::new(self, memory.view()).scan_with(block, &mut classes, |scanned| {
            let index = pfn.number().checked_sub(scanned.first_pfn().number());
            if let Some(index) = index.filter(|index| *index < scanned.classes().len() as u64) {
                let page = scanned.page(index as usize);
                own = Some(self.fields(VirtAddr::new(page.address()), page.bytes()));
            }
        })?;
        let class = classes.get(index).copied().unwrap_or_default();
        let head = own.as_ref().filter(|fields| fields.compound & 1 != 0).and_then(|fields| {
            let at = PageLayout::head_of(fields.address.get(), fields.compound);
            let mut bytes = vec![0; self.rules().layout.size];
            self.space().translator().read(memory.view().as_mut(), at, &mut bytes).ok()?;
            Some(self.fields(VirtAddr::new(at), &bytes))
        });
        let zones = Zones::discover(self);
        Ok(Explanation {
            class,
            rule: self.rule((pfn, class), own.as_ref(), head.as_ref(), report.inconsistency.as_ref()),
            place: own.as_ref().and_then(|own| Some((zones?.node(own.flags), zones?.zone(own.flags)))),
            struct_page: own,
            head,
        })
    }

    fn fields(&self, address: VirtAddr, page: &[u8]) -> Fields {
        let layout = &self.rules().layout;
        let flags = word(page, layout.flags);
        Fields {
            address,
            flags,
            flag_names: self
                .flags()
                .into_iter()
                .filter_map(|(name, mask)| (mask != 0 && flags & mask == mask).then_some(name))
                .collect(),
            mapping: word(page, layout.mapping),
            mapcount: half(page, layout.mapcount),
            compound: word(page, layout.compound),
            private: layout.private.map(|at| word(page, at)),
        }
    }

    /// The flags whose place is known.
    fn flags(&self) -> [(&'static str, u64); 7] {
        let rules = self.rules();
        [
            ("PG_head", rules.head),
            ("PG_lru", rules.cache.lru()),
            ("PG_private", rules.cache.private()),
            ("PG_swapcache", rules.cache.swap()),
            ("PG_reserved", rules.reserved),
            ("PG_slab", rules.slab.flag()),
            ("PG_hwpoison", rules.poison.flag()),
        ]
    }

    fn rule(
        &self,
        (pfn, class): (Pfn, PageClass),
        own: Option<&Fields>,
        head: Option<&Fields>,
        inconsistency: Option<&Inconsistency>,
    ) -> String {
        let Some(page) = head.or(own) else {
            return match class {
                PageClass::Absent => "no struct page describes it".into(),
                _ => match inconsistency {
                    Some(Inconsistency { pfn, what }) => {
                        format!(
                            "its struct page cannot be read; the first fault of its memory section is at PFN {}: {what}",
                            pfn.number()
                        )
                    }
                    None => "its struct page cannot be read".into(),
                },
            };
        };
        let rule = match class {
            PageClass::Undecided if self.text().iter().any(|text| text.contains(&pfn.number())) => {
                return "it is text of the kernel image, which is never freed, but its struct page is that of a page that is \
                        excluded"
                    .into();
            }
            PageClass::Undecided if own.is_some_and(|own| own.flags & self.rules().reserved != 0) => {
                return "PG_reserved is set, as on pages of the kernel image, but the rest of its struct page or its neighbours \
                        say that it is excluded"
                    .into();
            }
            PageClass::Undecided => {
                return match inconsistency {
                    Some(Inconsistency { pfn, what }) => {
                        format!(
                            "struct pages contradict each other; first in its memory section, at PFN {}: {what}",
                            pfn.number()
                        )
                    }
                    None => "its kernel does not say enough to decide".into(),
                };
            }
            PageClass::HwPoison => "PG_hwpoison is set: reading it could stop the machine".into(),
            class => self.rule_of(class, page),
        };
        match head {
            Some(_) if class != PageClass::HwPoison => {
                format!("it is a tail of a compound page, whose head decides: {rule}")
            }
            _ => rule,
        }
    }

    /// What decided the class of a page by its own struct page, or that of a tail by its head's.
    fn rule_of(&self, class: PageClass, page: &Fields) -> String {
        let rules = self.rules();
        let typed = |name: &str| format!("the page type in _mapcount ({:#x}) is {name}", page.mapcount);
        let is_typed = (page.mapcount as i32) < -1;
        match class {
            PageClass::Slab if rules.slab.by_flag(page.flags) => "PG_slab is set".into(),
            PageClass::Slab => typed("slab"),
            PageClass::PageTable => typed("page table"),
            PageClass::Offline => typed("offline: the hypervisor has the page"),
            PageClass::HugeTlb => match rules.hugetlb {
                HugeTlb::Type(_) => typed("hugetlb"),
                HugeTlb::TailFlag(_) => "PG_hugetlb is set in the first tail".into(),
                HugeTlb::Destructor { .. } => "the destructor of the compound page is that of hugetlb".into(),
                HugeTlb::Unknown => "it is hugetlb".into(),
            },
            PageClass::Free if rules.types.is(page.mapcount, rules.types.buddy) => {
                let order = page.private.map_or_else(String::new, |order| format!(" of order {order}"));
                format!("{}: it is the first of a free block{order}", typed("buddy"))
            }
            PageClass::Free => "it lies in a free block, which begins before it".into(),
            PageClass::Unaccepted if is_typed => typed("unaccepted"),
            PageClass::Unaccepted => "it lies in a block of unaccepted memory, which begins before it".into(),
            PageClass::Anon if page.mapping & 3 == 3 => "bits 0 and 1 of mapping are set: memory of processes, merged by KSM".into(),
            PageClass::Anon => "bit 0 of mapping is set: memory of processes".into(),
            PageClass::Cache | PageClass::CachePrivate => {
                let place = match page.flags & rules.cache.lru() {
                    0 => "it is in the swap cache",
                    _ => "PG_lru is set",
                };
                let data = match class {
                    PageClass::Cache => "without PG_private",
                    _ if rules.cache.private() == 0 => "and the place of PG_private is not known",
                    _ => "and PG_private is set",
                };
                format!("{place}, bit 0 of mapping is not, {data}")
            }
            PageClass::Kernel if is_typed => format!("the page type in _mapcount ({:#x}) is none that is excluded", page.mapcount),
            _ => "no rule of another class holds: no flag, page type or mapping says that it is not the kernel's".into(),
        }
    }
}
