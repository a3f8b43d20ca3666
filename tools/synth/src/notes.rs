//! ELF notes.

use crate::setup::Setup;

/// NT_PRSTATUS.
const PRSTATUS: u32 = 1;
/// `sizeof(struct elf_prstatus)` on x86_64, arm64 and riscv64.
const PRSTATUS_BYTES: [usize; 3] = [336, 392, 376];

/// One note: header, name and descriptor, each padded to 4 bytes.
pub fn note(name: &str, kind: u32, desc: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend((name.len() as u32 + 1).to_le_bytes());
    bytes.extend((desc.len() as u32).to_le_bytes());
    bytes.extend(kind.to_le_bytes());
    bytes.extend(name.as_bytes());
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes.extend(desc);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// A PRSTATUS for each CPU, then VMCOREINFO.
pub(crate) fn notes(setup: &Setup, vmcoreinfo: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for cpu in 0..setup.cpus as u64 {
        let (arm64, riscv64) = (setup.arm64.is_some(), setup.riscv64.is_some());
        let [x86_64_bytes, arm64_bytes, riscv64_bytes] = PRSTATUS_BYTES;
        let bytes_of_others = if riscv64 { riscv64_bytes } else { x86_64_bytes };
        let mut desc = vec![0; if arm64 { arm64_bytes } else { bytes_of_others }];
        desc[32..36].copy_from_slice(&(100 + cpu as u32).to_le_bytes());
        let mut register =
            |index: usize, value: u64| desc[112 + index * 8..][..8].copy_from_slice(&value.to_le_bytes());
        let instruction = setup.text() + 0x1000 + cpu * 0x10;
        if riscv64 {
            register(0, instruction); // epc
            register(2, setup.page_offset().wrapping_add(setup.load + 0x40_0000 + (cpu << 14))); // sp
        } else if arm64 {
            register(31, setup.page_offset().wrapping_add(setup.load + 0x40_0000 + (cpu << 14))); // sp
            register(32, instruction); // pc
            register(33, 0x6040_03c5); // pstate
        } else {
            register(16, instruction); // rip
            register(17, 0x10); // cs
            register(18, 0x46); // eflags
            register(19, setup.page_offset() + 0x40_0000 + (cpu << 14)); // rsp
            register(20, 0x18); // ss
        }
        bytes.extend(note("CORE", PRSTATUS, &desc));
    }
    bytes.extend(note("VMCOREINFO", 0, vmcoreinfo.as_bytes()));
    bytes
}
