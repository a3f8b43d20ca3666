use std::fmt;

use pagehaul_machine::PageSize;

/// A kernel release such as `6.12.107+deb13-amd64`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release(pub String);

impl Release {
    /// Whether it is of `major.minor` or newer. A distribution may have backported what a newer kernel has.
    pub(crate) fn is_at_least(&self, major: u32, minor: u32) -> bool {
        let mut numbers =
            self.0.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (major, minor)
    }

    /// The size of its pages, as far as the name says it: Debian has `-arm64-16k`, Fedora and RHEL `+64k`, openSUSE `-64kb`.
    pub fn page_size(&self) -> PageSize {
        let named = [("16k", 16), ("64k", 64)].into_iter().find(|(name, _)| {
            let last = self.0.rsplit(['-', '+']).next().unwrap_or_default().to_ascii_lowercase();
            last == **name || last.strip_suffix('b') == Some(*name)
        });
        named.and_then(|(_, kib)| PageSize::new(kib << 10)).unwrap_or(PageSize::KIB_4)
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_compare_by_their_numbers() {
        let release = Release("6.12.107+deb13-amd64".into());
        assert!(release.is_at_least(6, 9) && release.is_at_least(5, 19) && release.is_at_least(6, 12));
        assert!(!release.is_at_least(6, 13) && !release.is_at_least(7, 0));
        assert!(!Release(String::new()).is_at_least(1, 0));
    }

    #[test]
    fn names_of_releases_say_larger_pages() {
        let kib = |release: &str| Release(release.into()).page_size().bytes() >> 10;
        assert_eq!(kib("6.12.57+deb13-arm64-16k"), 16);
        assert_eq!(kib("5.14.0-503.11.1.el9_5.aarch64+64k"), 64);
        assert_eq!(kib("6.4.0-150600.21-64kb"), 64);
        assert_eq!(["6.12.107+deb13-amd64", "6.4.0-164k", ""].map(kib), [4; 3]);
    }
}
