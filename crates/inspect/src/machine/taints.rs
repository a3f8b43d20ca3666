//! What taints a kernel and its modules.

use serde::Serialize;

/// Letters and meanings of `tainted_mask` (kernel/panic.c, `taint_flags`).
const TAINTS: [(char, &str); 20] = [
    ('P', "a proprietary module was loaded"),
    ('F', "a module was force-loaded"),
    ('S', "the kernel runs on an out-of-specification system"),
    ('R', "a module was force-unloaded"),
    ('M', "a machine check occurred"),
    ('B', "a bad page was found"),
    ('U', "user space requested the taint"),
    ('D', "an oops or a BUG occurred"),
    ('A', "an ACPI table was overridden"),
    ('W', "the kernel issued a warning"),
    ('C', "a staging driver was loaded"),
    ('I', "a workaround for a firmware bug is active"),
    ('O', "an out-of-tree module was loaded"),
    ('E', "an unsigned module was loaded"),
    ('L', "a soft lockup occurred"),
    ('K', "the kernel was live-patched"),
    ('X', "the distribution's taint"),
    ('T', "the kernel was built with the struct randomization plugin"),
    ('N', "an in-kernel test ran"),
    ('J', "user space used a mutating debug operation"),
];

/// A taint of the kernel.
#[derive(Debug, Clone, Serialize)]
pub struct Taint {
    /// Letter.
    pub letter: char,
    /// Meaning.
    pub meaning: &'static str,
}

pub(crate) fn taints(mask: u64) -> Vec<Taint> {
    let set = |(bit, (letter, meaning)): (usize, &(char, &'static str))| {
        (mask >> bit & 1 == 1).then_some(Taint { letter: *letter, meaning })
    };
    TAINTS.iter().enumerate().filter_map(set).collect()
}

/// Returns the taints of letters, such as `OE`.
pub(crate) fn taints_of(letters: &str) -> Vec<Taint> {
    let known = TAINTS.iter().filter(|(letter, _)| letters.contains(*letter));
    known.map(|(letter, meaning)| Taint { letter: *letter, meaning }).collect()
}

/// Returns the letters of a mask, such as `OE`.
pub(crate) fn taint_letters(mask: u64) -> String {
    taints(mask).iter().map(|taint| taint.letter).collect()
}
