//! Dumps of arm64 machines, captured and read on any host.

mod common {
    pub mod other_machine;
}

use common::other_machine::Setup;
use pagehaul_physmem::MapPolicy;
use pagehaul_synth::{Arm64, Content, Era, Machine, Message};
use pagehaul_vmcore::Source;

const MESSAGE: Message =
    Message { nanoseconds: 1_500_000_000, level: 0, caller: 7, text: "sysrq: Trigger a crash" };
const EM_AARCH64: [u8; 2] = 183_u16.to_le_bytes();

/// A machine of this layout with pages of every kind.
fn setup(layout: Arm64) -> Setup {
    let mut machine = Machine::arm64(Era::V6_12, layout);
    let pfn = |paddr: u64| paddr >> layout.page_shift;
    machine.kaslr(0x1a00_0000).sampler(pfn(0x4400_0000)).populate(pfn(0x4900_0000), pfn(0x40_0000), 5);
    let random = pfn(0x4950_0000);
    machine.anon(random).fill(random, Content::Random).log(pfn(0x4960_0000), &[MESSAGE]);
    Setup::of(&machine)
}

const LAYOUTS: [Arm64; 4] = [Arm64::V39, Arm64::V48, Arm64::V52, Arm64::V52_ON_48];

/// Layouts of every page size.
fn layouts() -> impl Iterator<Item = Arm64> {
    LAYOUTS.into_iter().chain(Arm64::LARGE_PAGES)
}

#[test]
fn each_level_keeps_its_pages() {
    for layout in layouts() {
        let setup = setup(layout);
        for level in [0, 1, 2, 4, 8, 16, 31] {
            let name = format!("level-{level}");
            setup.text(&["capture", "-q", "-d", &level.to_string(), "vmcore", &name]);
            setup.holds(&name, &setup.image.expected(level & !1));
        }
        // The header has PHYS_OFFSET, by which crash finds the linear map.
        let text = setup.text(&["info", "--json", "level-31"]);
        let info: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(info["machine"], "aarch64");
        assert_eq!(info["release"], "6.12.30-synth");
        assert_eq!(info["page_size"], 1 << layout.page_shift);
        // Blocks of the file have the size of pages: header, sub header, bitmaps and descriptors start at them.
        let header = std::fs::read(setup.path("level-31")).unwrap();
        assert_eq!(header[428..432], (1_u32 << layout.page_shift).to_le_bytes(), "{layout:?}");
    }
}

#[test]
fn every_format_and_back() {
    for layout in [Arm64::V52, Arm64::K16_V52_ON_47, Arm64::K64_V52] {
        formats_of(layout);
    }
}

fn formats_of(layout: Arm64) {
    let setup = setup(layout);
    let kept = setup.image.expected(30);
    setup.text(&["capture", "-q", "-c", "lzo", "vmcore", "dump"]);
    setup.text(&["capture", "-q", "-d", "0", "-f", "elf", "vmcore", "elf"]);
    setup.holds("elf", &setup.image.expected(0));
    assert_eq!(std::fs::read(setup.path("elf")).unwrap()[18..20], EM_AARCH64);
    setup.text(&["capture", "-q", "-f", "flattened", "vmcore", "flat"]);
    setup.holds("flat", &kept);
    setup.text(&["convert", "-q", "-c", "zstd", "dump", "converted"]);
    setup.holds("converted", &kept);
    // Filtered from an ELF dump, it keeps the same pages.
    setup.text(&["convert", "-q", "-d", "31", "elf", "filtered"]);
    setup.holds("filtered", &kept);
    setup.text(&["verify", "converted"]);
    setup.text(&["capture", "-q", "vmcore", "first", "second"]);
    setup.text(&["verify", "first", "second"]);
}

