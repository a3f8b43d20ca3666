//! The structs at the start of an ELF64 core, little-endian (`include/uapi/linux/elf.h`).

/// Bytes of the file header.
pub(crate) const FILE_HEADER: usize = 64;
/// Bytes of a program header.
pub(crate) const PROGRAM_HEADER: usize = 56;
/// Bytes of a section header.
const SECTION_HEADER: usize = 64;
/// Offset of `e_flags` in the file header.
const FLAGS: usize = 48;

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const ET_CORE: u16 = 4;
const EM_X86_64: u16 = 62;
/// Count of program headers that stands for "see the first section header".
const PN_XNUM: usize = 0xffff;
/// `e_flags` bit of a file that is not whole; the same as in dumps of kernels. Nothing else uses the field on x86_64.
pub(crate) const INCOMPLETE: u32 = 1;

/// A PT_LOAD.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) offset: u64,
    pub(crate) address: u64,
    /// Bytes in the file; the rest of the mapping was left out.
    pub(crate) stored: u64,
    pub(crate) size: u64,
    /// PF_X 1, PF_W 2, PF_R 4.
    pub(crate) flags: u32,
}

/// Offset of the notes behind the headers of `loads` PT_LOADs.
pub(crate) fn notes_offset(loads: usize) -> u64 {
    let section = if loads + 1 >= PN_XNUM { SECTION_HEADER } else { 0 };
    (FILE_HEADER + (loads + 1) * PROGRAM_HEADER + section) as u64
}

