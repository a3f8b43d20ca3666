//! Releases of kernels: their order, and which belong together.

use std::cmp::Ordering;

/// Compares releases number by number: 6.9 comes before 6.12, and 6.12-rc2 before 6.12.
pub(crate) fn by_version(a: &str, b: &str) -> Ordering {
    parts(a).cmp(&parts(b)).then_with(|| a.cmp(b))
}

/// Numbers with the text that follows each. A release candidate comes before the end, a text without a number after it.
fn parts(release: &str) -> Vec<(i64, u64, &str)> {
    let mut rest = release.split(['.', '-', '_', '~', '+']).enumerate().peekable();
    let mut parts = Vec::new();
    while let Some((at, part)) = rest.next() {
        // `uname -r` says 6.12.0 and 6.12.0-rc3 of what is called 6.12 and 6.12-rc3.
        if (at, part) == (2, "0") && rest.peek().is_none_or(|(_, next)| next.starts_with("rc")) {
            continue;
        }
        parts.push(number(part));
    }
    parts.push((0, 0, ""));
    parts
}

fn number(part: &str) -> (i64, u64, &str) {
    if let Some(candidate) = part.strip_prefix("rc").and_then(|number| number.parse().ok()) {
        return (-1, candidate, "");
    }
    let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
    let (number, rest) = part.split_at(digits);
    number.parse().map_or((1, 0, part), |number| (2, number, rest))
}

/// Whether a release begins with `kernel`: 6.1.90 is of 6.1, 6.12.1 is not.
pub(crate) fn is_of(release: &str, kernel: &str) -> bool {
    let rest = release.strip_prefix(kernel);
    rest.is_some_and(|rest| {
        !(kernel.ends_with(|c: char| c.is_ascii_digit()) && rest.starts_with(|c: char| c.is_ascii_digit()))
    })
}

/// Whether a kernel has a fix that came with the releases `fixed`, one for each branch. A branch without a release has it if it is newer
/// than all of them.
pub(crate) fn is_fixed(release: &str, fixed: &[String]) -> bool {
    match fixed.iter().find(|fixed| branch(fixed) == branch(release)) {
        Some(fixed) => by_version(release, fixed).is_ge(),
        None => fixed.iter().all(|fixed| by_version(release, fixed).is_ge()) && !fixed.is_empty(),
    }
}

/// The first two numbers: 6.12 of 6.12.1.
fn branch(release: &str) -> Vec<(i64, u64, &str)> {
    parts(release).into_iter().filter(|(class, ..)| *class == 2).take(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_in_the_order_of_their_numbers() {
        let mut releases = [
            "6.12.1",
            "6.1.0-40-amd64",
            "6.9.3",
            "6.1.0-9-amd64",
            "5.10",
            "6.12.1-rc2",
            "6.12.0-rc7",
            "6.12",
        ];
        releases.sort_by(|a, b| by_version(a, b));
        let ordered = [
            "5.10",
            "6.1.0-9-amd64",
            "6.1.0-40-amd64",
            "6.9.3",
            "6.12.0-rc7",
            "6.12",
            "6.12.1-rc2",
            "6.12.1",
        ];
        assert_eq!(releases, ordered);
    }

    #[test]
    fn releases_are_matched_by_whole_numbers() {
        for (release, kernel, is) in [
            ("6.1.0-40-amd64", "6.1", true),
            ("6.12.1", "6.1", false),
            ("6.12.1", "6.12.1", true),
            ("6.12.1-rc1", "6.12.1-rc", true),
            ("7.2", "6", false),
        ] {
            assert_eq!(is_of(release, kernel), is, "{release} of {kernel}");
        }
    }

    #[test]
    fn a_fix_counts_by_branch() {
        for (release, fixed, is) in [
            ("6.12.4", "6.12.4", true),
            ("6.12.4-2-amd64", "6.12.4", true),
            ("6.12.3", "6.12.4", false),
            ("6.12.10", "6.12.4", true),
            ("6.12.0-rc3", "6.12", false),
            ("6.12.0", "6.12", true),
            ("6.13.1", "6.12.4", true),
            ("6.1.90", "6.12.4", false),
            ("6.1.95", "6.1.95 6.6.30 6.9", true),
            ("6.6.29", "6.1.95 6.6.30 6.9", false),
            // 6.7 ended before the fix.
            ("6.7.5", "6.1.95 6.6.30 6.9", false),
            ("6.10.1", "6.1.95 6.6.30 6.9", true),
            ("6.1.0-40-amd64", "6.1.0-41", false),
            ("6.1.0-41-amd64", "6.1.0-41", true),
        ] {
            let list: Vec<String> = fixed.split(' ').map(str::to_owned).collect();
            assert_eq!(is_fixed(release, &list), is, "{release} {fixed}");
        }
        assert!(!is_fixed("6.1", &[]));
    }
}
