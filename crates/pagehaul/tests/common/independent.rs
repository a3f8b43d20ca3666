//! Readers of dumps that share no code with pagehaul, as short as the formats allow: uncompressed kdump files and flattened
//! streams of them, and ELF files. They return the pages that a dump claims to hold.

use std::collections::BTreeMap;

const PAGE: usize = 4096;

/// PFN and contents.
pub type Pages = BTreeMap<u64, Vec<u8>>;

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn u32_at(bytes: &[u8], at: usize) -> Option<usize> {
    Some(u32::from_le_bytes(number(bytes, at)?) as usize)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(number(bytes, at)?)).ok()
}

/// Returns the pages of a dump; none if it is no dump.
pub fn pages(bytes: &[u8]) -> Pages {
    let found = match bytes {
        [b'K', b'D', b'U', b'M', b'P', ..] => kdump(bytes),
        [b'm', b'a', b'k', b'e', b'd', b'u', b'm', b'p', b'f', b'i', b'l', b'e', ..] => {
            kdump(&unflattened(bytes))
        }
        [0x7f, b'E', b'L', b'F', ..] => elf(bytes),
        _ => None,
    };
    found.unwrap_or_default()
}

/// A page has a bit in bitmap 2, and a descriptor, which is not zero if the page was written.
fn kdump(bytes: &[u8]) -> Option<Pages> {
    let [sub_blocks, bitmap_blocks] = [432, 436].map(|at| u32_at(bytes, at));
    let max_mapnr = u64_at(bytes, PAGE + 96)?;
    let bitmaps = (1 + sub_blocks?) * PAGE;
    let bitmap2 = bitmaps + bitmap_blocks? / 2 * PAGE;
    let mut descriptor = bitmaps + bitmap_blocks? * PAGE;
    // Of a part of a split set, the table has the part's pages only.
    let part = if u32_at(bytes, PAGE + 12)? == 0 {
        0..max_mapnr
    } else {
        u64_at(bytes, PAGE + 80)?..u64_at(bytes, PAGE + 88)?
    };
    let mut pages = Pages::new();
    for pfn in part {
        if bytes.get(bitmap2 + pfn / 8)? >> (pfn % 8) & 1 == 0 {
            continue;
        }
        // A table that ends early names no more pages.
        let (Some(at), Some(size), Some(flags)) =
            (u64_at(bytes, descriptor), u32_at(bytes, descriptor + 8), u32_at(bytes, descriptor + 12))
        else {
            break;
        };
        descriptor += 24;
        // Half a descriptor: crash and libkdumpfile refuse its size.
        if at > 0 && size != u32::MAX as usize {
            assert_eq!((size, flags), (PAGE, 0), "PFN {pfn:#x}: not an uncompressed page");
            let page = bytes.get(at..at + PAGE);
            let page = page.unwrap_or_else(|| panic!("PFN {pfn:#x}: its descriptor points past the end"));
            pages.insert(pfn as u64, page.to_vec());
        }
    }
    Some(pages)
}

/// The file that a flattened stream describes, of the records that are whole.
fn unflattened(stream: &[u8]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut at = PAGE;
    while let (Some(offset), Some(size)) = (number(stream, at), number(stream, at + 8)) {
        let (offset, size) = (i64::from_be_bytes(offset), i64::from_be_bytes(size));
        let (Ok(offset), Ok(size)) = (usize::try_from(offset), usize::try_from(size)) else { break };
        let Some(bytes) = stream.get(at + 16..at + 16 + size).filter(|bytes| !bytes.is_empty()) else {
            break;
        };
        file.resize(file.len().max(offset + size), 0);
        file[offset..offset + size].copy_from_slice(bytes);
        at += 16 + size;
    }
    file
}

/// A page is in a PT_LOAD, within its file size, and within the file.
fn elf(bytes: &[u8]) -> Option<Pages> {
    let table = u64_at(bytes, 32)?;
    let count = u16::from_le_bytes(number(bytes, 56)?);
    let mut pages = Pages::new();
    for header in (0..usize::from(count)).map(|index| table + index * 56) {
        let (kind, offset) = (u32_at(bytes, header)?, u64_at(bytes, header + 8)?);
        let (paddr, size) = (u64_at(bytes, header + 24)?, u64_at(bytes, header + 32)?);
        if kind != 1 {
            continue;
        }
        // Pages that the segment holds in part are left to others.
        let first = paddr.next_multiple_of(PAGE);
        for start in (first..(paddr + size).saturating_sub(PAGE - 1)).step_by(PAGE) {
            let at = offset + (start - paddr);
            if let Some(page) = bytes.get(at..at + PAGE) {
                pages.insert((start / PAGE) as u64, page.to_vec());
            }
        }
    }
    Some(pages)
}
