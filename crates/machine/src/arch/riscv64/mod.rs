//! riscv64.

mod address_space;

use std::sync::Arc;

use crate::architecture::{AddressLayout, Arch};
use crate::image::{ImageSource, KernelMapping};
use crate::page_size::PageSize;
use crate::registers::stack_of_16_kib;
use crate::registers::{CpuMode, Registers, StatusRegisters, SwitchedOut, Unwinding, Word};
use crate::vmcoreinfo::{InfoError, VmcoreInfo};

/// riscv64.
#[derive(Debug)]
pub struct Riscv64;

/// `struct user_regs_struct` (arch/riscv/include/uapi/asm/ptrace.h). It has no status; tp points to the task in the kernel.
static REGISTERS: Registers = Registers {
    status: StatusRegisters {
        names: &[
            "pc", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4", "a5",
            "a6", "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6",
        ],
        summary: ["pc", "sp", "tp"],
    },
    status_bytes: 376,
    printed: &[
        ("epc", EPC),
        ("ra", 1),
        ("sp", SP),
        ("gp", 3),
        ("tp", 4),
        ("t0", 5),
        ("t1", 6),
        ("t2", 7),
        ("s0", 8),
        ("s1", 9),
        ("a0", 10),
        ("a1", 11),
        ("a2", 12),
        ("a3", 13),
        ("a4", 14),
        ("a5", 15),
        ("a6", 16),
        ("a7", 17),
        ("s2", 18),
        ("s3", 19),
        ("s4", 20),
        ("s5", 21),
        ("s6", 22),
        ("s7", 23),
        ("s8", 24),
        ("s9", 25),
        ("s10", 26),
        ("s11", 27),
        ("t3", 28),
        ("t4", 29),
        ("t5", 30),
        ("t6", 31),
    ],
    ip: EPC,
    sp: SP,
    frame_pointer: 8,
    link: Some(1),
};
const EPC: usize = 0;
const SP: usize = 2;
/// The word of `struct pt_regs` with the status, and its bit for interrupted code of the kernel (SR_SPP).
const STATUS: usize = 32;
const SUPERVISOR: u64 = 1 << 8;
/// Addresses with this bit are the kernel's.
const KERNEL: u64 = 1 << 63;

/// `struct thread_struct` (arch/riscv/include/asm/processor.h).
static SWITCHED_OUT: SwitchedOut = SwitchedOut {
    stack_pointer: "thread.sp",
    pushed: None,
    ip: "thread.ra",
    frame_pointer: "thread.s[0]",
    preserved: &[
        ("s0", "thread.s[0]"),
        ("s1", "thread.s[1]"),
        ("s2", "thread.s[2]"),
        ("s3", "thread.s[3]"),
        ("s4", "thread.s[4]"),
        ("s5", "thread.s[5]"),
        ("s6", "thread.s[6]"),
        ("s7", "thread.s[7]"),
        ("s8", "thread.s[8]"),
        ("s9", "thread.s[9]"),
        ("s10", "thread.s[10]"),
        ("s11", "thread.s[11]"),
    ],
    // 7.2 has it in two, 6.12 does not.
    starts: &["ret_from_fork", "ret_from_fork_kernel_asm", "ret_from_fork_user_asm"],
};

impl Arch for Riscv64 {
    fn name(&self) -> &'static str {
        "riscv64"
    }

    fn uname(&self) -> &'static str {
        "riscv64"
    }

    fn elf_machine(&self) -> u16 {
        243
    }

    fn marks(&self) -> &'static [&'static str] {
        &["NUMBER(phys_ram_base)"]
    }

    fn check(&self, _info: &VmcoreInfo) -> Result<(), InfoError> {
        Ok(())
    }

    fn discover(
        &self,
        info: &VmcoreInfo,
        _source: &mut dyn ImageSource,
    ) -> Result<Arc<dyn AddressLayout>, InfoError> {
        Ok(Arc::new(address_space::Layout::discover(info)?))
    }

    /// Only the image has its own virtual addresses: kexec-tools 2.0.32 takes another address for PAGE_OFFSET.
    fn is_image(&self, info: &VmcoreInfo, mapping: &KernelMapping) -> bool {
        info.number("KERNEL_LINK_ADDR").is_some_and(|start| mapping.vaddr.get() >= start as u64)
    }

    /// `to_be_excluded` in kexec-riscv.c of kexec-tools 2.0.32.
    fn absent_sections(&self) -> Option<&'static str> {
        Some(
            "kexec-tools leaves memory that is Reserved inside System RAM in /proc/iomem out of the /proc/vmcore of riscv64 \
             machines; to have it in the next, load the crash kernel while a copy of /proc/iomem without these lines is mounted \
             over it",
        )
    }

    fn registers(&self) -> &'static Registers {
        &REGISTERS
    }

    /// Older kernels save CSR sepc, which may be of user mode, in place of where they are: the stack pointer tells.
    fn mode(&self, word: Word<'_>) -> Option<CpuMode> {
        Some(CpuMode { user: word(SP)? & KERNEL == 0, interrupts_on: None })
    }

    fn is_entry_from_user(&self, word: Word<'_>) -> bool {
        word(EPC).is_some_and(|epc| epc != 0) && word(STATUS).is_some_and(|status| status & SUPERVISOR == 0)
    }

    fn switched_out(&self) -> &'static SwitchedOut {
        &SWITCHED_OUT
    }

    fn unwinding(&self) -> Unwinding {
        Unwinding::FrameRecordsBelow
    }

    /// `THREAD_SIZE_ORDER` (arch/riscv/include/asm/thread_info.h).
    fn hugetlb_orders(&self, _page: PageSize) -> u32 {
        // 64 KiB by Svnapot, 2 MiB and 1 GiB (`arch_hugetlb_valid_size()`).
        1 << 4 | 1 << 9 | 1 << 18
    }

    fn stack_bytes(&self, page: PageSize) -> u64 {
        stack_of_16_kib(page)
    }
}
