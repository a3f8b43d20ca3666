//! The vmcores and dumps that the cases read.

use std::path::Path;

use pagehaul_synth::{
    Codec, Content, Era, Kind, Machine, Memmap, Noise, PageBytes, Records, Sparse, flatten,
};

/// Source of most cases: pages of every class, and contents that exercise every part of an encoder.
pub const MIXED: &str = "mixed";
/// A larger source: several memory sections, several chunks of the descriptor table, several writes of page
/// data.
pub const WIDE: &str = "wide";

/// A machine of 64 MiB with two memory sections, a hole, and RAM that starts and ends inside a page.
fn new(era: Era) -> Machine {
    let mut machine = Machine::new(era);
    machine.ram(0x1000, 0x9_fc00).ram(0x10_0000, 0x380_0000).ram(0x900_0200, 0x980_0400);
    machine
}

/// Adds pages of every class.
fn populate(machine: &mut Machine) -> &mut Machine {
    machine.sampler(0x2000).populate(0x2800, 0x400, 11).poison(0x2807)
}

/// Kernel eras, page tables, memory models and memory maps.
pub fn machines() -> Vec<(&'static str, Machine)> {
    let mut machines = Vec::new();
    let mut add = |name, machine: &mut Machine| machines.push((name, machine.clone()));
    for era in Era::ALL {
        add(era.release(), populate(&mut new(era)));
    }
    add("5-level", populate(new(Era::V6_6).five_level().kaslr(0x1a00_0000).sme(1 << 51)));
    add("kaslr-sme", populate(new(Era::V5_10).kaslr(0x600_0000).load_at(0x140_0000).sme(1 << 47)));
    add("sparse-static", populate(new(Era::V4_4).sparse(Sparse::Static).memmap(Memmap::PerSection)));
    add("memmap-per-section", populate(new(Era::V6_1).memmap(Memmap::PerSection).section_entry(32)));
    add("memmap-small-pages", populate(new(Era::V6_12).memmap(Memmap::VmemmapSmall).struct_page(80)));
    add("struct-page-56", populate(new(Era::V4_15).struct_page(56)));
    add("small-sections", holes(new(Era::V5_10).section_bits(24).max_physmem_bits(40)));
    add("holes", holes(&mut new(Era::V7_1)));
    add("high-memory", populate(new(Era::V6_12).ram(1 << 36, (1 << 36) + 0x80_0000)));
    add("unknown-classes", populate(new(Era::V6_1).without_info("NUMBER(PG_slab)")));
    machines
}

/// Adds 12 ranges of RAM that start and end inside a page.
fn holes(machine: &mut Machine) -> &mut Machine {
    for index in 0..12 {
        let start = 0x400_0000 + index * 0x34_5111;
        machine.ram(start, start + 0x21_0400);
    }
    populate(machine)
}

fn mixed() -> Machine {
    let mut machine = new(Era::V6_12);
    populate(&mut machine).hugetlb_vmemmap_optimized(0x2c00, 9);
    for index in 0..1024 {
        let pfn = 0x2e00 + index;
        let kind = [Kind::Kernel, Kind::PageTable, Kind::Slab, Kind::Kernel][index as usize / 8 % 4];
        machine.page(kind, pfn, 0).fill(pfn, Content::Bytes(Box::new(varied(index))));
    }
    // Runs long enough to become holes of an ELF file.
    for pfn in 0x3200..0x3400 {
        machine.cache(pfn);
    }
    machine.buddy(0x3400, 9);
    machine
}

fn wide() -> Machine {
    let mut machine = Machine::new(Era::V6_1);
    machine.ram(0x10_0000, 0x1400_0000);
    for section in 1..3 {
        machine.sampler(section * 0x8000 + 0x1000).populate(section * 0x8000 + 0x2000, 0x1000, section);
    }
    machine
}

