//! What is impossible in a crashed kernel's structures.

use pagehaul_machine::Pfn;

/// Something in the kernel's structures that is impossible or unreadable. A crashed kernel may have destroyed them, so the
/// scan continues: the pages concerned are [`PageClass::Undecided`](crate::PageClass::Undecided).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inconsistency {
    /// The first page concerned.
    pub pfn: Pfn,
    /// One sentence: what was found.
    pub what: String,
}
