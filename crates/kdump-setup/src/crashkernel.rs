//! The `crashkernel=` parameter: what it reserves, and what distributions set by default.
//!
//! Syntax: `Documentation/admin-guide/kdump/kdump.rst` and `kernel/crash_reserve.c`, Linux 7.2. The last parameter of each
//! kind counts; one without a suffix beats `,high` and `,low`.

use crate::config::Stack;
use crate::root::Root;

const MIB: u64 = 1 << 20;
/// RAM is rounded up to this before ranges are compared.
const ROUNDED: u64 = 128 * MIB;
/// What each thread of a capture takes at most (docs/architecture.md, "Invariants").
pub(crate) const THREAD: u64 = 8 * MIB;

/// What the command line asks to be reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reservation {
    /// No `crashkernel=` parameter.
    Absent,
    /// A parameter whose ranges do not include a machine of this size, or which cannot be parsed.
    Nothing,
    /// Bytes, without the low part that `,high` adds by itself.
    Bytes(u64),
}

impl Reservation {
    /// Evaluates the parameters of a command line for a machine with `ram` bytes.
    pub fn of(command_line: &[String], ram: u64) -> Self {
        let values = || command_line.iter().filter_map(|word| word.strip_prefix("crashkernel="));
        let is_plain = |value: &&str| ![",high", ",low", ",cma"].iter().any(|suffix| value.ends_with(suffix));
        let plain = values().rfind(is_plain);
        let high = values().filter_map(|value| value.strip_suffix(",high")).next_back();
        match (plain, high) {
            (Some(value), _) => evaluate(value, ram).map_or(Self::Nothing, Self::Bytes),
            (None, Some(value)) => size(value).map_or(Self::Nothing, |(bytes, _)| Self::Bytes(bytes)),
            (None, None) => Self::Absent,
        }
    }
}

/// The reservation a value makes: `size[@offset]` or `range:size[,range:size...][@offset]`.
fn evaluate(value: &str, ram: u64) -> Option<u64> {
    let value = value.split('@').next()?;
    if !value.contains(':') {
        return size(value).filter(|(bytes, rest)| *bytes > 0 && rest.is_empty()).map(|(bytes, _)| bytes);
    }
    let ram = ram.checked_next_multiple_of(ROUNDED)?;
    for range in value.split(',') {
        let (bounds, reserved) = range.split_once(':')?;
        let (start, end) = bounds.split_once('-')?;
        let end = if end.is_empty() { u64::MAX } else { size(end)?.0 };
        if (size(start)?.0..end).contains(&ram) {
            return size(reserved).map(|(bytes, _)| bytes).filter(|bytes| *bytes > 0);
        }
    }
    None
}

/// A number with an optional suffix (memparse), and what follows it.
fn size(text: &str) -> Option<(u64, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, rest) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let shift = match rest.bytes().next().map(|unit| unit.to_ascii_uppercase()) {
        Some(b'K') => 10,
        Some(b'M') => 20,
        Some(b'G') => 30,
        Some(b'T') => 40,
        _ => return Some((number, rest)),
    };
    Some((number.checked_mul(1 << shift)?, &rest[1..]))
}

/// The default of a distribution for x86_64, as a `crashkernel=` value: Debian's kdump-tools 1.9 (128M ran out of memory with
/// 4 CPUs), Fedora's kdump-utils 1.0.53 (fe18f93: NFS needed 238M). openSUSE computes it; the value is Fedora's.
pub(crate) fn default_reservation(stack: Stack) -> &'static str {
    match stack {
        Stack::KdumpTools => "512M-:192M",
        Stack::KdumpUtils | Stack::Suse => "2G-64G:256M,64G-:512M",
    }
}

/// The default of the scripts that are installed: kdump-tools before 1.9, as in Debian 12, has 128M.
pub(crate) fn installed_default(root: &Root, stack: Option<Stack>) -> &'static str {
    let stack = stack.unwrap_or(Stack::KdumpTools);
    let is_old =
        || dpkg_version(&root.text("/var/lib/dpkg/status")?, "kdump-tools").map(|version| version < (1, 9));
    match stack {
        Stack::KdumpTools if is_old() == Some(true) => "384M-:128M",
        _ => default_reservation(stack),
    }
}

