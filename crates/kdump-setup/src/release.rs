use std::fmt;

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
}
