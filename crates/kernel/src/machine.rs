//! Whether the machine and its memory model are supported, by the keys that only such kernels export.

use pagehaul_physmem::PhysMemory;

use pagehaul_machine::arch;

use crate::error::KernelError;
use pagehaul_machine::{InfoError, VmcoreInfo};

/// Returns the VMCOREINFO of a kernel that can be read.
pub(crate) fn info(memory: &dyn PhysMemory) -> Result<VmcoreInfo, KernelError> {
    let (_, text) = pagehaul_elfcore::notes::vmcoreinfo(memory.notes()).ok_or(KernelError::NoVmcoreInfo)?;
    let info = VmcoreInfo::parse(text);
    check(&info)?;
    Ok(info)
}

/// Passes kernels of a known architecture with SPARSEMEM.
fn check(info: &VmcoreInfo) -> Result<(), InfoError> {
    arch::of_kernel(info)?;
    let unsupported = |what: String| Err(InfoError::Unsupported(what));
    if info.symbol("mem_section").is_some() {
        return Ok(());
    }
    let model = match info.offset("pglist_data.node_mem_map") {
        Some(_) if info.symbol("mem_map").is_none() => "DISCONTIGMEM",
        Some(_) => "FLATMEM",
        None if info.symbol("mem_map").is_some() => "FLATMEM",
        None => return unsupported("VMCOREINFO has no SYMBOL(mem_section): only kernels with the SPARSEMEM memory model are supported".into()),
    };
    unsupported(format!("this kernel uses the {model} memory model; only SPARSEMEM is supported"))
}
