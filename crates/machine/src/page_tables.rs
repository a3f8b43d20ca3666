//! Shape and entries of page tables, of any architecture.

use crate::page_size::PageSize;

/// Shape of the kernel's page tables. Levels count from 1, whose entries map single pages.
#[derive(Debug, Clone, Copy)]
pub struct Tables {
    /// Physical address of the top table.
    pub root: u64,
    /// Levels, 2 to 5.
    pub levels: u8,
    /// Size of the pages that entries of level 1 map.
    pub page_size: PageSize,
    /// log2 of the entries in the top table.
    pub top_bits: u32,
    /// The first entry of the top table that maps addresses of the kernel's.
    pub first_kernel_entry: usize,
}

impl Tables {
    /// log2 of the entries in a table below the top.
    #[inline]
    pub fn index_bits(&self) -> u32 {
        self.page_size.shift() - 3
    }

    /// log2 of the bytes that an entry of a table of `level` maps.
    #[inline]
    pub fn shift(&self, level: u8) -> u32 {
        self.page_size.shift() + u32::from(level.saturating_sub(1)) * self.index_bits()
    }

    /// Number of entries in a table of `level`.
    pub fn entries(&self, level: u8) -> usize {
        1 << if level == self.levels { self.top_bits } else { self.index_bits() }
    }

    /// Index of the entry for `vaddr` in a table of `level`.
    #[inline]
    pub fn index(&self, vaddr: u64, level: u8) -> u64 {
        let bits = if level == self.levels { self.top_bits } else { self.index_bits() };
        vaddr >> self.shift(level) & ((1 << bits) - 1)
    }
}

/// What an entry of a table leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// A table of the next level at this physical address.
    Table(u64),
    /// A page of its level's size at this one.
    Page {
        /// Physical address of the page.
        paddr: u64,
        /// Whether the kernel may run it and not write to it.
        text: bool,
    },
    /// Nothing.
    Nothing,
    /// No page table has such an entry.
    Bad,
}
