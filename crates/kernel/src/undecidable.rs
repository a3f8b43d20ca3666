//! Classes of pages that VMCOREINFO does not let determine.

use crate::class::PageClass;

/// A class of pages that cannot be determined, wholly or in part, from what VMCOREINFO exports: such pages are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Undecidable {
    /// The class.
    pub class: PageClass,
    /// The key or keys that VMCOREINFO lacks.
    pub missing: &'static str,
    /// The consequence, as the second half of a sentence: "free pages are kept".
    pub consequence: &'static str,
}

impl std::fmt::Display for Undecidable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: VMCOREINFO has no {}: {}", self.class.name(), self.missing, self.consequence)
    }
}
