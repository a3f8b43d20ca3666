//! arm64.

mod address_space;

use std::sync::Arc;

use crate::architecture::{AddressLayout, Arch};
use crate::image::{ImageSource, KernelMapping};
use crate::page_size::PageSize;
use crate::registers::stack_of_16_kib;
use crate::registers::{CpuMode, Registers, StatusRegisters, SwitchedOut, Unwinding, Word};
use crate::vmcoreinfo::{InfoError, VmcoreInfo};

/// arm64.
#[derive(Debug)]
pub struct Arm64;

/// X0 to X30, the stack pointer, the program counter and `pstate` (`struct user_pt_regs`, arch/arm64/include/uapi/asm/ptrace.h).
static REGISTERS: Registers = Registers {
    status: StatusRegisters {
        names: &[
            "x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14",
            "x15", "x16", "x17", "x18", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28",
            "x29", "x30", "sp", "pc", "pstate",
        ],
        summary: ["pc", "sp", "pstate"],
    },
    status_bytes: 392,
    printed: &[
        ("pstate", STATE),
        ("pc", PC),
        ("lr", 30),
        ("sp", 31),
        ("x29", 29),
        ("x28", 28),
        ("x27", 27),
        ("x26", 26),
        ("x25", 25),
        ("x24", 24),
        ("x23", 23),
        ("x22", 22),
        ("x21", 21),
        ("x20", 20),
        ("x19", 19),
        ("x18", 18),
        ("x17", 17),
        ("x16", 16),
        ("x15", 15),
        ("x14", 14),
        ("x13", 13),
        ("x12", 12),
        ("x11", 11),
        ("x10", 10),
        ("x9", 9),
        ("x8", 8),
        ("x7", 7),
        ("x6", 6),
        ("x5", 5),
        ("x4", 4),
        ("x3", 3),
        ("x2", 2),
        ("x1", 1),
        ("x0", 0),
    ],
    ip: PC,
    sp: 31,
    frame_pointer: 29,
    link: Some(30),
};
const PC: usize = 32;
const STATE: usize = 33;
/// Bits of `pstate`: the exception level, 0 in user mode, and whether interrupts are masked.
const LEVEL: u64 = 0xc;
const MASKED: u64 = 1 << 7;

/// `struct cpu_context` (arch/arm64/include/asm/processor.h).
static SWITCHED_OUT: SwitchedOut = SwitchedOut {
    stack_pointer: "thread.cpu_context.sp",
    pushed: None,
    ip: "thread.cpu_context.pc",
    frame_pointer: "thread.cpu_context.fp",
    preserved: &[
        ("x29", "thread.cpu_context.fp"),
        ("x28", "thread.cpu_context.x28"),
        ("x27", "thread.cpu_context.x27"),
        ("x26", "thread.cpu_context.x26"),
        ("x25", "thread.cpu_context.x25"),
        ("x24", "thread.cpu_context.x24"),
        ("x23", "thread.cpu_context.x23"),
        ("x22", "thread.cpu_context.x22"),
        ("x21", "thread.cpu_context.x21"),
        ("x20", "thread.cpu_context.x20"),
        ("x19", "thread.cpu_context.x19"),
    ],
    starts: &["ret_from_fork"],
};

impl Arch for Arm64 {
    fn name(&self) -> &'static str {
        "arm64"
    }

    fn uname(&self) -> &'static str {
        "aarch64"
    }

    fn elf_machine(&self) -> u16 {
        183
    }

    /// 20a166243328 (4.12) exports the key.
    fn marks(&self) -> &'static [&'static str] {
        &["NUMBER(kimage_voffset)"]
    }

    fn check(&self, info: &VmcoreInfo) -> Result<(), InfoError> {
        address_space::check(info)
    }

    fn discover(
        &self,
        info: &VmcoreInfo,
        _source: &mut dyn ImageSource,
    ) -> Result<Arc<dyn AddressLayout>, InfoError> {
        Ok(Arc::new(address_space::Layout::discover(info)?))
    }

    /// The image lies anywhere in the vmalloc area; VMCOREINFO has the difference of its addresses.
    fn is_image(&self, info: &VmcoreInfo, mapping: &KernelMapping) -> bool {
        info.number("kimage_voffset").is_some_and(|offset| mapping.offset() == offset as u64)
    }

    fn registers(&self) -> &'static Registers {
        &REGISTERS
    }

    fn mode(&self, word: Word<'_>) -> Option<CpuMode> {
        let state = word(STATE)?;
        Some(CpuMode { user: state & LEVEL == 0, interrupts_on: Some(state & MASKED == 0) })
    }

    fn is_entry_from_user(&self, word: Word<'_>) -> bool {
        word(PC).is_some_and(|pc| pc != 0) && word(STATE).is_some_and(|state| state & LEVEL == 0)
    }

    fn switched_out(&self) -> &'static SwitchedOut {
        &SWITCHED_OUT
    }

    fn unwinding(&self) -> Unwinding {
        Unwinding::FrameRecords
    }

    /// At least a page (`MIN_THREAD_SHIFT`, arch/arm64/include/asm/memory.h).
    fn hugetlb_orders(&self, page: PageSize) -> u32 {
        // Runs of page table entries with the contiguous bit, blocks of the level above, runs of these, and with pages of 4 KiB
        // blocks of 1 GiB (`__hugetlb_valid_size()`, CONFIG_ARM64_CONT_PTE_SHIFT and CONFIG_ARM64_CONT_PMD_SHIFT).
        match page.shift() {
            12 => 1 << 4 | 1 << 9 | 1 << 13 | 1 << 18,
            14 => 1 << 7 | 1 << 11 | 1 << 16,
            _ => 1 << 5 | 1 << 13 | 1 << 18,
        }
    }

    fn stack_bytes(&self, page: PageSize) -> u64 {
        stack_of_16_kib(page)
    }
}
