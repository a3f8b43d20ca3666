//! Which kernel is found in images of memory.

mod common;

use std::fs;

use common::{Memory, PAGE, before_crash, capture_kernel};
use pagehaul_elfcore::notes;
use pagehaul_images::{find, open};
use pagehaul_kernel::Kernel;
use pagehaul_physmem::MapPolicy;
use pagehaul_synth::{Arm64, CRASH_TIME, Era, Image, Machine, Riscv64};
use pagehaul_vmcore::{Layout, Source};

/// Pages that no machine here uses.
const TEXT: usize = 0x4000;
const NOTE: usize = 0x4010;
const OTHER: usize = 0x4020;

struct Opened {
    source: Source,
    _file: tempfile::NamedTempFile,
}

fn opened(memory: &Memory, layout: &str) -> Result<Opened, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), &memory.0).unwrap();
    let layout: Layout = layout.parse().unwrap();
    let source = open(file.path(), Some(&layout), MapPolicy::default()).map_err(|error| error.to_string())?;
    Ok(Opened { source, _file: file })
}

fn info(source: &Source) -> String {
    let (_, text) = notes::vmcoreinfo(source.memory().notes()).expect("VMCOREINFO was found");
    String::from_utf8(text.to_vec()).unwrap()
}

fn machines() -> Vec<(&'static str, Image)> {
    vec![
        ("4.4", Machine::new(Era::V4_4).build()),
        ("5.10", Machine::new(Era::V5_10).kaslr(0x1a00_0000).build()),
        ("6.12, 5 levels", Machine::new(Era::V6_12).five_level().kaslr(0x1a00_0000).build()),
        ("6.12, SME", Machine::new(Era::V6_12).sme(1 << 47).build()),
        ("arm64", Machine::arm64(Era::V6_12, Arm64::V48).build()),
        ("arm64, 64 KiB", Machine::arm64(Era::V6_12, Arm64::K64_V52).build()),
        ("riscv64", Machine::riscv64(Era::V6_12, Riscv64::Sv48).build()),
    ]
}

#[test]
fn kernels_of_every_architecture_are_found_in_raw_images_lime_and_elf() {
    for (what, image) in machines() {
        let start = image.ram()[0].0 as usize & !0xf_ffff;
        let free = start / PAGE + 0x4000;
        let mut memory = Memory::of(&image);
        memory.text(free, &before_crash(&image)).note(free + 16, image.vmcoreinfo());

        let mut raw = memory.clone();
        raw.0.drain(..start);
        let raw = opened(&raw, &format!("{start:x}-")).unwrap_or_else(|why| panic!("{what}: {why}"));
        let lime = tempfile::NamedTempFile::new().unwrap();
        memory.write_lime(&image, lime.path());
        let lime = open(lime.path(), None, MapPolicy::default()).unwrap();
        for source in [&raw.source, &lime] {
            assert_eq!(info(source), image.vmcoreinfo(), "{what}");
            let kernel = Kernel::discover(source.memory()).unwrap();
            assert_eq!(kernel.page_size().bytes(), image.page_size(), "{what}");
            assert_eq!(source.memory().platform().arch().unwrap().name(), kernel.space().arch().name());
            assert!(source.memory().faults().is_empty(), "{what}: {:?}", source.memory().faults());
        }
    }
}

#[test]
fn a_dump_by_qemu_without_the_note_keeps_the_notes_of_its_cpus() {
    let mut machine = Machine::new(Era::V6_12);
    let image = machine.build();
    let text = before_crash(&image);
    let mut pages = [[0; PAGE]; 2];
    for (page, bytes) in pages.iter_mut().zip(text.as_bytes().chunks(PAGE)) {
        page[..bytes.len()].copy_from_slice(bytes);
    }
    assert!(text.len() <= PAGE, "it has one page");
    let image = machine.fill(TEXT as u64, pagehaul_synth::Content::Bytes(Box::new(pages[0]))).build();
    let mut elf = image.qemu_elf();
    let mut of_cpus = Vec::new();
    for note in notes::iter(&elf.notes).filter(|note| note.name == b"CORE") {
        notes::push(&mut of_cpus, "CORE", note.kind, note.desc);
    }
    elf.notes = of_cpus.clone();
    let file = tempfile::NamedTempFile::new().unwrap();
    elf.write(file.path()).unwrap();
    assert!(
        notes::vmcoreinfo(Source::open(file.path(), MapPolicy::default()).unwrap().memory().notes())
            .is_none()
    );

    let source = open(file.path(), None, MapPolicy::default()).unwrap();
    assert_eq!(info(&source), text);
    assert!(source.memory().notes().starts_with(&of_cpus));
    assert_eq!(source.remarks().len(), 1, "{:?}", source.remarks());
    Kernel::discover(source.memory()).unwrap();
}

