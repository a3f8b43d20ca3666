//! Runs of physical memory behind virtual ones, for one thread that goes through the struct pages in order.

use pagehaul_physmem::View;

use crate::Extent;
use crate::TranslateError;
use crate::translate::{Step, Translator};

/// Keeps the table of level 1 it read last. Where single pages map struct pages (HugeTLB's vmemmap optimisation, small
/// machines, arm64 since 7.2), a section takes 512 of them: walking from the top for each would cost more than reading the
/// struct pages.
pub(crate) struct Walker<'a> {
    tables: &'a Translator,
    /// What the bits of an address above those that `entries` translates must be.
    region: Option<u64>,
    /// Physical address of `entries`.
    table: u64,
    entries: Vec<u64>,
}

impl<'a> Walker<'a> {
    pub(crate) fn new(tables: &'a Translator) -> Self {
        Self { tables, region: None, table: 0, entries: vec![0; tables.tables().entries(1)] }
    }

    /// Where `vaddr` lies, and how many of the `want` bytes from there on lie together.
    pub(crate) fn extent(
        &mut self,
        view: &mut dyn View,
        vaddr: u64,
        want: u64,
    ) -> Result<Extent, TranslateError> {
        let region = vaddr >> self.tables.tables().shift(2);
        if self.region != Some(region) {
            match self.tables.walk(view, vaddr)? {
                Step::Leaf(extent) => return Ok(Extent { len: extent.len.min(want).max(1), ..extent }),
                Step::Table(table) => self.load(view, vaddr, table)?,
            }
            self.region = Some(region);
        }
        let index = self.tables.tables().index(vaddr, 1) as usize;
        let entry = self.entries.get(index).copied().unwrap_or(0);
        let mut extent = self.tables.page_of(entry, vaddr).ok_or(TranslateError::NotMapped {
            vaddr,
            level: 1,
            entry_at: self.table + index as u64 * 8,
            entry,
        })?;
        for &entry in self.entries.iter().skip(index + 1) {
            if extent.len >= want {
                break;
            }
            match self.tables.page_of(entry, 0) {
                Some(next) if Some(next.paddr) == extent.paddr.checked_add(extent.len) => {
                    extent.len += next.len
                }
                _ => break,
            }
        }
        extent.len = extent.len.min(want).max(1);
        Ok(extent)
    }

    fn load(&mut self, view: &mut dyn View, vaddr: u64, table: u64) -> Result<(), TranslateError> {
        self.region = None;
        let mut bytes = vec![0; self.entries.len() * 8];
        view.read(table, &mut bytes).map_err(|source| TranslateError::Unreadable {
            vaddr,
            level: 1,
            entry_at: table,
            source,
        })?;
        for (entry, word) in self.entries.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *entry = u64::from_le_bytes(*word);
        }
        self.table = table;
        Ok(())
    }
}
