//! ELF notes: what a crashed kernel says of itself (registers per CPU, VMCOREINFO) in its PT_NOTE.

/// One note. Names and types as in `include/uapi/linux/elf.h` and `kernel/crash_core.c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note<'a> {
    /// Owner, without its closing zero: "CORE", "VMCOREINFO", "QEMU" …
    pub name: &'a [u8],
    /// Type, numbered by the owner.
    pub kind: u32,
    /// Contents.
    pub desc: &'a [u8],
    /// Where `desc` starts in the bytes given to [`iter`].
    pub offset: usize,
}

/// NT_PRSTATUS: registers of one CPU (`include/uapi/linux/elf.h`).
pub const NT_PRSTATUS: u32 = 1;

/// The notes in `bytes`, up to the first that is empty or does not fit. Notes are little-endian and padded to 4 bytes,
/// on ELF64 too (the kernel's and QEMU's writers agree on that).
pub fn iter(bytes: &[u8]) -> impl Iterator<Item = Note<'_>> {
    let mut at = 0usize;
    std::iter::from_fn(move || {
        let word = |index: usize| {
            let from = at.checked_add(index * 4)?;
            Some(u32::from_le_bytes(bytes.get(from..from.checked_add(4)?)?.try_into().ok()?))
        };
        let (name_size, desc_size, kind) = (word(0)? as usize, word(1)? as usize, word(2)?);
        if name_size == 0 && desc_size == 0 {
            return None;
        }
        let name_at = at + 12;
        let desc_at = name_at.checked_add(name_size.checked_next_multiple_of(4)?)?;
        let name = bytes.get(name_at..name_at.checked_add(name_size)?)?;
        let desc = bytes.get(desc_at..desc_at.checked_add(desc_size)?)?;
        at = desc_at + desc_size.checked_next_multiple_of(4)?;
        let name = name.strip_suffix(b"\0").unwrap_or(name);
        Some(Note { name, kind, desc, offset: desc_at })
    })
}

/// Turns the three words before each note of a big-endian machine into little-endian ones, as [`iter`] wants them. What
/// notes say stays as it is.
pub fn normalise(bytes: &mut [u8]) {
    let mut at = 0usize;
    while let Some(words) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<12>()) {
        words.as_chunks_mut::<4>().0.iter_mut().for_each(|word| word.reverse());
        let size = |from: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| words[from + byte])) as usize;
        let (name, desc) = (size(0), size(4));
        let padded = |size: usize| size.checked_next_multiple_of(4);
        let next = (|| (at + 12).checked_add(padded(name)?)?.checked_add(padded(desc)?))();
        match next {
            Some(next) if name != 0 || desc != 0 => at = next,
            _ => return,
        }
    }
}

/// The VMCOREINFO text and where it starts in `notes` (`kernel/vmcore_info.c`: note name "VMCOREINFO", type 0).
pub fn vmcoreinfo(notes: &[u8]) -> Option<(usize, &[u8])> {
    iter(notes).find(|note| note.name == b"VMCOREINFO" && note.kind == 0).map(|note| (note.offset, note.desc))
}

/// How many CPUs left their registers.
pub fn cpu_count(notes: &[u8]) -> u32 {
    iter(notes).filter(|note| note.name == b"CORE" && note.kind == NT_PRSTATUS).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], kind: u32, desc: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for word in [name.len() as u32, desc.len() as u32, kind] {
            out.extend(word.to_le_bytes());
        }
        for part in [name, desc] {
            out.extend(part);
            out.resize(out.len().next_multiple_of(4), 0);
        }
        out
    }

    #[test]
    fn finds_vmcoreinfo_among_others() {
        let mut bytes = note(b"CORE\0", NT_PRSTATUS, &[7; 336]);
        bytes.extend(note(b"VMCOREINFO\0", 0, b"OSRELEASE=6.12.1\n"));
        bytes.extend([0; 16]);
        let (offset, text) = vmcoreinfo(&bytes).unwrap();
        assert_eq!(text, b"OSRELEASE=6.12.1\n");
        assert_eq!(&bytes[offset..offset + text.len()], text);
        assert_eq!(cpu_count(&bytes), 1);
    }

    #[test]
    fn notes_of_a_big_endian_machine_are_found_once_normalised() {
        let mut little = note(b"CORE\0", NT_PRSTATUS, &[7; 5]);
        little.extend(note(b"VMCOREINFO\0", 0, b"A=1\n"));
        let mut big = little.clone();
        let second = 12 + 8 + 8;
        for at in [0, 4, 8, second, second + 4, second + 8] {
            big[at..at + 4].reverse();
        }
        normalise(&mut big);
        assert_eq!(big, little);
        normalise(&mut [0xff; 30]);
    }

    #[test]
    fn sizes_past_the_end_stop_the_walk() {
        let mut bytes = note(b"CORE\0", 1, &[0; 8]);
        bytes.extend([0xff; 12]);
        assert_eq!(iter(&bytes).count(), 1);
        assert_eq!(iter(&[0xff; 11]).count(), 0);
    }
}
