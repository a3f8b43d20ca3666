//! The descriptor of a page: bitmaps of any pattern, compared with counting bit by bit. Page n of the dump begins with
//! the word n.

use crate::MemoryFile;
use pagehaul_kdump::KdumpFile;
use pagehaul_machine::PhysAddr;
use pagehaul_physmem::{PAGE_SIZE, PhysMemory, ReadError};

/// Page frames: more than three of the reader's chunks.
const PFNS: usize = 800_000;
/// Most pages in the dump.
const MOST: usize = 20_000;

/// Runs the target.
pub fn run(data: &[u8]) {
    // Runs of excluded pages and of kept pages, by turns.
    let mut kept = vec![false; PFNS];
    let (mut at, mut count) = (0, 0);
    for run in data.chunks_exact(3) {
        at += usize::from(u16::from_le_bytes([run[0], run[1]]));
        for _ in 0..run[2] {
            if at < PFNS && count < MOST {
                kept[at] = true;
                count += 1;
            }
            at += 1;
        }
    }
    let Ok(dump) = KdumpFile::open(Box::new(MemoryFile::new(&file(&kept, count)))) else {
        panic!("it is a dump");
    };
    assert_eq!(dump.info().dumped_pages, count as u64);
    let mut view = dump.view();
    let mut page = [0; PAGE_SIZE];
    let mut rank = 0;
    for (pfn, is_kept) in kept.iter().enumerate() {
        // Of excluded pages, only the neighbours.
        let near = |at: usize| kept.get(at).copied().unwrap_or(false);
        if *is_kept {
            view.copy_page(PhysAddr::of_4k_page(pfn as u64), &mut page).unwrap();
            assert_eq!(u64::from_le_bytes(*page.first_chunk().unwrap()), rank, "PFN {pfn}");
            rank += 1;
        } else if near(pfn.wrapping_sub(1)) || near(pfn + 1) {
            assert!(matches!(
                view.copy_page(PhysAddr::of_4k_page(pfn as u64), &mut page),
                Err(ReadError::NotInDump { .. })
            ));
        }
    }
}

/// A dump of 4 KiB pages, stored raw and overlapping each other, so that it stays small.
fn file(kept: &[bool], count: usize) -> Vec<u8> {
    let blocks = PFNS.div_ceil(8 * PAGE_SIZE);
    let mut out = vec![0; (2 + 2 * blocks) * PAGE_SIZE];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"KDUMP   ");
    put(8, &6u32.to_le_bytes());
    put(12 + 4 * 65, b"x86_64");
    for (at, word) in [(428, PAGE_SIZE), (432, 1), (436, 2 * blocks), (440, PFNS)] {
        put(at, &(word as u32).to_le_bytes());
    }
    put(PAGE_SIZE + 96, &(PFNS as u64).to_le_bytes());
    let (bitmap1, bitmap2) = (2 * PAGE_SIZE, (2 + blocks) * PAGE_SIZE);
    for pfn in 0..PFNS {
        out[bitmap1 + pfn / 8] |= 1 << (pfn % 8);
        out[bitmap2 + pfn / 8] |= u8::from(kept[pfn]) << (pfn % 8);
    }
    let data = out.len() + 24 * count;
    for page in 0..count {
        out.extend(((data + 8 * page) as u64).to_le_bytes());
        out.extend((PAGE_SIZE as u32).to_le_bytes());
        out.extend([0; 12]);
    }
    out.extend((0..count as u64).flat_map(u64::to_le_bytes));
    out.resize(out.len() + PAGE_SIZE, 0);
    out
}
