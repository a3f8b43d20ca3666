//! Page types: the contents of `_mapcount` in pages that no process maps.

use pagehaul_machine::arch;

use crate::class::PageClass;
use crate::undecidable::Undecidable;
use pagehaul_machine::VmcoreInfo;

/// The top byte of a page table's type in kernels that keep types there (`PGTY_table`, 4ffca5a96678, 6.12). Not
/// exported; it only decides the name of a class that is kept anyway.
const TABLE: u32 = 0xf2;
/// The top byte of unaccepted memory's type (`PGTY_unaccepted`, 310183de7baf, 6.12). If VMCOREINFO does not confirm it,
/// such pages are kept as undecided.
const UNACCEPTED: u32 = 0xf7;

/// The types VMCOREINFO exports, as `PAGE_*_MAPCOUNT_VALUE`.
#[derive(Debug, Clone, Default)]
pub(crate) struct PageTypes {
    /// Since 4ffca5a96678 (6.12) the type is the top byte, and the 24 bits below are the owner's. Before, from 6e292b9be7f4
    /// (4.18), a type was a cleared bit of an otherwise set word, and earlier a small negative number: there
    /// the whole word is compared. The values distinguish them: only the new ones have 24 zeros.
    top_byte: bool,
    /// Since 2.6.38; exported since 8d67091ec6ae (3.10).
    pub(crate) buddy: Option<u32>,
    /// ca215086b14b (5.1), exported by e04b742f74c2 (5.1), until 6.9 only under CONFIG_HUGETLB_PAGE.
    pub(crate) offline: Option<u32>,
    /// In memory of confidential guests; exported since 6.16.
    pub(crate) unaccepted: Option<u32>,
    /// 46df8e73a4a3 (6.10), when slab stopped being a page flag.
    pub(crate) slab: Option<u32>,
    /// d99e3140a4d3 (6.9, stable 6.6); on the head only.
    pub(crate) hugetlb: Option<u32>,
}

impl PageTypes {
    pub(super) fn new(info: &VmcoreInfo, gaps: &mut Vec<Undecidable>) -> Self {
        // Printed as a signed long of an int, or of an unsigned: the low 32 bits are the same.
        let value =
            |name: &str| info.number(&format!("PAGE_{name}_MAPCOUNT_VALUE")).map(|value| value as u32);
        let mut types = Self {
            top_byte: false,
            buddy: value("BUDDY"),
            offline: value("OFFLINE"),
            unaccepted: value("UNACCEPTED"),
            slab: value("SLAB"),
            hugetlb: value("HUGETLB"),
        };
        types.top_byte = types.buddy.or(types.slab).or(types.hugetlb).is_some_and(|value| value << 8 == 0);
        if types.buddy.is_none() {
            gaps.push(Undecidable {
                class: PageClass::Free,
                missing: "NUMBER(PAGE_BUDDY_MAPCOUNT_VALUE)",
                consequence: "free pages are kept",
            });
        }
        // Kernels whose buddy type is -128 (before 4.18) have no such pages.
        let has_types = types.buddy.is_some_and(|buddy| buddy != -128_i32 as u32);
        if has_types && types.offline.is_none() {
            gaps.push(Undecidable {
                class: PageClass::Offline,
                missing: "NUMBER(PAGE_OFFLINE_MAPCOUNT_VALUE)",
                consequence: "pages given back to the hypervisor are read and kept",
            });
        }
        let can_be_unaccepted = arch::of_kernel(info).is_ok_and(|arch| arch.has_unaccepted_memory());
        if types.top_byte && types.unaccepted.is_none() && can_be_unaccepted {
            gaps.push(Undecidable {
                class: PageClass::Unaccepted,
                missing: "NUMBER(PAGE_UNACCEPTED_MAPCOUNT_VALUE)",
                consequence: "memory that a confidential guest never accepted is kept",
            });
        }
        types
    }

    /// Returns whether pages of any type, exported or not, differ from mapped ones.
    pub(super) fn complete(&self) -> bool {
        self.top_byte
    }

    /// Returns whether `mapcount` has the type `value`.
    #[inline]
    pub(crate) fn is(&self, mapcount: u32, value: Option<u32>) -> bool {
        match value {
            Some(value) if self.top_byte => mapcount >> 24 == value >> 24,
            Some(value) => mapcount == value,
            None => false,
        }
    }

    /// Returns the class of a page whose `_mapcount` is below -1, if its type is known.
    #[inline]
    pub(super) fn class(&self, mapcount: u32) -> Option<PageClass> {
        let holds = |test: Option<(u32, u32)>| test.is_some_and(|(mask, want)| mapcount & mask == want);
        self.tests().into_iter().find_map(|(test, class)| holds(test).then_some(class))
    }

    /// Returns the tests of [`class`](Self::class) in their order, each as a mask and the value expected under it; `None` for a
    /// type that the kernel lacks.
    #[inline]
    pub(crate) fn tests(&self) -> [(Option<(u32, u32)>, PageClass); 6] {
        let mask = if self.top_byte { 0xff00_0000 } else { u32::MAX };
        let test = |value: Option<u32>| value.map(|value| (mask, value & mask));
        let unaccepted = match self.unaccepted {
            None if self.top_byte => (test(Some(UNACCEPTED << 24)), PageClass::Undecided),
            exported => (test(exported), PageClass::Unaccepted),
        };
        [
            (test(self.buddy), PageClass::Free),
            (test(self.slab), PageClass::Slab),
            (test(self.top_byte.then_some(TABLE << 24)), PageClass::PageTable),
            (test(self.hugetlb), PageClass::HugeTlb),
            (test(self.offline), PageClass::Offline),
            unaccepted,
        ]
    }
}
