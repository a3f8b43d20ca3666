//! Whether this is a machine and a memory model that can be read at all, told by the keys only such kernels export.

use pagehaul_physmem::{PAGE_SIZE, PhysMemory};

use crate::{KernelError, VmcoreInfo};

/// Keys that only kernels of one architecture export (`arch/*/kernel/*vmcore_info*.c` and their forebears).
const OTHERS: [(&str, &str); 6] = [
    ("NUMBER(kimage_voffset)", "arm64"),
    ("SYMBOL(lowcore_ptr)", "s390"),
    ("NUMBER(satp)", "riscv64"),
    ("NUMBER(phys_ram_base)", "riscv64"),
    ("SYMBOL(vmemmap_list)", "ppc64"),
    ("CONFIG_X86_PAE", "32-bit x86"),
];

/// Returns the VMCOREINFO of a kernel that can be read.
pub(crate) fn info(memory: &dyn PhysMemory) -> Result<VmcoreInfo, KernelError> {
    let (_, text) = pagehaul_elfcore::notes::vmcoreinfo(memory.notes()).ok_or(KernelError::NoVmcoreInfo)?;
    let info = VmcoreInfo::parse(text);
    check(&info)?;
    Ok(info)
}

/// Passes x86_64 kernels with SPARSEMEM.
fn check(info: &VmcoreInfo) -> Result<(), KernelError> {
    let unsupported = |what: String| Err(KernelError::Unsupported(what));
    if info.symbol("init_top_pgt").or_else(|| info.symbol("init_level4_pgt")).is_none() {
        if let Some((_, machine)) = OTHERS.iter().find(|(key, _)| info.get(key).is_some()) {
            return unsupported(format!("this kernel is for {machine}; only x86_64 kernels are supported"));
        }
        return unsupported(
            "VMCOREINFO has neither SYMBOL(init_top_pgt) nor SYMBOL(init_level4_pgt), which x86_64 kernels export; only \
             these are supported"
                .into(),
        );
    }
    if let Some(size) = info.unsigned("PAGESIZE").filter(|size| *size != PAGE_SIZE as u64) {
        return Err(KernelError::BadValue {
            key: "PAGESIZE".into(),
            value: size.to_string(),
            expected: "x86_64 has pages of 4096 bytes",
        });
    }
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
