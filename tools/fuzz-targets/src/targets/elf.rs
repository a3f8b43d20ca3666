//! ELF headers, program headers and segments.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;

use pagehaul_elfcore::notes;
use pagehaul_machine::PhysAddr;
use pagehaul_physmem::file::PlainFile;
use pagehaul_physmem::{Access, MapPolicy, PAGE_SIZE, PhysMemory};
use pagehaul_vmcore::ElfVmcore;
use tempfile::NamedTempFile;

thread_local! {
    // Vmcores are mapped, so they must be files.
    static FILE: RefCell<NamedTempFile> = RefCell::new(NamedTempFile::new().expect("a temporary file"));
}

fn write(file: &File, data: &[u8]) {
    file.set_len(0).and_then(|()| file.write_all_at(data, 0)).expect("room for the input");
}

/// Runs the target.
pub fn run(data: &[u8]) {
    FILE.with_borrow(|file| {
        write(file.as_file(), data);
        for access in [Access::Map, Access::Read] {
            let plain = PlainFile::open(file.path()).expect("the temporary file");
            let Ok(memory) = ElfVmcore::open(plain, MapPolicy { window: 64 << 10, access }) else { return };
            let pieces = memory.ranges().pieces();
            assert!(pieces.windows(2).all(|pair| pair[0].end <= pair[1].start));
            assert!(pieces.iter().all(|piece| piece.start < piece.end));
            assert!(pieces.iter().all(|piece| piece.stored == 0 || piece.stored == piece.end - piece.start));
            notes::vmcoreinfo(memory.notes());
            let mut view = memory.view();
            let mut scratch = [0; PAGE_SIZE];
            let mut bits = [0; 4];
            for piece in pieces.iter().take(16) {
                for pfn in [piece.start >> 12, (piece.end - 1) >> 12] {
                    let _ = view.page(PhysAddr::of_4k_page(pfn), &mut scratch);
                    let _ = memory.mark_stored(PhysAddr::of_4k_page(pfn), &mut bits);
                }
            }
            view.take_fault();
        }
    });
}
