//! From the address space of a page to the file system of its file.

use std::collections::HashMap;

use pagehaul_kernel::Translator;
use pagehaul_physmem::View;

use super::FileLayout;

/// Address spaces that are remembered: 1 MiB. Pages of a file mostly follow each other.
const MAX_KNOWN: usize = 1 << 15;

/// Looks up address spaces, each once in a while.
pub(super) struct Files<'a> {
    translator: &'a Translator,
    view: Box<dyn View + 'a>,
    layout: FileLayout,
    known: HashMap<u64, Option<u64>>,
}

impl<'a> Files<'a> {
    pub(super) fn new(translator: &'a Translator, view: Box<dyn View + 'a>, layout: FileLayout) -> Self {
        Self { translator, view, layout, known: HashMap::new() }
    }

    /// Returns the super block of the file whose address space is at `mapping`; `None` if there is none, or something else there.
    pub(super) fn super_block(&mut self, mapping: u64) -> Option<u64> {
        if !is_pointer(mapping) {
            return None;
        }
        if let Some(known) = self.known.get(&mapping) {
            return *known;
        }
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
        let found = self.read(mapping);
        self.known.insert(mapping, found);
        found
    }

    /// A file's address space is in its inode, or the inode points to it.
    fn read(&mut self, mapping: u64) -> Option<u64> {
        let layout = self.layout;
        let inode = self.word(mapping.wrapping_add(layout.host)).filter(|inode| is_pointer(*inode))?;
        let is_of_inode = inode.wrapping_add(layout.data) == mapping
            || self.word(inode.wrapping_add(layout.mapping)) == Some(mapping);
        if !is_of_inode {
            return None;
        }
        self.word(inode.wrapping_add(layout.super_block)).filter(|at| is_pointer(*at))
    }

    /// Returns the word at a virtual address.
    pub(super) fn word(&mut self, address: u64) -> Option<u64> {
        self.translator.read_u64(self.view.as_mut(), address).ok()
    }

    /// Reads memory at a virtual address.
    pub(super) fn bytes(&mut self, address: u64, out: &mut [u8]) -> Option<()> {
        self.translator.read(self.view.as_mut(), address, out).ok()
    }
}

/// Kernel addresses have the highest bit on all architectures; pointers to structures are aligned.
fn is_pointer(address: u64) -> bool {
    address >> 63 == 1 && address & 7 == 0
}
