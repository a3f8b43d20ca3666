//! Values of fields of ELF headers.

/// `e_machine` of arm64.
pub const EM_AARCH64: u16 = object::elf::EM_AARCH64.0;
/// `e_machine` of x86_64.
pub const EM_X86_64: u16 = object::elf::EM_X86_64.0;

/// `e_flags` bit of an incomplete core. makedumpfile sets it (`DUMP_ELF_INCOMPLETE`) and crash reads it; x86_64 has no
/// other use for the field.
pub(crate) const INCOMPLETE: u32 = 1;
/// `e_flags` bit of a core of a process from which memory was left out because of a limit. Pagehaul's; x86_64 and arm64 have no use for
/// the field in cores.
pub(crate) const LIMITED: u32 = 2;
