//! Memory that reads asked for and the source lost.

use std::collections::HashSet;

use pagehaul_physmem::{PAGE_SHIFT, PageState};

use crate::error::TranslateError;

/// Pages that are counted.
const MAX_PAGES: usize = 1 << 16;

/// Pages that reads needed and did not get, because the source is truncated, damaged or incomplete. Pages that it excludes, and
/// addresses that nothing is mapped at, are not lost.
#[derive(Debug, Default)]
pub struct Lost {
    /// Numbers of the pages.
    pages: HashSet<u64>,
    /// Why the first could not be read.
    first: Option<String>,
}

impl Lost {
    /// Adds the page that a read lacked, if it is lost.
    pub(crate) fn add(&mut self, error: &TranslateError) {
        let paddr = match error {
            TranslateError::Contents { paddr, .. } => *paddr,
            TranslateError::Unreadable { entry_at, .. } => *entry_at,
            _ => return,
        };
        if !matches!(error.state(), PageState::Missing | PageState::Damaged) {
            return;
        }
        if self.pages.len() < MAX_PAGES {
            self.pages.insert(paddr >> PAGE_SHIFT);
        }
        self.first.get_or_insert_with(|| error.to_string());
    }

    /// Adds what was lost after it.
    pub fn merge(&mut self, later: Self) {
        let room = MAX_PAGES.saturating_sub(self.pages.len());
        self.pages.extend(later.pages.into_iter().take(room));
        self.first = self.first.take().or(later.first);
    }

    /// Returns whether nothing is lost.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Returns what is lost, as a sentence; `None` if nothing is.
    pub fn describe(&self) -> Option<String> {
        let first = self.first.as_ref()?;
        Some(match self.pages.len() {
            1 => format!("a page that it needs could not be read: {first}"),
            pages => format!("{pages} pages that it needs could not be read, the first: {first}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use pagehaul_physmem::ReadError;

    use super::*;

    #[test]
    fn only_what_the_source_should_have_is_lost() {
        let mut lost = Lost::default();
        let contents = |paddr, source| TranslateError::Contents { vaddr: 0x9000, paddr, source };
        lost.add(&TranslateError::NotCanonical { vaddr: 1 });
        lost.add(&TranslateError::NotMapped { vaddr: 1, level: 1, entry_at: 8, entry: 0 });
        lost.add(&contents(0x1000, ReadError::NotInDump { paddr: 0x1000 }));
        lost.add(&contents(0x1000, ReadError::NotPresent { paddr: 0x1000 }));
        assert!(lost.is_empty() && lost.describe().is_none());
        let missing = |paddr| contents(paddr, ReadError::Missing { paddr, reason: "cut".into() });
        lost.add(&missing(0x2000));
        lost.add(&missing(0x2ff8));
        let said = lost.describe().unwrap();
        assert!(said.starts_with("a page that it needs could not be read: cannot read virtual"), "{said}");
        lost.add(&missing(0x3000));
        assert!(lost.describe().unwrap().starts_with("2 pages that it needs"), "{lost:?}");
        let mut earlier = Lost::default();
        earlier.add(&missing(0x5000));
        let first = earlier.describe().unwrap();
        earlier.merge(lost);
        let all = earlier.describe().unwrap();
        assert!(
            all.starts_with("3 pages that it needs") && all.ends_with(&first[first.len() - 40..]),
            "{all}"
        );
    }
}
