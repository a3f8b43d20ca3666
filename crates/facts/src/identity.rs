//! An ID of a crash that all its dumps share, in any format and at any level.

use pagehaul_elfcore::notes::{self, NT_PRSTATUS};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::line::Line;
use crate::signature::hex;

/// Identifies a crash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrashId {
    /// 32 hex digits.
    pub crash_id: String,
    /// Whether VMCOREINFO has no time of the crash (dumps of a hypervisor, live memory), or no registers could be read. Two such dumps of
    /// one boot differ only by registers, or do not show that they are of one crash.
    pub id_weak: bool,
}

/// Whether VMCOREINFO holds anything but lines of ASCII with a value each, which is all that kernels write
/// (`kernel/vmcore_info.c`): then the ID is not that of other dumps of the crash.
pub(crate) fn is_damaged(all_notes: &[u8]) -> bool {
    let Some((_, text)) = notes::vmcoreinfo(all_notes) else { return false };
    let is_line = |line: &[u8]| {
        let key = line.split(|byte| *byte == b'=').next().unwrap_or_default();
        line.iter().all(|byte| matches!(byte, b' '..=b'~')) && !key.is_empty() && key.len() < line.len()
    };
    !trimmed(text).split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).all(is_line)
}

/// The text without what pads it.
fn trimmed(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| !matches!(byte, 0 | b'\n')).map_or(0, |at| at + 1);
    text.get(..end).unwrap_or(text)
}

/// Makes the ID of the crash that notes and log describe: the first 128 bits of SHA-256 over VMCOREINFO and the registers of all
/// CPUs. Host, size, level, path and memory map are not in it: they differ between dumps of one crash (kdump-compressed files
/// round ranges to pages).
pub fn crash_id(all_notes: &[u8], lines: &[Line<'_>]) -> CrashId {
    let mut hash = Sha256::new();
    let text = notes::vmcoreinfo(all_notes).map_or(&[][..], |(_, text)| text);
    hash.update(trimmed(text));
    let mut has_registers = false;
    for note in notes::iter(all_notes).filter(|note| note.name == b"CORE" && note.kind == NT_PRSTATUS) {
        hash.update(note.desc);
        has_registers = true;
    }
    // Of a crash whose registers cannot be read, another dump may have them, and another ID.
    let id_weak = notes::vmcoreinfo_value(all_notes, "CRASHTIME").is_none() || !has_registers;
    if id_weak {
        // Times of the first lines differ by boot.
        for line in lines.iter().filter(|line| line.nanoseconds > 0).take(64) {
            hash.update(line.nanoseconds.to_le_bytes());
        }
    }
    CrashId { crash_id: hex(&hash.finalize(), 16), id_weak }
}

/// Makes the ID of the crash that records of pstore tell of, which have neither notes nor registers: of all their lines, since two crashes
/// of one boot have the first ones in common. Of their lengths rather than their text, so that no ID helps to guess what was redacted.
pub(crate) fn id_of_records<'a>(lines: impl Iterator<Item = &'a Line<'a>>) -> CrashId {
    let mut hash = Sha256::new();
    for line in lines {
        hash.update(line.nanoseconds.to_le_bytes());
        hash.update((line.text.len() as u64).to_le_bytes());
    }
    CrashId { crash_id: hex(&hash.finalize(), 16), id_weak: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes_of(info: &[u8], registers: u8) -> Vec<u8> {
        let mut all = Vec::new();
        notes::push(&mut all, "CORE", NT_PRSTATUS, &[registers; 336]);
        notes::push(&mut all, "VMCOREINFO", 0, info);
        all
    }

    #[test]
    fn records_without_times_have_ids_of_their_own() {
        let id = |texts: &[&str]| {
            let lines: Vec<Line<'_>> =
                texts.iter().map(|text| Line { nanoseconds: 0, caller: None, text }).collect();
            id_of_records(lines.iter())
        };
        assert_eq!(id(&["one", "two"]), id(&["one", "two"]));
        assert_ne!(id(&["one", "two"]), id(&["one", "other"]));
        assert_ne!(id(&["one", "two"]), id(&["one"]));
        assert!(id(&[]).id_weak);
    }

    #[test]
    fn padding_and_other_notes_do_not_count() {
        let id = |notes: &[u8]| crash_id(notes, &[]);
        let plain = notes_of(b"OSRELEASE=6.1\nCRASHTIME=12\n", 1);
        let mut other = notes_of(b"OSRELEASE=6.1\nCRASHTIME=12\n\0\0\0\0", 1);
        notes::push(&mut other, "QEMU", 0, &[3; 440]);
        assert_eq!(id(&plain), id(&other));
        assert!(!id(&plain).id_weak);
        assert_eq!(id(&plain).crash_id.len(), 32);
        assert_ne!(id(&plain), id(&notes_of(b"OSRELEASE=6.1\nCRASHTIME=13\n", 1)));
        assert_ne!(id(&plain), id(&notes_of(b"OSRELEASE=6.1\nCRASHTIME=12\n", 2)));
    }

    #[test]
    fn what_is_no_line_of_text_is_damage() {
        let damaged = |text: &[u8]| is_damaged(&notes_of(text, 1));
        assert!(!damaged(b"OSRELEASE=6.1.0 x\nSYMBOL(a)=ff=1\n\nOFFSET(b.c)=0\n\0\0"));
        assert!(!is_damaged(&[]) && !damaged(b""));
        let wrong: [&[u8]; 5] = [b"A=1\nB=\xe1\n", b"A=1\nB2\n", b"A=1\n=2\n", b"A=1\0B=2\n", b"A=\x011\n"];
        wrong.iter().for_each(|text| assert!(damaged(text), "{text:?}"));
    }

    #[test]
    fn without_registers_another_dump_may_have_another_id() {
        let mut notes = Vec::new();
        notes::push(&mut notes, "VMCOREINFO", 0, b"OSRELEASE=6.1\nCRASHTIME=12\n");
        assert!(crash_id(&notes, &[]).id_weak);
    }

    #[test]
    fn without_a_time_the_log_tells_boots_apart() {
        let notes = notes_of(b"OSRELEASE=6.1\n", 1);
        let line = |nanoseconds| Line { nanoseconds, caller: None, text: "" };
        let (one, other) = (crash_id(&notes, &[line(1)]), crash_id(&notes, &[line(2)]));
        assert!(one.id_weak);
        assert_ne!(one, other);
    }
}
