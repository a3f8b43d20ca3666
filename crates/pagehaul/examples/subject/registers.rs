//! Known values in all registers of an arm64 thread, which makes no system call, and ends the process if one changes.

use std::arch::asm;

/// Returns the function of a mode.
pub fn keeper(mode: Option<&str>) -> Option<fn() -> !> {
    match mode {
        Some("registers") => Some(keep),
        Some("vectors") => Some(keep_vectors),
        _ => None,
    }
}

/// X*n* is 0x1000 + *n*, both halves of V*n* are 0x2000 + *n*. X19, X29 and X30 are the compiler's or for comparisons.
#[inline(never)]
fn keep() -> ! {
    // SAFETY: it changes registers only, and never returns.
    unsafe {
        asm!(
            ".macro load n",
            "mov x\\n, #(0x1000 + \\n)",
            ".endm",
            ".macro load_vector n",
            "mov x30, #(0x2000 + \\n)",
            "dup v\\n\\().2d, x30",
            ".endm",
            ".macro check n",
            "mov x30, #(0x1000 + \\n)",
            "cmp x\\n, x30",
            "b.ne 9f",
            ".endm",
            ".macro check_vector n",
            "mov x30, #(0x2000 + \\n)",
            "fmov x29, d\\n",
            "cmp x29, x30",
            "b.ne 9f",
            "mov x29, v\\n\\().d[1]",
            "cmp x29, x30",
            "b.ne 9f",
            ".endm",
            ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 21, 22, 23, 24, 25, 26, 27, 28",
            "load \\n",
            ".endr",
            ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
            "load_vector \\n",
            ".endr",
            "2:",
            ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 20, 21, 22, 23, 24, 25, 26, 27, 28",
            "check \\n",
            ".endr",
            ".irp n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31",
            "check_vector \\n",
            ".endr",
            "b 2b",
            "9:",
            "udf #0",
            options(noreturn)
        );
    }
}

/// Each lane of Z0 is 5, and P1 selects them all: system calls clear all but the lower 128 bits. Without the Scalable Vector
/// Extension, as [`keep`].
#[inline(never)]
fn keep_vectors() -> ! {
    /// Bit of AT_HWCAP.
    const HWCAP_SVE: u64 = 1 << 22;
    // SAFETY: takes and returns a number.
    if unsafe { libc::getauxval(libc::AT_HWCAP) } & HWCAP_SVE == 0 {
        keep();
    }
    // SAFETY: it changes registers only, and never returns.
    unsafe {
        asm!(
            ".arch_extension sve",
            "mov x1, #5",
            "dup z0.d, x1",
            "ptrue p1.d",
            "2:",
            "cntd x2",
            "cntp x3, p1, p1.d",
            "cmp x2, x3",
            "b.ne 9f",
            "cmpne p0.d, p1/z, z0.d, #5",
            "b.ne 9f",
            "b 2b",
            "9:",
            "udf #0",
            options(noreturn)
        );
    }
}