#[test]
fn copies_that_memory_contradicts_are_not_taken() {
    let image = Machine::new(Era::V6_12).kaslr(0x1a00_0000).build();
    let good = before_crash(&image);
    let symbol = good.lines().find(|line| line.starts_with("SYMBOL(init_uts_ns)")).unwrap();
    let moved = good.replace(symbol, "SYMBOL(init_uts_ns)=ffffffff9b200000");
    let other_release = good.replacen(Era::V6_12.release(), "6.12.99-other", 1);
    let cut = &good[..good.find("SYMBOL(mem_section)").unwrap()];
    let root = good.lines().find(|line| line.starts_with("SYMBOL(init_top_pgt)"));
    let root = root.or_else(|| good.lines().find(|line| line.starts_with("SYMBOL(swapper_pg_dir)"))).unwrap();
    let elsewhere = good.replace(root, "SYMBOL(init_top_pgt)=ffffffff9b000000");
    let mut memory = Memory::of(&image);
    // They come first in memory.
    memory.text(TEXT, &moved).text(TEXT + 2, &other_release).text(TEXT + 4, cut).text(TEXT + 6, &elsewhere);
    let nothing = opened(&memory, "flat").map(|opened| info(&opened.source));
    assert!(nothing.as_ref().is_err_and(|why| why.contains("no VMCOREINFO fits")), "{nothing:?}");

    // In the page cache, not at the start of a page.
    memory.put(OTHER * PAGE + 100, good.as_bytes());
    let opened = opened(&memory, "flat").unwrap();
    assert_eq!(info(&opened.source), good);
    assert_eq!(opened.source.remarks().len(), 1, "{:?}", opened.source.remarks());
}

#[test]
fn the_note_of_the_kernel_counts_before_copies_of_an_older_crash() {
    let image = Machine::new(Era::V6_12).build();
    let crashed = image.vmcoreinfo();
    let older = crashed.replace(&format!("CRASHTIME={CRASH_TIME}"), "CRASHTIME=1999999999");
    let mut memory = Memory::of(&image);
    memory.text(TEXT, &older).note(NOTE, crashed).text(OTHER, &before_crash(&image));
    assert_eq!(info(&opened(&memory, "flat").unwrap().source), crashed);
    // Without the note, a copy with the time of a crash is what there is.
    memory.put(NOTE * PAGE, &[0; PAGE]);
    assert_eq!(info(&opened(&memory, "flat").unwrap().source), older);
}

#[test]
fn of_two_kernels_the_crashed_one_is_read() {
    let crashed = Machine::new(Era::V6_12).build();
    let capturing = capture_kernel();
    let mut memory = Memory::of(&crashed);
    memory.kernel(&capturing).note(TEXT, capturing.vmcoreinfo()).note(OTHER, crashed.vmcoreinfo());
    let both = opened(&memory, "flat").unwrap();
    assert_eq!(info(&both.source), crashed.vmcoreinfo());
    let remarks = both.source.remarks();
    let told = |release: &str| remarks.iter().any(|remark| remark.contains(release));
    assert!(told(Era::V6_6.release()) && told("capture kernels"), "{remarks:?}");

    let found = find(both.source.memory(), 2).unwrap();
    let crash_times: Vec<_> = found.iter().map(|kernel| kernel.crash_time).collect();
    assert_eq!(crash_times, [Some(CRASH_TIME as u64), None]);

    // A capture kernel that crashed, too, crashed last.
    let again = format!("{}CRASHTIME={}\n", capturing.vmcoreinfo(), CRASH_TIME + 60);
    memory.note(TEXT, &again);
    assert_eq!(info(&opened(&memory, "flat").unwrap().source), again);
}

#[test]
fn a_wrong_layout_is_told() {
    let image = Machine::new(Era::V6_12).build();
    let mut memory = Memory::of(&image);
    memory.note(NOTE, image.vmcoreinfo());
    let why = opened(&memory, "100000-").map(|_| ()).unwrap_err();
    assert!(why.contains("no VMCOREINFO fits") && why.contains("--layout"), "{why}");
    assert!(opened(&memory, "0-ffffff@0,1000000-@1000000").is_ok());
    let why = opened(&Memory(vec![0; 1 << 20]), "flat").map(|_| ()).unwrap_err();
    assert!(why.contains("OSRELEASE=") && why.contains("1 MiB"), "{why}");
}
