//! Images that are changed in any place: opening them ends, and what it takes for a kernel is in memory.

mod common;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use common::{Memory, PAGE, before_crash};
use pagehaul_elfcore::notes;
use pagehaul_images::open;
use pagehaul_kernel::{AddressSpace, Kernel, KernelLog};
use pagehaul_physmem::MapPolicy;
use pagehaul_synth::{Era, Machine};
use proptest::collection::vec;
use proptest::prelude::*;

/// Bytes of a header of LiME.
const HEADER: u64 = 32;
const TEXT: usize = 0x1a00;
const NOTE: usize = 0x1a08;

#[test]
fn changed_images_are_read_or_refused() {
    let mut machine = Machine::new(Era::V6_12);
    let image = machine.ram(0x10_0000, 0x1c0_0000).build();
    let mut memory = Memory::of(&image);
    memory.text(TEXT, &before_crash(&image)).note(NOTE, image.vmcoreinfo());
    let file = tempfile::NamedTempFile::new().unwrap();
    memory.write_lime(&image, file.path());
    let writer = OpenOptions::new().write(true).read(true).open(file.path()).unwrap();
    let place = |paddr: u64| paddr - 0x10_0000 + HEADER;
    let (tables, _) = image.page_tables();
    // Where a change counts: headers, texts, the note, page tables with what follows, names of the kernel.
    let starts = [
        0,
        place((TEXT * PAGE) as u64),
        place((NOTE * PAGE) as u64),
        place(tables),
        place(tables + PAGE as u64),
        place(image.struct_page_paddr(0x100)),
    ];
    let text = image.vmcoreinfo().len() as u64;
    let sizes = [HEADER, text, text + 24, 4096, 4096, 1 << 20];
    let change = (0..starts.len(), any::<u64>(), vec(any::<u8>(), 1..24));
    let digits =
        (1..3_usize, any::<u64>(), vec(prop::sample::select(b"0123456789abcdef=()\n".to_vec()), 1..8));
    let changes = vec(prop_oneof![change, digits], 1..6);
    let mut runner =
        proptest::test_runner::TestRunner::new(ProptestConfig { cases: 192, ..ProptestConfig::default() });
    let read = runner.run(&changes, |changes| {
        let mut kept = Vec::new();
        for (zone, at, bytes) in &changes {
            let offset = starts[*zone] + at % sizes[*zone];
            let mut before = vec![0; bytes.len()];
            writer.read_exact_at(&mut before, offset).unwrap();
            writer.write_all_at(bytes, offset).unwrap();
            kept.push((offset, before));
        }
        let opened = open(file.path(), None, MapPolicy::default());
        if let Ok(source) = &opened {
            prop_assert!(notes::vmcoreinfo(source.memory().notes()).is_some());
            // What was found is what other code reads with.
            let _ = (AddressSpace::discover(source.memory()), Kernel::discover(source.memory()));
            let _ = KernelLog::read(source.memory());
        }
        for (offset, before) in kept.into_iter().rev() {
            writer.write_all_at(&before, offset).unwrap();
        }
        Ok(())
    });
    read.unwrap();
    assert!(open(file.path(), None, MapPolicy::default()).is_ok(), "what was changed is as it was");
}

#[test]
fn memory_full_of_copies_takes_bounded_work() {
    let mut machine = Machine::new(Era::V4_4);
    let image = machine.ram(0x10_0000, 0x1c0_0000).build();
    // Each of another kernel, whose place is searched in all memory.
    let text = image.vmcoreinfo().replace(Era::V4_4.release(), "0000.00.000-synth");
    assert!(!text.contains("NUMBER(phys_base)"));
    let mut memory = Memory::of(&image);
    let first = image.kernel_pfns().end as usize;
    for (number, page) in (first..0x1c00).enumerate() {
        memory.text(page, &text.replace("0000.00.000", &format!("{number:04}.00.000")));
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    memory.write_lime(&image, file.path());
    let why = open(file.path(), None, MapPolicy::default()).map(|_| ()).unwrap_err().to_string();
    assert!(why.contains("of more than 256 that memory has, no VMCOREINFO fits"), "{why}");
}
