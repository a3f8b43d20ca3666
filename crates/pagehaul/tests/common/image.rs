//! Images of a synthetic machine's memory, as hypervisors and LiME write them.

use std::fs;
use std::path::Path;

use pagehaul_synth::Image;

/// The page that VMCOREINFO is in, as the kernel's note.
const NOTE: u64 = 0x3000;

/// Writes the memory of `image` with its VMCOREINFO, but without its notes: raw from address 0 on, and as LiME does.
pub fn write(image: &Image, raw: &Path, lime: &Path) {
    let end = image.ram().last().unwrap().1.next_multiple_of(4096);
    let mut memory = vec![0; end as usize];
    for &(start, end) in image.ram() {
        image.read(start, &mut memory[start as usize..end as usize]);
    }
    let mut note = [11, image.vmcoreinfo().len() as u32, 0].map(u32::to_le_bytes).concat();
    note.extend(b"VMCOREINFO\0\0");
    note.extend(image.vmcoreinfo().as_bytes());
    let at = NOTE as usize * 4096;
    memory[at..at + note.len()].copy_from_slice(&note);
    let mut ranges = Vec::new();
    for &(start, end) in image.ram() {
        ranges.extend([0x4c69_4d45_u32, 1].map(u32::to_le_bytes).concat());
        ranges.extend([start, end - 1, 0].map(u64::to_le_bytes).concat());
        ranges.extend(&memory[start as usize..end as usize]);
    }
    fs::write(raw, memory).unwrap();
    fs::write(lime, ranges).unwrap();
}