#[test]
fn dumps_are_read_by_address_and_log() {
    for layout in layouts() {
        let setup = setup(layout);
        setup.text(&["capture", "-q", "vmcore", "dump"]);
        for source in ["vmcore", "dump"] {
            assert!(setup.text(&["dmesg", source]).contains(MESSAGE.text));
            // The kernel's release, at its address in the image and in the linear map.
            let (text, load) = setup.image.text();
            let at = 0x10_1000 + 130;
            for vaddr in [text + at, setup.image.page_offset().wrapping_add(load + at)] {
                let arguments =
                    ["read", source, "--virt", &format!("{vaddr:#x}"), "--len", "13", "--format", "raw"];
                assert_eq!(setup.text(&arguments), "6.12.30-synth", "{layout:?} {source} {vaddr:#x}");
            }
            let info = setup.text(&["info", source]);
            assert!(info.contains("aarch64"), "{info}");
            let pc = format!("{:016x}", text + 0x1010);
            assert!(info.contains("pc") && info.contains(&pc), "no {pc} in {info}");
        }
        assert!(setup.text(&["pages", "dump"]).contains("kernel"));
        // The synthetic kernel has no symbols: its log, and the registers of its CPUs.
        let triage = setup.text(&["triage", "dump", "--section", "log", "--section", "cpus"]);
        let pc = format!("pc {:016x}", setup.image.text().0 + 0x1010);
        for expected in ["holds no symbol tables", MESSAGE.text, &pc] {
            assert!(triage.contains(expected), "{expected}: {triage}");
        }
    }
}

/// Firmware leaves holes of 4 KiB: a page of which RAM has a part is in the dump, with zeros around it.
#[test]
fn pages_that_are_ram_in_part() {
    for layout in [Arm64::K16_V47, Arm64::K64_V52] {
        let mut machine = Machine::arm64(Era::V6_12, layout);
        machine.ram(0x4000_0000, 0x4480_1000).ram(0x4480_3000, 0x4500_9000).ram(0x4501_f000, 0x4600_0000);
        let setup = Setup::of(&machine);
        setup.text(&["capture", "-q", "-d", "0", "vmcore", "dump"]);
        setup.holds("dump", &setup.image.pfns());
        setup.text(&["capture", "-q", "-d", "0", "-f", "elf", "vmcore", "elf"]);
        setup.text(&["convert", "-q", "-d", "31", "elf", "converted"]);
        setup.holds("converted", &setup.image.expected(30));
        setup.counts("vmcore", setup.image.pfns().len());
        setup.counts("dump", setup.image.pfns().len());
        setup.counts("converted", setup.image.expected(30).len());
    }
}

/// A dump that ends early has new tables behind its data, at a multiple of its blocks.
#[test]
fn limited_dumps_open() {
    let mut machine = Machine::arm64(Era::V6_12, Arm64::K64_V52);
    for pfn in 0x4900..0x4980 {
        machine.anon(pfn).fill(pfn, Content::Random);
    }
    let setup = Setup::of(&machine);
    // Without `-q`, it says why it ends.
    let (_, said) = setup.ends(&["capture", "-d", "0", "--size-limit", "4M", "vmcore", "limited"], 3);
    assert!(said.contains("limit"), "{said}");
    let source = Source::open(&setup.path("limited"), MapPolicy::default()).unwrap();
    let (mut view, mut scratch) = (source.memory().view(), vec![0; setup.image.page_size()]);
    let mut found = 0;
    for pfn in setup.image.pfns() {
        if let Ok(page) = view.block(pfn << 16, &mut scratch) {
            assert!(*page == setup.image.page_bytes(pfn), "PFN {pfn:#x}");
            found += 1;
        }
    }
    assert!((10..setup.image.pfns().len()).contains(&found), "{found} pages");
}

#[test]
fn impossible_page_sizes_are_refused() {
    let setup = Setup::of(Machine::arm64(Era::V6_12, Arm64::V48).info("PAGESIZE", 32768));
    let (_, said) = setup.ends(&["capture", "-d", "31", "vmcore", "x"], 1);
    assert!(said.contains("arm64 has pages of 4096, 16384 or 65536 bytes"), "{said}");
    assert!(!setup.path("x").exists());
}
