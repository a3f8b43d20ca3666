//! The letters of the flags of mappings.

/// Bits of `vm_flags` and their letters, in the order in which the kernel prints them (fs/proc/task_mmu.c, show_smap_vma_flags()).
/// Bits that are others on other kernels or machines are found out by [`Names::compare`].
const LETTERS: [(u32, &str); 33] = [
    (0, "rd"),
    (1, "wr"),
    (2, "ex"),
    (3, "sh"),
    (4, "mr"),
    (5, "mw"),
    (6, "me"),
    (7, "ms"),
    (8, "gd"),
    (9, "um"),
    (10, "pf"),
    (11, "gu"),
    (12, "uw"),
    (13, "lo"),
    (14, "io"),
    (15, "sr"),
    (16, "rr"),
    (17, "dc"),
    (18, "de"),
    (19, "lf"),
    (20, "ac"),
    (21, "nr"),
    (22, "ht"),
    (23, "sf"),
    (25, "wf"),
    (26, "dd"),
    (28, "mm"),
    (29, "hg"),
    (30, "nh"),
    (31, "mg"),
    // VM_DROPPABLE (Linux 6.11) and VM_SEALED (Linux 6.10, which has bit 63 at first).
    (40, "dp"),
    (42, "sl"),
    (63, "sl"),
];
/// Letters that no caller needs, and that not all kernels print: VM_SOFTDIRTY (bit 27, "sd").
const PASSED_OVER: (u64, &str) = (1 << 27, "sd");

/// The letters that this kernel is known to print.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// Bits that were set in a mapping, and printed as expected.
    seen: u64,
}

impl Names {
    /// Compares the flags of a mapping with what the kernel prints of them. An error if they differ.
    pub(super) fn compare(&mut self, flags: u64, printed: &[[u8; 2]]) -> Result<(), String> {
        let bits = |of: u64| LETTERS.iter().filter(move |(bit, _)| of >> bit & 1 == 1);
        let expected: Vec<&str> = bits(flags).map(|(_, letters)| *letters).collect();
        let printed: Vec<&str> = printed
            .iter()
            .map(|letters| std::str::from_utf8(letters).unwrap_or("?"))
            .filter(|letters| *letters != PASSED_OVER.1)
            .collect();
        // Bits above, and those without letters here, are in `printed` only.
        let mut rest = printed.iter();
        if !expected.iter().all(|letters| rest.any(|other| other == letters)) {
            return Err(format!("the kernel prints {printed:?} for flags {flags:#x}, not {expected:?}"));
        }
        if expected.len() == printed.len() {
            self.seen |= flags;
        }
        Ok(())
    }

    /// The letters of a mapping's flags, as the kernel prints them. None if not all its bits were seen.
    pub(super) fn of(&self, flags: u64) -> Option<String> {
        let flags = flags & !PASSED_OVER.0;
        if flags & !self.seen != 0 {
            return None;
        }
        let letters = LETTERS.iter().filter(|(bit, _)| flags >> bit & 1 == 1);
        // Each with a space after it, the last one too.
        Some(letters.map(|(_, letters)| format!("{letters} ")).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_letters_that_the_kernel_was_seen_to_print_are_used() {
        let mut names = Names::default();
        assert_eq!(names.of(1), None);
        names.compare(1 | 1 << 27, &[*b"rd", *b"sd"]).unwrap();
        assert_eq!(names.of(1).as_deref(), Some("rd "));
        // Without CONFIG_MEM_SOFT_DIRTY there are no letters for the bit.
        assert_eq!(names.of(1 | 1 << 27).as_deref(), Some("rd "));
        assert_eq!(names.of(1 | 1 << 13), None);
        // A bit that prints nothing, and one that prints what is not known here.
        names.compare(1 | 1 << 50, &[*b"rd"]).unwrap();
        assert_eq!(names.of(1 | 1 << 50).as_deref(), Some("rd "));
        names.compare(1 | 1 << 24, &[*b"rd", *b"bt"]).unwrap();
        assert_eq!(names.of(1 | 1 << 24), None);
        // A kernel whose bits are others.
        assert!(names.compare(1 | 1 << 13, &[*b"rd", *b"io"]).unwrap_err().contains("0x2001"));
    }
}
