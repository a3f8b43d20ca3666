//! All that is asked for, from the roots of the kernel's structures.

use pagehaul_inspect::{Machine, OpenError};
use pagehaul_kernel::{AddressSpace, KernelError, VirtualMemory};
use pagehaul_physmem::PhysMemory;
use serde::{Deserialize, Serialize};

use crate::collect::Collector;
use crate::erasure::Erasure;
use crate::subject::Subject;
use crate::{free_objects, keys, log, names};

/// What was found.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Found {
    /// What can be erased.
    pub erasure: Erasure,
    /// What cannot, one sentence each.
    pub unerased: Vec<String>,
}

/// Why nothing can be erased.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// VMCOREINFO or page tables are missing.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// There are no symbols.
    #[error(transparent)]
    Symbols(#[from] OpenError),
    /// There are no types.
    #[error("what is to be erased is found by the types of the kernel (BTF), which cannot be read{0}")]
    NoTypes(String),
}

/// Finds `subjects` in the memory of a crashed kernel.
pub fn find(memory: &dyn PhysMemory, subjects: &[Subject]) -> Result<Found, FindError> {
    let kernel = AddressSpace::discover(memory)?;
    let virtual_memory = VirtualMemory::new(&kernel, memory);
    let machine = Machine::open(&kernel, &virtual_memory, memory.notes())?;
    if machine.space().btf().is_empty() {
        let why = machine.warnings().first().map(|why| format!(": {why}"));
        return Err(FindError::NoTypes(why.unwrap_or_default()));
    }
    let translate = |vaddr| virtual_memory.physical(vaddr);
    let mut out = Collector::new(&translate);
    for subject in subjects {
        match subject {
            Subject::Keys => keys::find(&machine, &mut out),
            Subject::Log => log::find(&machine, memory, &mut out),
            Subject::Names => names::find(&machine, &mut out),
            Subject::FreeObjects => free_objects::find(&machine, memory, &mut out),
        }
    }
    Ok(out.finish())
}
