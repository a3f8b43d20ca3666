//! Dump levels: which page classes a dump excludes.

use std::fmt;
use std::str::FromStr;

use crate::class::PageClass;

/// A dump level, 0 to 31 (makedumpfile's `-d`). Poisoned and offline pages are excluded at every level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DumpLevel(u8);

/// The bits and their names, in the order of their values.
const BITS: [(u8, &str); 5] = [
    (DumpLevel::ZERO, "zero"),
    (DumpLevel::CACHE, "cache"),
    (DumpLevel::CACHE_PRIVATE, "cache-private"),
    (DumpLevel::USER, "user"),
    (DumpLevel::FREE, "free"),
];

/// A dump level that does not parse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "dump level \"{0}\" is neither a number from 0 to 31 nor names out of zero, cache, cache-private, user, free, all, none \
     joined by commas"
)]
pub struct LevelError(String);

impl DumpLevel {
    /// Zero pages: of any class.
    pub const ZERO: u8 = 1;
    /// Page cache without filesystem data.
    pub const CACHE: u8 = 2;
    /// Page cache with filesystem data; implies [`CACHE`](Self::CACHE).
    pub const CACHE_PRIVATE: u8 = 4;
    /// Memory of processes: anonymous and hugetlb.
    pub const USER: u8 = 8;
    /// Free memory.
    pub const FREE: u8 = 16;
    /// Excludes every class that can be excluded.
    pub const ALL: Self = Self(31);
    /// Excludes only pages that must not be read.
    pub const NONE: Self = Self(0);

    /// Returns the level of a number, `None` above 31.
    pub const fn new(bits: u8) -> Option<Self> {
        if bits <= 31 { Some(Self(bits)) } else { None }
    }

    /// Returns the number.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns whether pages of `class` are excluded.
    pub const fn excludes(self, class: PageClass) -> bool {
        self.0 & Self::excluded_by(class) != 0 || matches!(class, PageClass::HwPoison | PageClass::Offline)
    }

    /// Returns the bits that exclude pages of `class`; any of them suffices.
    const fn excluded_by(class: PageClass) -> u8 {
        match class {
            PageClass::Cache => Self::CACHE | Self::CACHE_PRIVATE,
            PageClass::CachePrivate => Self::CACHE_PRIVATE,
            PageClass::Anon | PageClass::HugeTlb => Self::USER,
            PageClass::Free | PageClass::Unaccepted => Self::FREE,
            _ => 0,
        }
    }

    /// Returns names and numbers of the bits that exclude pages of `class`; any of them suffices.
    pub fn excluding(class: PageClass) -> Vec<(&'static str, u8)> {
        let bits = Self::excluded_by(class);
        BITS.into_iter().filter(|(bit, _)| bits & bit != 0).map(|(bit, name)| (name, bit)).collect()
    }

    /// Returns [`excludes`](Self::excludes) as a table indexed by `class as usize`, for loops over pages.
    pub fn exclusion_table(self) -> [bool; PageClass::COUNT] {
        PageClass::ALL.map(|class| self.excludes(class))
    }
}

impl FromStr for DumpLevel {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        let fail = || LevelError(text.to_owned());
        if let Ok(number) = text.trim().parse::<u8>() {
            return Self::new(number).ok_or_else(fail);
        }
        let mut bits = 0;
        for name in text.split(',') {
            bits |= match name.trim() {
                "all" => Self::ALL.0,
                "none" => 0,
                name => BITS.iter().find(|(_, known)| *known == name).ok_or_else(fail)?.0,
            };
        }
        Ok(Self(bits))
    }
}

/// The number, as in headers and for other tools.
impl fmt::Display for DumpLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names() {
        assert_eq!("31".parse(), Ok(DumpLevel::ALL));
        assert_eq!("0".parse(), Ok(DumpLevel::NONE));
        assert_eq!("zero,free".parse(), Ok(DumpLevel(17)));
        assert_eq!("all".parse(), Ok(DumpLevel::ALL));
        assert_eq!("none".parse(), Ok(DumpLevel::NONE));
        assert_eq!(" cache , cache-private".parse(), Ok(DumpLevel(6)));
        for bad in ["32", "256", "-1", "", "zero,,free", "users"] {
            assert!(bad.parse::<DumpLevel>().is_err(), "{bad}");
        }
    }

    #[test]
    fn each_bit_drops_its_classes() {
        let excluded = |bits| {
            let level = DumpLevel(bits);
            PageClass::ALL.into_iter().filter(|&class| level.excludes(class)).collect::<Vec<_>>()
        };
        use PageClass::*;
        assert_eq!(excluded(0), [HwPoison, Offline]);
        assert_eq!(excluded(1), [HwPoison, Offline]);
        assert_eq!(excluded(2), [Cache, HwPoison, Offline]);
        assert_eq!(excluded(4), [Cache, CachePrivate, HwPoison, Offline]);
        assert_eq!(excluded(8), [Anon, HugeTlb, HwPoison, Offline]);
        assert_eq!(excluded(16), [Free, Unaccepted, HwPoison, Offline]);
        assert_eq!(excluded(31), [Cache, CachePrivate, Anon, HugeTlb, Free, Unaccepted, HwPoison, Offline]);
    }
}
