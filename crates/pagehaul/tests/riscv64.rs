//! Dumps of riscv64 machines, captured and read on any host.

mod common {
    pub mod other_machine;
}

use common::other_machine::Setup;
use pagehaul_synth::{Content, Era, Machine, Message, Riscv64};

const MESSAGE: Message =
    Message { nanoseconds: 1_500_000_000, level: 0, caller: 7, text: "sysrq: Trigger a crash" };
const EM_RISCV: [u8; 2] = 243_u16.to_le_bytes();

fn machine(layout: Riscv64) -> Machine {
    let mut machine = Machine::riscv64(Era::V6_12, layout);
    machine.sampler(0x8_4000).populate(0x8_9000, 0x400, 5).anon(0x8_9500).fill(0x8_9500, Content::Random);
    machine.log(0x8_9600, &[MESSAGE]);
    machine
}

#[test]
fn each_level_keeps_its_pages() {
    for layout in Riscv64::ALL {
        let setup = Setup::of(&machine(layout));
        for level in [0, 1, 2, 4, 8, 16, 31] {
            let name = format!("level-{level}");
            setup.text(&["capture", "-q", "-d", &level.to_string(), "vmcore", &name]);
            setup.holds(&name, &setup.image.expected(level & !1));
        }
        let info: serde_json::Value =
            serde_json::from_str(&setup.text(&["info", "--json", "level-31"])).unwrap();
        assert_eq!(info["machine"], "riscv64");
        assert_eq!(info["release"], "6.12.30-synth");
    }
}

#[test]
fn every_format_and_back() {
    let setup = Setup::of(&machine(Riscv64::Sv48));
    let kept = setup.image.expected(30);
    setup.text(&["capture", "-q", "-c", "lzo", "vmcore", "dump"]);
    setup.text(&["capture", "-q", "-d", "0", "-f", "elf", "vmcore", "elf"]);
    setup.holds("elf", &setup.image.expected(0));
    assert_eq!(std::fs::read(setup.path("elf")).unwrap()[18..20], EM_RISCV);
    setup.text(&["convert", "-q", "-d", "31", "elf", "filtered"]);
    setup.holds("filtered", &kept);
    setup.text(&["makedumpfile", "-d", "31", "-l", "--message-level", "0", "vmcore", "theirs"]);
    setup.holds("theirs", &kept);
    setup.counts("theirs", kept.len());
}

#[test]
fn dumps_are_read_by_address_and_log() {
    for layout in Riscv64::ALL {
        let setup = Setup::of(&machine(layout));
        setup.text(&["capture", "-q", "vmcore", "dump"]);
        for source in ["vmcore", "dump"] {
            assert!(setup.text(&["dmesg", source]).contains(MESSAGE.text));
            // The kernel's release, at its address in the image and in the linear map.
            let (text, load) = setup.image.text();
            let at = 0x10_1000 + 130;
            for vaddr in [text + at, setup.image.page_offset().wrapping_add(load + at)] {
                let vaddr = format!("{vaddr:#x}");
                let arguments = ["read", source, "--virt", &vaddr, "--len", "13", "--format", "raw"];
                assert_eq!(setup.text(&arguments), "6.12.30-synth", "{layout:?} {source} {vaddr}");
            }
        }
        // The synthetic kernel has no symbols: its log, and the registers of its CPUs.
        let triage = setup.text(&["triage", "dump", "--section", "log", "--section", "cpus"]);
        let pc = format!("pc {:016x}", setup.image.text().0 + 0x1010);
        for expected in ["holds no symbol tables", MESSAGE.text, &pc] {
            assert!(triage.contains(expected), "{expected}: {triage}");
        }
    }
}

/// kexec-tools leaves the table of sections and the struct pages out of the vmcore.
#[test]
fn dumps_without_struct_pages_say_why() {
    let setup = Setup::of(machine(Riscv64::Sv57).info("SYMBOL(mem_section)", "ff60000070000000"));
    for command in [&["capture", "vmcore", "x"][..], &["pages", "vmcore"]] {
        let (_, said) = setup.ends(command, 1);
        assert!(said.contains("kexec-tools leaves memory that is Reserved"), "{said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    }
    assert!(setup.text(&["dmesg", "vmcore"]).contains(MESSAGE.text));
    setup.text(&["capture", "-q", "-d", "1", "vmcore", "whole"]);
    // Nothing says which pages are poisoned or offline: all are kept.
    setup.holds("whole", &setup.image.pfns());
}
