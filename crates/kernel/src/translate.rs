//! Virtual to physical addresses.

use std::sync::Arc;

use pagehaul_machine::{AddressLayout, Arch, Entry, ImageSource, KernelMapping, Tables, arch};
use pagehaul_physmem::{PAGE_SIZE, PhysMemory, ReadError, View};

use crate::error::{KernelError, TranslateError};
use pagehaul_machine::{Extent, VmcoreInfo};

/// The kernel's own page tables.
#[derive(Debug, Clone)]
pub struct Translator {
    arch: &'static dyn Arch,
    layout: Arc<dyn AddressLayout>,
    tables: Tables,
}

/// What a walk down to level 1 came to.
pub(crate) enum Step {
    /// A page is mapped.
    Leaf(Extent),
    /// The table of the smallest pages is at this physical address.
    Table(u64),
}

impl Translator {
    /// Finds the page tables by the keys of VMCOREINFO.
    pub fn discover(info: &VmcoreInfo, memory: &dyn PhysMemory) -> Result<Self, KernelError> {
        let arch = arch::of_kernel(info)?;
        let layout = arch.discover(info, &mut Searched { memory, view: memory.view() })?;
        Ok(Self { arch, tables: layout.tables(), layout })
    }

    /// Physical address of the top page table.
    pub fn root(&self) -> u64 {
        self.tables.root
    }

    /// Levels of page tables: 2 to 5.
    pub fn levels(&self) -> u8 {
        self.tables.levels
    }

    /// Where the kernel's virtual address `vaddr` lies. The image itself is one piece of physical memory and needs no
    /// page table, which helps where these were destroyed.
    pub fn translate(&self, view: &mut dyn View, vaddr: u64) -> Result<Extent, TranslateError> {
        match self.layout.in_image(vaddr) {
            Some(extent) => Ok(extent),
            None => self.translate_by_tables(view, vaddr),
        }
    }

    /// As [`translate`](Self::translate), and looks up the image in page tables, too.
    pub fn translate_by_tables(&self, view: &mut dyn View, vaddr: u64) -> Result<Extent, TranslateError> {
        match self.walk(view, vaddr)? {
            Step::Leaf(extent) => Ok(extent),
            Step::Table(table) => {
                let entry_at = table + self.tables.index(vaddr, 1) * 8;
                let entry = read_entry(view, vaddr, 1, entry_at)?;
                self.page_of(entry, vaddr).ok_or(TranslateError::NotMapped {
                    vaddr,
                    level: 1,
                    entry_at,
                    entry,
                })
            }
        }
    }

    /// Returns where pages lie, without those that cannot be translated. Announces the entries of each level together.
    pub(crate) fn translate_together(&self, view: &mut dyn View, vaddrs: Vec<u64>) -> Vec<u64> {
        let mut found = Vec::new();
        let mut walks: Vec<(u64, u64, u64)> = Vec::new();
        for vaddr in vaddrs {
            if let Some(extent) = self.layout.in_image(vaddr) {
                found.push(extent.paddr);
                continue;
            }
            walks.extend(self.layout.canonical(vaddr).map(|inner| (vaddr, inner, self.tables.root)));
        }
        for level in (1..=self.tables.levels).rev() {
            let entry_at = |(_, inner, table): &(u64, u64, u64)| table + self.tables.index(*inner, level) * 8;
            let mut entries: Vec<u64> = walks.iter().map(entry_at).collect();
            entries.sort_unstable();
            entries.dedup_by_key(|at| *at / PAGE_SIZE as u64);
            view.will_need(&entries.into_iter().map(|at| at..at + 8).collect::<Vec<_>>());
            let mut next = Vec::new();
            for walk in walks {
                let Ok(entry) = view.read_u64(entry_at(&walk)) else { continue };
                match self.layout.decode(entry, level, walk.0) {
                    Entry::Table(table) if level > 1 => next.push((walk.0, walk.1, table)),
                    Entry::Page { paddr, .. } => {
                        found.push(paddr | walk.0 & ((1 << self.tables.shift(level)) - 1));
                    }
                    _ => {}
                }
            }
            walks = next;
        }
        found
    }