/// All headers: file, one PT_NOTE of `notes` bytes, PT_LOADs, and the section header that many of them need.
pub(crate) fn headers(loads: &[Load], notes: u64, incomplete: bool) -> Vec<u8> {
    let count = loads.len() + 1;
    let many = count >= PN_XNUM;
    let mut out = Vec::with_capacity(notes_offset(loads.len()) as usize);
    // 64-bit, little-endian, version 1, System V.
    out.extend([0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    out.extend(ET_CORE.to_le_bytes());
    out.extend(EM_X86_64.to_le_bytes());
    out.extend(1u32.to_le_bytes());
    out.extend(0u64.to_le_bytes());
    out.extend((FILE_HEADER as u64).to_le_bytes());
    out.extend(if many { (FILE_HEADER + count * PROGRAM_HEADER) as u64 } else { 0 }.to_le_bytes());
    out.extend(if incomplete { INCOMPLETE } else { 0 }.to_le_bytes());
    let section = if many { SECTION_HEADER as u16 } else { 0 };
    for half in
        [FILE_HEADER as u16, PROGRAM_HEADER as u16, count.min(PN_XNUM) as u16, section, u16::from(many), 0]
    {
        out.extend(half.to_le_bytes());
    }
    program_header(&mut out, PT_NOTE, 0, [notes_offset(loads.len()), 0, 0, notes, 0, 4]);
    for load in loads {
        let words = [load.offset, load.address, 0, load.stored, load.size, crate::PAGE];
        program_header(&mut out, PT_LOAD, load.flags, words);
    }
    if many {
        let at = out.len();
        out.resize(at + SECTION_HEADER, 0);
        out[at + 44..at + 48].copy_from_slice(&(count as u32).to_le_bytes());
    }
    out
}

/// Sets or takes away the mark of an incomplete file in its first bytes.
pub(crate) fn mark(header: &mut [u8], incomplete: bool) {
    if let Some(flags) = header.get_mut(FLAGS..FLAGS + 4) {
        flags.copy_from_slice(&if incomplete { INCOMPLETE } else { 0 }.to_le_bytes());
    }
}

/// Offset, virtual and physical address, bytes in the file and in memory, alignment.
fn program_header(out: &mut Vec<u8>, kind: u32, flags: u32, words: [u64; 6]) {
    out.extend(kind.to_le_bytes());
    out.extend(flags.to_le_bytes());
    for word in words {
        out.extend(word.to_le_bytes());
    }
}

/// What the headers of a core say, as far as `pagehaul info` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Headers {
    pub(crate) incomplete: bool,
    /// Offset and size of the notes.
    pub(crate) notes: (u64, u64),
    pub(crate) loads: Vec<Load>,
}

/// Most program headers that are read: a kernel has at most 65,530 mappings per process by default
/// (`vm.max_map_count`), but it can be raised.
const MOST_HEADERS: usize = 4 << 20;

/// Whether these first bytes of a file are those of a core of an x86_64 process (or vmcore).
pub(crate) fn is_core(start: &[u8]) -> bool {
    start.get(..6) == Some(&[0x7f, b'E', b'L', b'F', 2, 1])
        && half(start, 16) == Some(ET_CORE)
        && half(start, 18) == Some(EM_X86_64)
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// Reads the headers of a core through `read`, which gives the bytes of a range of the file.
pub(crate) fn parse<E>(
    mut read: impl FnMut(u64, usize) -> Result<Vec<u8>, E>,
) -> Result<Result<Headers, &'static str>, E> {
    let start = read(0, FILE_HEADER)?;
    let fields = || Some((long(&start, 32)?, long(&start, 40)?, word(&start, FLAGS)?, half(&start, 56)?));
    let Some((table, sections, flags, count)) = fields().filter(|_| is_core(&start)) else {
        return Ok(Err("it does not start as a core of an x86_64 process does"));
    };
    let mut count = usize::from(count);
    if count == PN_XNUM {
        let section = read(sections, SECTION_HEADER)?;
        count = word(&section, 44).unwrap_or(0) as usize;
    }
    if count > MOST_HEADERS {
        return Ok(Err("its header speaks of more program headers than any process has"));
    }
    let mut headers = Headers { incomplete: flags & INCOMPLETE != 0, notes: (0, 0), loads: Vec::new() };
    // In pieces: what a damaged header promises may not be there, and is not allocated for.
    let piece = 4096;
    for first in (0..count).step_by(piece) {
        let wanted = piece.min(count - first);
        let Some(at) = table.checked_add((first * PROGRAM_HEADER) as u64) else {
            return Ok(Err("its program headers are beyond any file"));
        };
        let bytes = read(at, wanted * PROGRAM_HEADER)?;
        for entry in bytes.chunks_exact(PROGRAM_HEADER) {
            let number = |at| long(entry, at).unwrap_or(0);
            match word(entry, 0) {
                Some(PT_NOTE) => headers.notes = (number(8), number(32)),
                Some(PT_LOAD) => headers.loads.push(Load {
                    offset: number(8),
                    address: number(16),
                    stored: number(32),
                    size: number(40),
                    flags: word(entry, 4).unwrap_or(0),
                }),
                _ => {}
            }
        }
        if bytes.len() < wanted * PROGRAM_HEADER {
            return Ok(Err("it ends within its program headers"));
        }
    }
    Ok(Ok(headers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reread(bytes: &[u8]) -> Result<Headers, &'static str> {
        parse(|at, len| {
            let start = (at as usize).min(bytes.len());
            Ok::<_, ()>(bytes[start..start.saturating_add(len).min(bytes.len())].to_vec())
        })
        .unwrap()
    }

    #[test]
    fn headers_are_read_as_they_were_written() {
        for count in [0, 1, 3, 0xfffd, 0xfffe, 0xffff, 70_000] {
            let load =
                |n: u64| Load { offset: n << 12, address: n << 13, stored: 4096, size: 8192, flags: 5 };
            let loads: Vec<Load> = (0..count as u64).map(load).collect();
            let bytes = headers(&loads, 1000, true);
            assert_eq!(bytes.len() as u64, notes_offset(count));
            let expected = Headers { incomplete: true, notes: (notes_offset(count), 1000), loads };
            assert!(reread(&bytes) == Ok(expected), "{count} PT_LOADs");
        }
    }

    #[test]
    fn headers_that_lie_are_refused() {
        assert!(reread(b"not ELF").is_err());
        let bytes = headers(&[Load::default(); 3], 0, false);
        assert!(reread(&bytes[..100]).is_err());
        let mut many = headers(&vec![Load::default(); 0xffff], 0, false);
        let at = many.len() - SECTION_HEADER + 44;
        many[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(reread(&many).is_err());
        let mut far = headers(&[Load::default(); 3], 0, false);
        far[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(reread(&far).is_err());
    }
}
