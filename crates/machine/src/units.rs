//! Units of memory. Each has its own type, so that a number of one kind does not pass for one of another.

use std::fmt;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

use crate::page_size::PageSize;

/// Page frame number: the number of a page of the machine, which is as large as its [`PageSize`] says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
#[serde(transparent)]
pub struct Pfn(u64);

/// A number of pages of the machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PageCount(u64);

/// A physical address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PhysAddr(u64);

/// A virtual address of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct VirtAddr(u64);

impl Pfn {
    /// Returns page `number`.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number, for formats and loops that count in it.
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Returns the address of its first byte; the last address of all if there is none.
    pub const fn start(self, size: PageSize) -> PhysAddr {
        PhysAddr(size.bytes_of(self.0))
    }

    /// Returns the pages from `start` to it; none if it is before `start`.
    pub const fn since(self, start: Self) -> PageCount {
        PageCount(self.0.saturating_sub(start.0))
    }
}

impl Add<PageCount> for Pfn {
    type Output = Self;

    fn add(self, pages: PageCount) -> Self {
        Self(self.0.saturating_add(pages.0))
    }
}

impl PageCount {
    /// No page.
    pub const ZERO: Self = Self(0);

    /// Returns this many pages.
    pub const fn new(pages: u64) -> Self {
        Self(pages)
    }

    /// Returns how many there are.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns their bytes; more than 2^64 count as the largest number.
    pub const fn bytes(self, size: PageSize) -> u64 {
        size.bytes_of(self.0)
    }

    /// Returns the whole pages in `bytes` bytes.
    pub const fn of_bytes(bytes: u64, size: PageSize) -> Self {
        Self(bytes >> size.shift())
    }
}

impl Add for PageCount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for PageCount {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl std::iter::Sum for PageCount {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::ZERO, Add::add)
    }
}

impl PhysAddr {
    /// Returns address `at`.
    pub const fn new(at: u64) -> Self {
        Self(at)
    }

    /// Returns the address as a number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the address of the 4 KiB with this number, in the units in which sources know what they hold.
    pub const fn of_4k_page(number: u64) -> Self {
        Pfn(number).start(PageSize::KIB_4)
    }

    /// Returns the page that it is in.
    pub const fn pfn(self, size: PageSize) -> Pfn {
        Pfn(self.0 >> size.shift())
    }

    /// Returns the first page that starts at it or after it.
    pub const fn next_pfn(self, size: PageSize) -> Pfn {
        Pfn(self.0.div_ceil(1 << size.shift()))
    }
}

impl VirtAddr {
    /// Returns address `at`.
    pub const fn new(at: u64) -> Self {
        Self(at)
    }

    /// Returns the address as a number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

macro_rules! formats {
    ($($kind:ident)*) => {
        $(
            impl fmt::Debug for $kind {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    write!(f, concat!(stringify!($kind), "({:#x})"), self.0)
                }
            }

            impl fmt::LowerHex for $kind {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    fmt::LowerHex::fmt(&self.0, f)
                }
            }
        )*
    };
}

formats!(Pfn PageCount PhysAddr VirtAddr);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_become_bytes_by_their_size() {
        let sizes = [4 << 10, 16 << 10, 64 << 10].map(|bytes| PageSize::new(bytes).unwrap());
        assert_eq!(sizes.map(|size| Pfn::new(0x101).start(size).get()), [0x10_1000, 0x40_4000, 0x101_0000]);
        assert_eq!(sizes.map(|size| PageCount::new(256).bytes(size)), [1 << 20, 4 << 20, 16 << 20]);
        let inside = PhysAddr::new(0x101_0001);
        assert_eq!(sizes.map(|size| inside.pfn(size).number()), [0x1010, 0x404, 0x101]);
        assert_eq!(sizes.map(|size| inside.next_pfn(size).number()), [0x1011, 0x405, 0x102]);
        assert_eq!(sizes.map(|size| PageCount::of_bytes(0x2_ffff, size).get()), [0x2f, 0xb, 2]);
    }

    #[test]
    fn impossible_numbers_end_at_the_largest() {
        let size = PageSize::new(64 << 10).unwrap();
        assert_eq!(Pfn::new(u64::MAX).start(size), PhysAddr::new(u64::MAX));
        assert_eq!(PageCount::new(1 << 63).bytes(size), u64::MAX);
        assert_eq!(Pfn::new(u64::MAX) + PageCount::new(2), Pfn::new(u64::MAX));
        assert_eq!(Pfn::new(3).since(Pfn::new(5)), PageCount::ZERO);
        let sum: PageCount = [u64::MAX, 1].map(PageCount::new).into_iter().sum();
        assert_eq!(sum.get(), u64::MAX);
    }
}
