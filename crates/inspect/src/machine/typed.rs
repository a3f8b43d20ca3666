//! Opens the kernel in a source for those who follow its structures and can do nothing without types.

use pagehaul_kernel::{AddressSpace, KernelError, VirtualMemory};
use pagehaul_physmem::PhysMemory;

use super::Machine;
use super::open::OpenError;

/// Why the structures of a kernel cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum TypesError {
    /// VMCOREINFO or page tables are missing.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// There are no symbols.
    #[error(transparent)]
    Symbols(#[from] OpenError),
    /// There are no types.
    #[error("this needs the types of the kernel (BTF), which cannot be read{0}")]
    NoTypes(String),
}

/// Opens the kernel in `memory`, and passes it on if it has types.
pub fn with_types<T>(
    memory: &dyn PhysMemory,
    then: impl FnOnce(&Machine<'_>, &VirtualMemory<'_>) -> T,
) -> Result<T, TypesError> {
    let kernel = AddressSpace::discover(memory)?;
    let virtual_memory = VirtualMemory::new(&kernel, memory);
    let machine = Machine::open(&kernel, &virtual_memory, memory.notes())?;
    if machine.space().btf().is_empty() {
        let why = machine.warnings().first().map(|why| format!(": {why}"));
        return Err(TypesError::NoTypes(why.unwrap_or_default()));
    }
    Ok(then(&machine, &virtual_memory))
}
