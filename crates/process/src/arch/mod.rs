//! What cores and snapshots need to know of a processor: its registers, how it makes system calls, and the code by which a
//! thread restores itself. All else is the same on every architecture.

mod arm64;
mod x86_64;

pub(crate) struct Architecture {
    /// `e_machine` of its programs and cores.
    pub(crate) elf_machine: u16,
    /// Bytes of the general registers of a 64-bit thread (`struct user_regs_struct` of <sys/user.h>).
    pub(crate) general_registers: usize,
    /// The other register sets of a core and the owners of their notes, in the kernel's order.
    pub(crate) register_sets: &'static [(u32, &'static str)],
    /// Bytes of the largest register set.
    pub(crate) register_set_room: usize,
    /// The system call instruction, and the alignment of instructions.
    pub(crate) system_call: &'static [u8],
    pub(crate) alignment: usize,
    /// Indices, in words, of the program counter, of a call's number, of its result, and of its arguments.
    pub(crate) program_counter: usize,
    pub(crate) number: usize,
    pub(crate) result: usize,
    pub(crate) arguments: [usize; 6],
    /// Index of the stack pointer.
    pub(crate) stack_pointer: usize,
    /// Makes a thread go on at an address, outside any system call.
    pub(crate) enter: fn(&mut [u8], u64),
    /// The register set that holds the number of the call that a thread is inside, where it is apart from the others. The
    /// kernel of such an architecture undoes an interrupted call before it stops the thread for a tracer.
    pub(crate) current_call: Option<u32>,
    /// Register sets of which a system call loses a part if their header says so.
    pub(crate) vector_sets: &'static [u32],
    pub(crate) stub: StubCode,
}

/// Code that a thread runs if its tracer dies while the thread makes a system call for it: it ends a child, waits for the
/// child of the process, and restores the signal mask and the registers. See [`Stub`](crate::stub::Stub).
pub(crate) struct StubCode {
    /// Machine code that starts with a system call instruction; a multiple of 8 bytes. The data follows.
    pub(crate) code: &'static [u8],
    /// Offset of the code that only restores.
    pub(crate) restore: u64,
    /// Bytes of the data, a multiple of 8.
    pub(crate) data_size: usize,
    /// The data, from the registers to restore, the signal mask and the address of the data; `None` if the code cannot
    /// return to where the thread was.
    pub(crate) data: fn(&[u8], u64, u64) -> Option<Vec<u8>>,
}

/// The machine that this program runs on. On those that [`check_machine`](crate::check_machine) refuses, nothing uses it.
pub(crate) static HOST: &Architecture =
    if cfg!(target_arch = "aarch64") { &arm64::ARCHITECTURE } else { &x86_64::ARCHITECTURE };

/// Whether cores of these machines (`e_machine`) can be read.
pub(crate) fn is_known(elf_machine: u16) -> bool {
    [&x86_64::ARCHITECTURE, &arm64::ARCHITECTURE].iter().any(|known| known.elf_machine == elf_machine)
}

/// Returns the register at an index; 0 if `registers` is too short.
pub(crate) fn word(registers: &[u8], index: usize) -> u64 {
    let bytes = registers.get(index * 8..).and_then(<[u8]>::first_chunk);
    bytes.copied().map_or(0, u64::from_ne_bytes)
}

/// Sets the register at an index.
pub(crate) fn set_word(registers: &mut [u8], index: usize, value: u64) {
    if let Some(word) = registers.get_mut(index * 8..index * 8 + 8) {
        word.copy_from_slice(&value.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_data_are_whole_words_and_begin_with_a_system_call() {
        for architecture in [&x86_64::ARCHITECTURE, &arm64::ARCHITECTURE] {
            let StubCode { code, restore, data_size, data } = &architecture.stub;
            assert!(code.starts_with(architecture.system_call));
            assert_eq!((code.len() % 8, data_size % 8), (0, 0));
            assert!(*restore < code.len() as u64);
            let registers = vec![0; architecture.general_registers];
            assert_eq!(data(&registers, 7, 0x1000).map(|data| data.len()), Some(*data_size));
        }
    }
}
