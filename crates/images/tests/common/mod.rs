//! Synthetic images of memory.
#![allow(dead_code)] // each test file uses its own part

use std::fs;
use std::path::Path;

use pagehaul_synth::{Era, Image, Machine};

pub const PAGE: usize = 4096;
/// Where the capture kernel of [`capture_kernel`] is loaded.
const CAPTURE_LOAD: u64 = 0x500_0000;

/// The memory of a machine, address 0 first.
#[derive(Clone)]
pub struct Memory(pub Vec<u8>);

impl Memory {
    /// The memory of `image`, with nothing between its ranges.
    pub fn of(image: &Image) -> Self {
        let end = image.ram().last().unwrap().1;
        let mut bytes = vec![0; end.next_multiple_of(PAGE as u64) as usize];
        for &(start, end) in image.ram() {
            image.read(start, &mut bytes[start as usize..end as usize]);
        }
        Self(bytes)
    }

    /// Writes bytes at a physical address.
    pub fn put(&mut self, paddr: usize, bytes: &[u8]) -> &mut Self {
        self.0[paddr..paddr + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// Writes a text as the kernel keeps it in a page.
    pub fn text(&mut self, page: usize, text: &str) -> &mut Self {
        self.put(page * PAGE, text.as_bytes())
    }

    /// Writes the note that the kernel keeps in a page.
    pub fn note(&mut self, page: usize, text: &str) -> &mut Self {
        let mut note = Vec::new();
        for word in [11, text.len() as u32, 0] {
            note.extend(word.to_le_bytes());
        }
        note.extend(b"VMCOREINFO\0\0");
        note.extend(text.as_bytes());
        self.put(page * PAGE, &note)
    }

    /// Writes the memory that the kernel of `image` has to itself.
    pub fn kernel(&mut self, image: &Image) -> &mut Self {
        for pfn in image.kernel_pfns() {
            self.put(pfn as usize * PAGE, &image.page(pfn));
        }
        self
    }

    /// Writes a file with the ranges of `image`, each behind a header of LiME.
    pub fn write_lime(&self, image: &Image, path: &Path) {
        let mut file = Vec::new();
        for &(start, end) in image.ram() {
            file.extend(0x4c69_4d45_u32.to_le_bytes());
            file.extend(1_u32.to_le_bytes());
            file.extend(start.to_le_bytes());
            file.extend((end - 1).to_le_bytes());
            file.extend([0; 8]);
            file.extend(&self.0[start as usize..end as usize]);
        }
        fs::write(path, file).unwrap();
    }
}

/// VMCOREINFO before the crash.
pub fn before_crash(image: &Image) -> String {
    let lines = image.vmcoreinfo().lines().filter(|line| !line.starts_with("CRASHTIME="));
    lines.map(|line| format!("{line}\n")).collect()
}

/// A machine whose kernel is the capture kernel of another, with its own release.
pub fn capture_kernel() -> Image {
    Machine::new(Era::V6_6).kaslr(0x1a00_0000).load_at(CAPTURE_LOAD).without_info("CRASHTIME").build()
}