    /// Fills `buf` from the kernel's virtual address `vaddr` on.
    pub fn read(&self, view: &mut dyn View, vaddr: u64, buf: &mut [u8]) -> Result<(), TranslateError> {
        let mut done = 0;
        while done < buf.len() {
            let at = vaddr.checked_add(done as u64).ok_or(TranslateError::NotCanonical { vaddr })?;
            let extent = self.translate(view, at)?;
            let len = extent.len.min((buf.len() - done) as u64) as usize;
            let piece = buf.get_mut(done..done + len).unwrap_or_default();
            view.read(extent.paddr, piece).map_err(|source| TranslateError::Contents {
                vaddr: at,
                paddr: extent.paddr,
                source,
            })?;
            done += len;
        }
        Ok(())
    }

    /// The little-endian word at the kernel's virtual address `vaddr`.
    pub fn read_u64(&self, view: &mut dyn View, vaddr: u64) -> Result<u64, TranslateError> {
        let mut word = [0; 8];
        self.read(view, vaddr, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    pub(crate) fn arch(&self) -> &'static dyn Arch {
        self.arch
    }

    pub(crate) fn layout(&self) -> &dyn AddressLayout {
        self.layout.as_ref()
    }

    pub(crate) fn tables(&self) -> Tables {
        self.tables
    }

    /// Down to a leaf above level 1, or to the table of level 1.
    pub(crate) fn walk(&self, view: &mut dyn View, vaddr: u64) -> Result<Step, TranslateError> {
        let Some(inner) = self.layout.canonical(vaddr) else {
            return Err(TranslateError::NotCanonical { vaddr });
        };
        let mut table = self.tables.root;
        let mut level = self.tables.levels;
        while level > 1 {
            let entry_at = table + self.tables.index(inner, level) * 8;
            let entry = read_entry(view, vaddr, level, entry_at)?;
            table = match self.layout.decode(entry, level, vaddr) {
                Entry::Table(table) => table,
                Entry::Page { paddr, .. } => {
                    let inside = (1 << self.tables.shift(level)) - 1;
                    let len = inside + 1 - (vaddr & inside);
                    return Ok(Step::Leaf(Extent { paddr: paddr | vaddr & inside, len }));
                }
                Entry::Nothing => return Err(TranslateError::NotMapped { vaddr, level, entry_at, entry }),
                Entry::Bad => return Err(TranslateError::BadEntry { vaddr, level, entry_at, entry }),
            };
            level -= 1;
        }
        Ok(Step::Table(table))
    }

    /// The page an entry of level 1 maps.
    #[inline]
    pub(crate) fn page_of(&self, entry: u64, vaddr: u64) -> Option<Extent> {
        let Entry::Page { paddr, .. } = self.layout.decode(entry, 1, vaddr) else { return None };
        let page = self.tables.page_size.bytes() as u64;
        let inside = vaddr & (page - 1);
        Some(Extent { paddr: paddr | inside, len: page - inside })
    }
}

/// Memory that the image is searched in.
struct Searched<'a> {
    memory: &'a dyn PhysMemory,
    view: Box<dyn View + 'a>,
}

impl ImageSource for Searched<'_> {
    fn kernel_mapping(&self) -> Option<KernelMapping> {
        self.memory.kernel_mapping()
    }

    fn end(&self) -> u64 {
        self.memory.ranges().end()
    }

    fn read(&mut self, paddr: u64, buf: &mut [u8]) -> bool {
        self.view.read(paddr, buf).is_ok()
    }
}

fn read_entry(view: &mut dyn View, vaddr: u64, level: u8, entry_at: u64) -> Result<u64, TranslateError> {
    let unreadable = |source: ReadError| TranslateError::Unreadable { vaddr, level, entry_at, source };
    view.read_u64(entry_at).map_err(unreadable)
}
