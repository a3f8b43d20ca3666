//! Runs of physical memory behind virtual ones, for one thread that goes through the struct pages in order.

use pagehaul_physmem::View;

use crate::error::TranslateError;
use crate::translate::{Step, Translator};
use pagehaul_machine::Extent;

/// Keeps the table of level 1 it read last. Where single pages map struct pages (HugeTLB's vmemmap optimisation, small
/// machines, arm64 since 7.2), a section takes 512 of them: walking from the top for each would cost more than reading the
/// struct pages. Keeps the last large page, too, which may take more than one read.
pub(crate) struct Walker<'a> {
    tables: &'a Translator,
    /// What the bits of an address above those that `entries` translates must be.
    region: Option<u64>,
    /// Physical address of `entries`.
    table: u64,
    entries: Vec<u64>,
    /// The last large page: a virtual address in it, and its memory from there to its end.
    large: Option<(u64, Extent)>,
}

impl<'a> Walker<'a> {
    pub(crate) fn new(tables: &'a Translator) -> Self {
        Self { tables, region: None, table: 0, entries: vec![0; tables.tables().entries(1)], large: None }
    }

    /// Where `vaddr` lies, and how many of the `want` bytes from there on lie together.
    pub(crate) fn extent(
        &mut self,
        view: &mut dyn View,
        vaddr: u64,
        want: u64,
    ) -> Result<Extent, TranslateError> {
        let extent = self.mapped(view, vaddr, want)?;
        Ok(Extent { len: extent.len.min(want).max(1), ..extent })
    }

    /// The same, perhaps with more bytes than wanted.
    fn mapped(&mut self, view: &mut dyn View, vaddr: u64, want: u64) -> Result<Extent, TranslateError> {
        if let Some(extent) = self.large.and_then(|(start, extent)| rest(extent, vaddr.checked_sub(start)?)) {
            return Ok(extent);
        }
        let region = vaddr >> self.tables.tables().shift(2);
        if self.region != Some(region) {
            match self.tables.walk(view, vaddr)? {
                Step::Leaf(extent) => {
                    self.large = Some((vaddr, extent));
                    return Ok(extent);
                }
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
            match self.tables.page_of(entry, vaddr.wrapping_add(extent.len)) {
                Some(next) if Some(next.paddr) == extent.paddr.checked_add(extent.len) => {
                    extent.len += next.len
                }
                _ => break,
            }
        }
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

/// What is left of memory after `skipped` bytes; none if nothing is.
fn rest(extent: Extent, skipped: u64) -> Option<Extent> {
    let len = extent.len.checked_sub(skipped).filter(|len| *len > 0)?;
    Some(Extent { paddr: extent.paddr.checked_add(skipped)?, len })
}

#[cfg(test)]
mod tests {
    use pagehaul_machine::PageSize;
    use pagehaul_physmem::{MapPolicy, PhysMemory, Recorder};
    use pagehaul_synth::{Era, Machine};

    use super::*;
    use pagehaul_machine::VmcoreInfo;

    /// Where the vmemmap is without KASLR, in pages of 2 MiB.
    const VMEMMAP: u64 = 0xffff_ea00_0000_0000;

    #[test]
    fn page_tables_are_read_once_for_a_large_page() {
        let image = Machine::new(Era::V6_12).build();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vmcore");
        image.elf().write(&path).unwrap();
        let source = pagehaul_vmcore::Source::open(&path, MapPolicy::default()).unwrap();
        let memory = source.memory();
        let tables = Translator::discover(&VmcoreInfo::parse(image.vmcoreinfo().as_bytes()), memory).unwrap();

        let mut walker = Walker::new(&tables);
        let first = walker.extent(memory.view().as_mut(), VMEMMAP, 1 << 17).unwrap();
        let recorder = Recorder::new(memory);
        let mut view = recorder.view();
        let next = walker.extent(view.as_mut(), VMEMMAP + (1 << 17), 1 << 30).unwrap();
        let expected = Extent { paddr: first.paddr + (1 << 17), len: (1 << 21) - (1 << 17) };
        assert_eq!((first.len, next), (1 << 17, expected));
        assert_eq!(recorder.runs(PageSize::KIB_4), []);

        let anew = Walker::new(&tables).extent(memory.view().as_mut(), VMEMMAP + (1 << 17), 1 << 30);
        assert_eq!(anew.unwrap(), next);
        // The next large page, mapped or not.
        let _ = walker.extent(view.as_mut(), VMEMMAP + (1 << 21), 1);
        assert_ne!(recorder.runs(PageSize::KIB_4), []);
    }
}
