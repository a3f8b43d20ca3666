//! The machine's identity in the header of a dump.

use pagehaul_kdump::UtsName;
use pagehaul_kernel::Kernel;
use pagehaul_physmem::PhysMemory;
use pagehaul_vmcore::Source;

/// Returns `uname` of the crashed machine: from its memory, from the dump that is the source, or from VMCOREINFO.
pub(crate) fn utsname(source: &Source, kernel: Option<&Kernel>) -> UtsName {
    if let Some(uts) = kernel.and_then(|kernel| from_memory(source.memory(), kernel)) {
        return uts;
    }
    match source.dumps().first() {
        Some(dump) => dump.info().uts.clone(),
        None => UtsName::x86_64(kernel.map_or("", Kernel::release)),
    }
}

/// Returns `init_uts_ns.name` of the crashed kernel.
fn from_memory(memory: &dyn PhysMemory, kernel: &Kernel) -> Option<UtsName> {
    let info = kernel.info();
    let at = info.symbol("init_uts_ns")?.checked_add(info.offset("uts_namespace.name")?)?;
    let mut bytes = [0; 390];
    kernel.translator().read(&mut *memory.view(), at, &mut bytes).ok()?;
    let uts = UtsName::decode(&bytes);
    // VMCOREINFO has the release too: anything else is not `init_uts_ns`.
    (uts.release == kernel.release()).then_some(UtsName { machine: kernel.machine().into(), ..uts })
}
