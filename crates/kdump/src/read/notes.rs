//! Sections of variable size: ELF notes, VMCOREINFO, the record of erased data.

use pagehaul_physmem::OpenError;
use pagehaul_physmem::file::ReadAt;

use super::parse::{Parsed, format_error, read_part};
use crate::format::MAX_NOTES;

/// Bytes of VMCOREINFO at most; more are damage. It is one page in kernels before 4.17, and grows slowly.
const MAX_VMCOREINFO: u64 = 1 << 20;
/// The record of erased data has a line per symbol or field.
const MAX_ERASEINFO: u64 = 64 << 20;

/// Returns the ELF notes of a dump, and what is wrong with them: pages can be read without notes. Version 3 has VMCOREINFO
/// but no notes, and some writers keep it outside the notes: it then becomes the first note.
pub(super) fn load(file: &dyn ReadAt, parsed: &Parsed) -> (Vec<u8>, Vec<String>) {
    let mut faults = Vec::new();
    let mut attempt =
        |place: Option<(u64, u64)>, most, what| match place.map(|place| read(file, place, most, what)) {
            None => Vec::new(),
            Some(Ok(bytes)) => bytes,
            Some(Err(error)) => {
                faults.push(error.to_string());
                Vec::new()
            }
        };
    let mut notes = attempt(parsed.notes, MAX_NOTES, "the ELF notes");
    if parsed.byte_layout.big_endian {
        pagehaul_elfcore::notes::swap_headers(&mut notes);
    }
    if pagehaul_elfcore::notes::vmcoreinfo(&notes).is_some() {
        return (notes, faults);
    }
    let text = attempt(parsed.vmcoreinfo, MAX_VMCOREINFO, "VMCOREINFO");
    if text.is_empty() {
        return (notes, faults);
    }
    let mut with_text = Vec::with_capacity(text.len() + notes.len() + 32);
    pagehaul_elfcore::notes::push(&mut with_text, "VMCOREINFO", 0, &text);
    with_text.extend_from_slice(&notes);
    (with_text, faults)
}

pub(super) fn eraseinfo(file: &dyn ReadAt, place: Option<(u64, u64)>) -> Result<Vec<u8>, OpenError> {
    place.map_or(Ok(Vec::new()), |place| read(file, place, MAX_ERASEINFO, "the record of erased data"))
}

fn read(file: &dyn ReadAt, (offset, size): (u64, u64), most: u64, what: &str) -> Result<Vec<u8>, OpenError> {
    if size > most {
        return Err(format_error(
            file,
            offset,
            format!("{what} should have {size} bytes, but the limit is {most}: the sub header is damaged"),
        ));
    }
    // Checked before memory is allocated.
    if offset.checked_add(size).is_none_or(|end| end > file.size()) {
        return Err(format_error(
            file,
            offset,
            format!("{what} should have {size} bytes here, but the file ends at {:#x}", file.size()),
        ));
    }
    let mut bytes = vec![0; size as usize];
    read_part(file, offset, &mut bytes, what)?;
    Ok(bytes)
}