/// Returns a page whose structure depends on `index` modulo 8.
fn varied(index: u64) -> PageBytes {
    let mut noise = Noise::new(index);
    let mut below = |bound: u64| (noise.next() % bound) as usize;
    let mut page = [0; 4096];
    match index % 8 {
        // Skewed alphabet: shrinks by entropy coding alone.
        0 => {
            let letters = 2 + below(200) as u64;
            page.fill_with(|| {
                let most = below(letters) as u64 + 1;
                below(most) as u8
            });
        }
        // Literals, and matches of any length and distance.
        1 => {
            let mut at = 0;
            while at < page.len() {
                let end = page.len().min(at + 1 + below(24));
                page[at..end].fill_with(|| below(256) as u8);
                let (from, length) = (below(end as u64), below(300));
                for to in end..page.len().min(end + length) {
                    page[to] = page[from + to - end];
                }
                at = end + length;
            }
        }
        // Kernel pointers.
        2 => {
            for (slot, word) in page.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                *word = (0xffff_8880_0000_0000 + ((below(1 << 12) + slot) << 6) as u64).to_le_bytes();
            }
        }
        // A few words among zeros.
        3 => {
            for _ in 0..1 + below(64) {
                page[below(512) * 8..][..8].copy_from_slice(&(below(u64::MAX) as u64).to_le_bytes());
            }
        }
        // Random bytes, then text.
        4 => {
            page = Content::Text.page(index);
            let noise = Content::Random.page(index);
            let border = below(4097);
            page[..border].copy_from_slice(&noise[..border]);
        }
        // A short period with errors.
        5 => {
            let period: Vec<u8> = (0..1 + below(24)).map(|_| below(256) as u8).collect();
            page.fill_with({
                let mut letters = period.iter().cycle();
                move || *letters.next().unwrap()
            });
            for _ in 0..below(40) {
                page[below(4096)] = below(256) as u8;
            }
        }
        // Random bytes with a few matches: at the limit of what shrinks.
        6 => {
            page = Content::Random.page(index);
            for _ in 0..below(6) {
                let (from, to, length) = (below(4000), below(4000), 4 + below(60));
                page.copy_within(from..from + length, to);
            }
        }
        // Records that differ in a few fields.
        _ => {
            let record: Vec<u8> = (0..64).map(|_| below(256) as u8).collect();
            for (number, bytes) in page.as_chunks_mut::<64>().0.iter_mut().enumerate() {
                bytes.copy_from_slice(&record);
                bytes[8..16].copy_from_slice(&(number as u64 * 64).to_le_bytes());
                bytes[below(64)] = below(256) as u8;
            }
        }
    }
    page
}

/// Writes every source to `directory`.
pub fn write_all(directory: &Path) {
    let put = |name: &str, bytes: &[u8]| std::fs::write(directory.join(name), bytes).unwrap();
    for (name, machine) in machines() {
        machine.build().elf().write(&directory.join(name)).unwrap();
    }
    wide().build().elf().write(&directory.join(WIDE)).unwrap();
    let image = mixed().build();
    image.elf().write(&directory.join(MIXED)).unwrap();
    image.qemu_elf().write(&directory.join("qemu")).unwrap();

    let mut elf = image.elf();
    elf.overlap(0x201_0000, 0x202_1800).store_only(2, 0x2d2_3456);
    elf.write(&directory.join("partly-stored")).unwrap();
    let mut elf = image.elf();
    elf.split(0x1_2345).write(&directory.join("many-segments")).unwrap();
    let mut elf = image.elf();
    elf.notes.clear();
    elf.write(&directory.join("no-notes")).unwrap();
    // Cut in the middle of a page of the largest PT_LOAD.
    let vmcore = image.elf().bytes();
    put("cut", &vmcore[..0x2c0_0123]);

    let mut kdump = image.kdump();
    kdump.level(0).mixed();
    for version in 1..=6 {
        put(&format!("kdump-v{version}"), &kdump.version(version).bytes());
    }
    let dump = kdump.bytes();
    put("kdump-cut", &dump[..dump.len() * 2 / 3]);
    put("kdump-filtered", &image.kdump().level(31).codec(Codec::Lzo).backwards().bytes());
    put("kdump-incomplete", &image.kdump().level(31).incomplete(1500).bytes());
    for (name, size, records) in [
        ("flattened", 0x1_0000, Records::Ascending),
        ("flattened-shuffled", 0x3001, Records::Shuffled),
        ("flattened-rewritten", 0x2_0000, Records::Rewritten),
    ] {
        put(name, &flatten(&dump, size, records));
    }
    let flat = flatten(&dump, 0x1_0000, Records::Ascending);
    put("flattened-cut", &flat[..flat.len() * 2 / 3]);
    for (index, part) in image.kdump().level(1).mixed().parts(3).iter().enumerate() {
        put(&format!("part-{index}"), part);
    }
}
