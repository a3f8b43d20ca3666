//! ELF notes: registers per CPU or thread, VMCOREINFO, and what else the PT_NOTE of a core holds.

use object::elf;

/// `struct elf_prstatus`: registers of a CPU or thread.
pub const NT_PRSTATUS: u32 = elf::NT_PRSTATUS.0;
/// Floating-point registers.
pub const NT_PRFPREG: u32 = elf::NT_PRFPREG.0;
/// `struct elf_prpsinfo`: a process's name, state and IDs.
pub const NT_PRPSINFO: u32 = elf::NT_PRPSINFO.0;
/// The auxiliary vector of a process.
pub const NT_AUXV: u32 = elf::NT_AUXV.0;
/// The files that a process maps.
pub const NT_FILE: u32 = elf::NT_FILE.0;
/// `siginfo_t` of a thread.
pub const NT_SIGINFO: u32 = elf::NT_SIGINFO.0;
/// All that XSAVE saves: SSE, AVX, AVX-512, AMX, PKRU.
pub const NT_X86_XSTATE: u32 = elf::NT_X86_XSTATE.0;
/// The shadow stack pointer; a register set since Linux 6.6.
pub const NT_X86_SHSTK: u32 = 0x204;
/// Thread pointers of an arm64 thread.
pub const NT_ARM_TLS: u32 = elf::NT_ARM_TLS.0;
/// Hardware breakpoints of an arm64 thread.
pub const NT_ARM_HW_BREAK: u32 = elf::NT_ARM_HW_BREAK.0;
/// Hardware watchpoints of an arm64 thread.
pub const NT_ARM_HW_WATCH: u32 = elf::NT_ARM_HW_WATCH.0;
/// The number of the system call that an arm64 thread is inside, or -1.
pub const NT_ARM_SYSTEM_CALL: u32 = elf::NT_ARM_SYSTEM_CALL.0;
/// Vector registers of the Scalable Vector Extension.
pub const NT_ARM_SVE: u32 = elf::NT_ARM_SVE.0;
/// Which bits of an arm64 thread's pointers are a signature.
pub const NT_ARM_PAC_MASK: u32 = 0x406;
/// Keys that sign an arm64 thread's pointers.
pub const NT_ARM_PACA_KEYS: u32 = 0x407;
/// The key that signs an arm64 thread's data.
pub const NT_ARM_PACG_KEYS: u32 = 0x408;
/// How the kernel treats tagged addresses of an arm64 thread.
pub const NT_ARM_TAGGED_ADDR_CTRL: u32 = 0x409;
/// Which keys of an arm64 thread are enabled.
pub const NT_ARM_PAC_ENABLED_KEYS: u32 = 0x40a;
/// Vector registers in the streaming mode of the Scalable Matrix Extension.
pub const NT_ARM_SSVE: u32 = 0x40b;
/// The matrix ZA of the Scalable Matrix Extension.
pub const NT_ARM_ZA: u32 = 0x40c;
/// The register ZT0 of the Scalable Matrix Extension 2.
pub const NT_ARM_ZT: u32 = 0x40d;
/// The floating-point mode register of an arm64 thread.
pub const NT_ARM_FPMR: u32 = 0x40e;
/// Permission overlays of an arm64 thread.
pub const NT_ARM_POE: u32 = 0x40f;
/// The guarded control stack of an arm64 thread.
pub const NT_ARM_GCS: u32 = 0x410;

/// One note. Names and types are those of `include/uapi/linux/elf.h` and `kernel/crash_core.c`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Note<'a> {
    /// Name of the owner, without its terminating zero: "CORE", "VMCOREINFO", "QEMU" …
    pub name: &'a [u8],
    /// Type, numbered by the owner.
    pub kind: u32,
    /// Contents.
    pub desc: &'a [u8],
    /// Offset of `desc` in the bytes passed to [`iter`].
    pub offset: usize,
}

/// Name of the note that records what was erased, as makedumpfile has it in ELF dumps; its type is 0.
pub const ERASED: &str = "ERASEINFO";
/// The name of the host, as it is recorded if it was erased.
pub const HOST: &str = "uts_namespace.name.nodename";
/// The names of user tasks, as they are recorded if they were erased.
pub const TASK_NAMES: &str = "task_struct.comm";
/// Name of the note in which pagehaul records which owners' pages a dump holds, as lines of text; its type is 0.
pub const OWNERS: &str = "PAGEHAUL-OWNERS";

/// Returns notes with lines of text in a note of this name and type, which continue those that are there. The note is the last.
pub fn with_lines(of_source: &[u8], name: &str, kind: u32, lines: &[String]) -> Vec<u8> {
    let mut out = Vec::with_capacity(of_source.len() + 256);
    let mut text = lines_of(of_source, name).unwrap_or_default();
    for note in iter(of_source).filter(|note| note.name != name.as_bytes()) {
        push(&mut out, &String::from_utf8_lossy(note.name), note.kind, note.desc);
    }
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    push(&mut out, name, kind, text.as_bytes());
    out
}

