//! The general registers of an x86_64 thread: `struct user_regs_struct` of <sys/user.h>.

/// Bytes of the structure.
pub(crate) const GENERAL_REGISTERS: usize = 27 * 8;

// Indices of registers, in words.
pub(crate) const R11: usize = 6;
pub(crate) const R10: usize = 7;
pub(crate) const R9: usize = 8;
pub(crate) const R8: usize = 9;
pub(crate) const RAX: usize = 10;
pub(crate) const RDX: usize = 12;
pub(crate) const RSI: usize = 13;
pub(crate) const RDI: usize = 14;
pub(crate) const ORIG_RAX: usize = 15;
pub(crate) const RIP: usize = 16;

/// Returns the register at an index; 0 if `registers` is too short.
pub(crate) fn register_value(registers: &[u8], index: usize) -> u64 {
    let bytes = registers.get(index * 8..).and_then(<[u8]>::first_chunk);
    bytes.copied().map_or(0, u64::from_ne_bytes)
}
