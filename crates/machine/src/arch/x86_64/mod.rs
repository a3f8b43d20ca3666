//! x86_64.

mod address_space;
mod phys_base;

use std::sync::Arc;

use crate::architecture::{AddressLayout, Arch};
use crate::image::{ImageSource, KernelMapping};
use crate::page_size::PageSize;
use crate::registers::stack_of_16_kib;
use crate::registers::{CpuMode, Registers, StatusRegisters, SwitchedOut, Unwinding, Word};
use crate::units::{PhysAddr, VirtAddr};
use crate::vmcoreinfo::{InfoError, VmcoreInfo};

/// Where the kernel image is mapped (`__START_KERNEL_map`, the same since 2.6).
pub const START_KERNEL_MAP: u64 = 0xffff_ffff_8000_0000;
/// The room for the image from there with KASLR (`KERNEL_IMAGE_SIZE`).
const KERNEL_IMAGE_SIZE: u64 = 1 << 30;

/// x86_64.
#[derive(Debug)]
pub struct X86_64;

/// `struct user_regs_struct` (arch/x86/include/asm/user_64.h). `struct pt_regs` ends with ss.
static REGISTERS: Registers = Registers {
    status: StatusRegisters {
        names: &[
            "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi",
            "rdi", "orig_rax", "rip", "cs", "rflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs",
            "gs",
        ],
        summary: ["rip", "rsp", "rflags"],
    },
    status_bytes: 336,
    printed: &[
        ("ip", 16),
        ("sp", 19),
        ("flags", FLAGS),
        ("ax", 10),
        ("bx", 5),
        ("cx", 11),
        ("dx", 12),
        ("si", 13),
        ("di", 14),
        ("bp", 4),
        ("r8", 9),
        ("r9", 8),
        ("r10", 7),
        ("r11", 6),
        ("r12", 3),
        ("r13", 2),
        ("r14", 1),
        ("r15", 0),
    ],
    ip: 16,
    sp: 19,
    frame_pointer: 4,
    link: None,
};
const CS: usize = 17;
const FLAGS: usize = 18;
/// Bit 9 of the flags: interrupts are on.
const INTERRUPT_FLAG: u64 = 1 << 9;

/// `struct inactive_task_frame` (arch/x86/include/asm/switch_to.h).
static SWITCHED_OUT: SwitchedOut = SwitchedOut {
    stack_pointer: "thread.sp",
    pushed: Some("inactive_task_frame"),
    ip: "ret_addr",
    frame_pointer: "bp",
    preserved: &[("bx", "bx"), ("bp", "bp"), ("r12", "r12"), ("r13", "r13"), ("r14", "r14"), ("r15", "r15")],
    starts: &["ret_from_fork", "ret_from_fork_asm"],
};

impl Arch for X86_64 {
    fn name(&self) -> &'static str {
        "x86_64"
    }

    fn uname(&self) -> &'static str {
        "x86_64"
    }

    fn elf_machine(&self) -> u16 {
        62
    }

    /// 65ade2f872b4 (4.13) renamed init_level4_pgt to init_top_pgt.
    fn marks(&self) -> &'static [&'static str] {
        &["SYMBOL(init_top_pgt)", "SYMBOL(init_level4_pgt)"]
    }

    fn check(&self, info: &VmcoreInfo) -> Result<(), InfoError> {
        address_space::check(info)
    }

    fn discover(
        &self,
        info: &VmcoreInfo,
        source: &mut dyn ImageSource,
    ) -> Result<Arc<dyn AddressLayout>, InfoError> {
        Ok(Arc::new(address_space::Layout::discover(info, source)?))
    }

    fn is_image(&self, _info: &VmcoreInfo, mapping: &KernelMapping) -> bool {
        mapping.vaddr.get() >= START_KERNEL_MAP
    }

    fn image_by_header(&self, phys_base: u64) -> Option<KernelMapping> {
        // With KASLR phys_base may be negative: the physical offset of the image is then below its virtual one.
        let negative = (phys_base as i64) < 0;
        let skipped = if negative { phys_base.wrapping_neg() } else { 0 };
        Some(KernelMapping {
            vaddr: VirtAddr::new(START_KERNEL_MAP.checked_add(skipped)?),
            paddr: PhysAddr::new(if negative { 0 } else { phys_base }),
            size: KERNEL_IMAGE_SIZE.checked_sub(skipped)?,
        })
    }

    fn has_unaccepted_memory(&self) -> bool {
        true
    }

    fn hugetlb_orders(&self, _page: PageSize) -> u32 {
        // 2 MiB and 1 GiB (`arch_hugetlb_valid_size()`).
        1 << 9 | 1 << 18
    }

    fn stores_in_order(&self) -> bool {
        true
    }

    fn registers(&self) -> &'static Registers {
        &REGISTERS
    }

    fn mode(&self, word: Word<'_>) -> Option<CpuMode> {
        let interrupts_on = word(FLAGS)? & INTERRUPT_FLAG != 0;
        Some(CpuMode { user: word(CS)? & 3 != 0, interrupts_on: Some(interrupts_on) })
    }

    fn is_entry_from_user(&self, word: Word<'_>) -> bool {
        // The code segment of user mode: 0x33, or 0x23 of 32-bit programs.
        word(CS).is_some_and(|cs| matches!(cs & 0xffff, 0x33 | 0x23))
    }

    /// 65c9cc9e2c14 (6.9): TOP_OF_KERNEL_STACK_PADDING is 16 with FRED.
    fn paddings(&self) -> &'static [u64] {
        &[0, 16]
    }

    fn switched_out(&self) -> &'static SwitchedOut {
        &SWITCHED_OUT
    }

    fn unwinding(&self) -> Unwinding {
        Unwinding::Orc
    }

    /// 6538b8ea886e (3.15).
    fn stack_bytes(&self, page: PageSize) -> u64 {
        stack_of_16_kib(page)
    }
}