/// Returns whether the notes record that `what` was erased.
pub fn has_erased(notes: &[u8], what: &str) -> bool {
    let is_it = |line: &str| {
        line.strip_prefix("erase ")
            .and_then(|line| line.strip_prefix(what))
            .is_some_and(|rest| rest.starts_with(' '))
    };
    lines_of(notes, ERASED).is_some_and(|record| record.lines().any(is_it))
}

/// Returns the lines of text in the notes of this name, if there are any.
pub fn lines_of(notes: &[u8], name: &str) -> Option<String> {
    let mut text = String::new();
    for note in iter(notes).filter(|note| note.name == name.as_bytes()) {
        text.push_str(String::from_utf8_lossy(note.desc).trim_end_matches('\0'));
    }
    Some(text).filter(|text| !text.is_empty())
}

/// Returns the notes in `bytes`, up to the first that is empty or does not fit. Notes are little-endian and padded to 4
/// bytes, in 64-bit cores too (the kernel's and QEMU's writers agree on that).
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

/// Appends one note; name and contents are padded to 4 bytes. `owner` has no terminating zero.
pub fn push(out: &mut Vec<u8>, owner: &str, kind: u32, desc: &[u8]) {
    for word in [owner.len() as u32 + 1, desc.len() as u32, kind] {
        out.extend(word.to_le_bytes());
    }
    out.extend(owner.as_bytes());
    out.push(0);
    out.resize(out.len().next_multiple_of(4), 0);
    out.extend(desc);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Swaps the three words before each note of a big-endian core to little-endian, as [`iter`] expects them. Contents stay
/// as they are.
pub fn swap_headers(bytes: &mut [u8]) {
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

/// Returns the VMCOREINFO text and its offset in `notes` (`kernel/vmcore_info.c`: note name "VMCOREINFO", type 0).
pub fn vmcoreinfo(notes: &[u8]) -> Option<(usize, &[u8])> {
    iter(notes).find(|note| note.name == b"VMCOREINFO" && note.kind == 0).map(|note| (note.offset, note.desc))
}

/// Returns the note that every core of a process has, and no vmcore: `NT_PRPSINFO`. /proc/kcore has one, of "vmlinux" with PID 0
/// (`fs/proc/kcore.c`), and VMCOREINFO as vmcores have (23c85094fe18, 4.19).
pub fn process(notes: &[u8]) -> Option<Note<'_>> {
    let note = iter(notes).find(|note| note.name == b"CORE" && note.kind == NT_PRPSINFO)?;
    let is_kernel = note.desc.get(24..28) == Some(&[0; 4]) && note.desc.get(40..48) == Some(b"vmlinux\0");
    let is_vmcore = iter(notes).any(|note| note.name == b"VMCOREINFO");
    (!is_kernel && !is_vmcore).then_some(note)
}

/// Returns the value of a line `key=value` of VMCOREINFO.
pub fn vmcoreinfo_value<'a>(notes: &'a [u8], key: &str) -> Option<&'a str> {
    let (_, text) = vmcoreinfo(notes)?;
    let mut lines = text.split(|&byte| byte == b'\n' || byte == 0);
    let value = lines.find_map(|line| line.strip_prefix(key.as_bytes())?.strip_prefix(b"="))?;
    std::str::from_utf8(value).ok()
}

/// Returns the number of CPUs or threads whose registers are in `notes`.
pub fn cpu_count(notes: &[u8]) -> u32 {
    iter(notes).filter(|note| note.name == b"CORE" && note.kind == NT_PRSTATUS).count() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(owner: &str, kind: u32, desc: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        push(&mut out, owner, kind, desc);
        out
    }

    #[test]
    fn finds_vmcoreinfo_among_others() {
        let mut bytes = note("CORE", NT_PRSTATUS, &[7; 336]);
        bytes.extend(note("VMCOREINFO", 0, b"OSRELEASE=6.12.1\n"));
        assert_eq!(vmcoreinfo_value(&bytes, "OSRELEASE"), Some("6.12.1"));
        assert_eq!(vmcoreinfo_value(&bytes, "OSREL"), None);
        bytes.extend([0; 16]);
        let (offset, text) = vmcoreinfo(&bytes).unwrap();
        assert_eq!(text, b"OSRELEASE=6.12.1\n");
        assert_eq!(&bytes[offset..offset + text.len()], text);
        assert_eq!(cpu_count(&bytes), 1);
    }

    #[test]
    fn notes_of_a_big_endian_machine_are_found_once_swapped() {
        let mut little = note("CORE", NT_PRSTATUS, &[7; 5]);
        little.extend(note("VMCOREINFO", 0, b"A=1\n"));
        assert_eq!(little[..20], *b"\x05\0\0\0\x05\0\0\0\x01\0\0\0CORE\0\0\0\0");
        let mut big = little.clone();
        let second = 12 + 8 + 8;
        for at in [0, 4, 8, second, second + 4, second + 8] {
            big[at..at + 4].reverse();
        }
        swap_headers(&mut big);
        assert_eq!(big, little);
        swap_headers(&mut [0xff; 30]);
    }

    #[test]
    fn sizes_past_the_end_stop_the_walk() {
        let mut bytes = note("CORE", 1, &[0; 8]);
        bytes.extend([0xff; 12]);
        assert_eq!(iter(&bytes).count(), 1);
        assert_eq!(iter(&[0xff; 11]).count(), 0);
    }
}
