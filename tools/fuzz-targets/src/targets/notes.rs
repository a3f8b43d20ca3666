//! ELF notes.

use pagehaul_elfcore::notes;

/// Runs the target.
pub fn run(data: &[u8]) {
    let mut end = 0;
    for note in notes::iter(data) {
        assert_eq!(data[note.offset..][..note.desc.len()], *note.desc);
        assert!(note.offset >= end);
        end = note.offset + note.desc.len();
    }
    if let Some((offset, text)) = notes::vmcoreinfo(data) {
        assert_eq!(data[offset..][..text.len()], *text);
    }
    notes::cpu_count(data);
}
