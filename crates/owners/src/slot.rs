//! What one page is counted as.

use crate::report::RowKind;

/// What one page is counted as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Slot {
    /// In a row without owners that struct pages name.
    Row(RowKind),
    /// Outside the managed memory: `PG_reserved`.
    Reserved,
    /// Claimed by a walk.
    Claim(u32),
    /// Of an address space, with `PG_dirty` and `PG_writeback`. 0: of none.
    File { mapping: u64, dirty: bool, writeback: bool, swap_cache: bool },
    /// On no LRU list, but with a pointer that could be an address space.
    Perhaps { mapping: u64, dirty: bool },
    /// Of a reverse map; KSM's have another structure there.
    Anon { anon_vma: u64, ksm: bool, swap_cache: bool, mapped: bool },
    /// A page of HugeTLB, with its `mapping`.
    HugeTlb(u64),
    /// Of a slab cache.
    Slab(u64),
    /// Of a chunk of per-CPU memory.
    Chunk,
    /// A compound page that nothing marks: large kmalloc, or a driver's.
    Compound,
    /// Of a type that has no row: the number of the type in `_mapcount`.
    Typed(u8),
    /// Movable by a driver (until 6.17), with its `mapping`.
    Movable(u64),
    /// Nothing is known. `continues`: without a reference count, part of the block that an earlier page starts.
    Nothing { continues: bool },
}
