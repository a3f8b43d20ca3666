//! How many pages of each class a vmcore holds: `cargo run -p pagehaul-kernel --example classes -- VMCORE…`.

use std::error::Error;
use std::path::Path;

use pagehaul_kernel::{Kernel, PageClass, PageScanner};
use pagehaul_physmem::file::PlainFile;
use pagehaul_physmem::{MapPolicy, PhysMemory, bits};
use pagehaul_vmcore::ElfVmcore;

fn main() -> Result<(), Box<dyn Error>> {
    for path in std::env::args().skip(1) {
        show(Path::new(&path))?;
    }
    Ok(())
}

fn show(path: &Path) -> Result<(), Box<dyn Error>> {
    let memory = ElfVmcore::open(PlainFile::open(path)?, MapPolicy::default())?;
    let kernel = Kernel::discover(&memory)?;
    println!(
        "{}: {}, {} levels",
        path.display(),
        kernel.space().release(),
        kernel.space().translator().levels()
    );
    for gap in kernel.undecidable() {
        println!("  without {}: {}", gap.missing, gap.consequence);
    }
    let mut scanner = PageScanner::new(&kernel, memory.view());
    let mut classes = vec![PageClass::Absent; kernel.pages_per_block()];
    let mut there = vec![0; classes.len() / 64];
    let mut pages = [0u64; PageClass::COUNT];
    for block in 0..kernel.blocks(memory.ranges().end_pfn(kernel.page_size())) {
        if let Some(inconsistency) = scanner.scan(block, &mut classes)?.inconsistency {
            println!("  page {:#x}: {}", inconsistency.pfn, inconsistency.what);
        }
        let first = kernel.block_pfns(block).start;
        memory.mark_stored_pages(kernel.page_size(), first, &mut there, &mut Vec::new())?;
        for page in bits::ones(&there) {
            pages[classes[page] as usize] += 1;
        }
    }
    for class in PageClass::ALL {
        println!("  {:14} {:9}", class.name(), pages[class as usize]);
    }
    Ok(())
}