/// The first two numbers of the version of a package of Debian, without the epoch (deb-version(7)).
fn dpkg_version(status: &str, package: &str) -> Option<(u32, u32)> {
    let name = format!("Package: {package}");
    let mut lines = status.lines().skip_while(|line| *line != name).take_while(|line| !line.is_empty());
    let version = lines.find_map(|line| line.strip_prefix("Version: "))?;
    // Ubuntu's defaults are its own.
    if version.contains("ubuntu") {
        return None;
    }
    let mut numbers = version.rsplit(':').next()?.split(|next: char| !next.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The bytes of a default on a machine with `ram` bytes.
pub(crate) fn bytes(default: &str, ram: u64) -> Option<u64> {
    evaluate(default, ram)
}

/// The bytes of that default on a machine with `ram` bytes.
pub(crate) fn recommended(stack: Stack, ram: u64) -> Option<u64> {
    evaluate(default_reservation(stack), ram)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(command_line: &str, ram: u64) -> Reservation {
        let words: Vec<String> = command_line.split(' ').map(str::to_owned).collect();
        Reservation::of(&words, ram)
    }

    #[test]
    fn the_parameter_is_evaluated_as_the_kernel_does() {
        let gib = 1 << 30;
        assert_eq!(of("quiet", gib), Reservation::Absent);
        assert_eq!(of("crashkernel=256M", gib), Reservation::Bytes(256 * MIB));
        assert_eq!(of("crashkernel=256M@16M", gib), Reservation::Bytes(256 * MIB));
        assert_eq!(of("crashkernel=1G,high crashkernel=128M,low", 64 * gib), Reservation::Bytes(1024 * MIB));
        // The last counts, and one without a suffix beats `,high`.
        assert_eq!(
            of("crashkernel=64M crashkernel=128M crashkernel=1G,high", gib),
            Reservation::Bytes(128 * MIB)
        );
        assert_eq!(of("crashkernel=2G,cma crashkernel=192M", gib), Reservation::Bytes(192 * MIB));
        let ranges = "crashkernel=2G-64G:256M,64G-:512M";
        assert_eq!(of(ranges, 2 * gib), Reservation::Bytes(256 * MIB));
        assert_eq!(of(ranges, 64 * gib), Reservation::Bytes(512 * MIB));
        assert_eq!(of(ranges, gib), Reservation::Nothing);
        // 1.9 GiB that the firmware left of 2: rounded up.
        assert_eq!(of(ranges, 2 * gib - 100 * MIB), Reservation::Bytes(256 * MIB));
        for nonsense in
            ["crashkernel=", "crashkernel=auto", "crashkernel=0", "crashkernel=1G-2G", "crashkernel=-:M"]
        {
            assert_eq!(of(nonsense, gib), Reservation::Nothing, "{nonsense}");
        }
    }

    #[test]
    fn the_default_is_that_of_the_installed_package() {
        let status = |version| {
            format!("Package: a\nVersion: 9.9\n\nPackage: kdump-tools\nStatus: x\nVersion: {version}\n\n")
        };
        assert_eq!(dpkg_version(&status("1:1.8.1"), "kdump-tools"), Some((1, 8)));
        assert_eq!(dpkg_version(&status("1:1.10.9+b1"), "kdump-tools"), Some((1, 10)));
        assert_eq!(dpkg_version(&status("1:1.6.10ubuntu2"), "kdump-tools"), None);
        assert_eq!(dpkg_version(&status("x"), "kdump-tools"), None);
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        std::fs::create_dir_all(directory.path().join("var/lib/dpkg")).unwrap();
        for (version, default) in [("1:1.8.1", "384M-:128M"), ("1:1.10.3", "512M-:192M")] {
            std::fs::write(directory.path().join("var/lib/dpkg/status"), status(version)).unwrap();
            assert_eq!(installed_default(&root, Some(Stack::KdumpTools)), default);
        }
    }

    proptest! {
        #[test]
        fn any_value_is_evaluated(value in "[0-9KMGT:,@a-z-]{0,40}", ram: u64) {
            Reservation::of(&[format!("crashkernel={value}")], ram);
        }
    }
}
