//! The pages that a process maps, by its page tables.

use std::ops::Range;

use pagehaul_machine::{Entry, PageCount, PageSize, Pfn};
use pagehaul_physmem::View;

use crate::error::TranslateError;
use crate::translate::Translator;

/// Why the page tables of a process cannot be followed to their end.
#[derive(Debug, thiserror::Error)]
pub enum ProcessPagesError {
    /// A table cannot be read, or holds something else.
    #[error(transparent)]
    Table(#[from] TranslateError),
    /// There are more tables than pages.
    #[error("its page tables lead to more than {most} others, so they lead back to each other")]
    TooMany {
        /// The bound.
        most: u64,
    },
}

/// Where the walk is.
struct Walk<'a> {
    translator: &'a Translator,
    view: &'a mut dyn View,
    tables_left: u64,
    each: &'a mut dyn FnMut(Range<Pfn>) -> bool,
}

impl Translator {
    /// Passes the pages that the page tables with the top table at physical address `root` map for user space to `each`, as runs of
    /// PFNs in the order of their virtual addresses, until it returns false. Pages that the process must not touch at the moment
    /// (PROT_NONE, NUMA balancing) are mapped, too.
    ///
    /// `most` bounds the tables that are read: those of one process are pages that differ. Fails at the first table that cannot be
    /// read.
    pub fn pages_of_process(
        &self,
        view: &mut dyn View,
        root: u64,
        most: u64,
        each: &mut dyn FnMut(Range<Pfn>) -> bool,
    ) -> Result<(), ProcessPagesError> {
        let mut walk = Walk { translator: self, view, tables_left: most, each };
        match walk.table(root, self.levels(), 0) {
            Err(ProcessPagesError::TooMany { .. }) => Err(ProcessPagesError::TooMany { most }),
            walked => walked.map(drop),
        }
    }
}

impl Walk<'_> {
    /// Passes on the pages below one table of `level`, whose first entry maps address `start`. Returns false once `each` has.
    fn table(&mut self, table: u64, level: u8, start: u64) -> Result<bool, ProcessPagesError> {
        let tables = self.translator.tables();
        self.tables_left = self.tables_left.checked_sub(1).ok_or(ProcessPagesError::TooMany { most: 0 })?;
        // The upper half of the top table is the kernel's, or it is another table's.
        let entries = match tables.first_kernel_entry {
            first @ 1.. if level == tables.levels => first,
            _ => tables.entries(level),
        };
        let mut bytes = vec![0; entries * 8];
        self.view.read(table, &mut bytes).map_err(|source| TranslateError::Unreadable {
            vaddr: start,
            level,
            entry_at: table,
            source,
        })?;
        let shift = tables.shift(level);
        for (index, word) in bytes.as_chunks::<8>().0.iter().enumerate() {
            let entry = u64::from_le_bytes(*word);
            let vaddr = start.wrapping_add((index as u64) << shift);
            let go_on = match self.translator.layout().decode_of_process(entry, level, vaddr) {
                Entry::Nothing => true,
                Entry::Page { paddr, .. } => (self.each)(run(paddr, 1 << shift, tables.page_size)),
                Entry::Table(next) if level > 1 => self.table(next, level - 1, vaddr)?,
                Entry::Table(_) | Entry::Bad => {
                    let entry_at = table.wrapping_add(index as u64 * 8);
                    return Err(TranslateError::BadEntry { vaddr, level, entry_at, entry }.into());
                }
            };
            if !go_on {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn run(paddr: u64, bytes: u64, size: PageSize) -> Range<Pfn> {
    let first = Pfn::new(paddr >> size.shift());
    first..first + PageCount::new(bytes >> size.shift())
}
