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
        None => {
            let machine = kernel.map_or("x86_64", Kernel::machine).into();
            UtsName { machine, ..UtsName::x86_64(kernel.map_or("", Kernel::release)) }
        }
    }
}

/// Byte offset of `name` in `struct uts_namespace` of kernels that do not export it: behind a kref of 4 bytes, until
/// 9a56493f6942 (5.11) moved the count away. ca4a9241cc5e (5.11) exports the offset.
const NAME_BEHIND_KREF: u64 = 4;

/// Returns `init_uts_ns.name` of the crashed kernel.
fn from_memory(memory: &dyn PhysMemory, kernel: &Kernel) -> Option<UtsName> {
    let info = kernel.info();
    let name = info.offset("uts_namespace.name").unwrap_or(NAME_BEHIND_KREF);
    let at = info.symbol("init_uts_ns")?.checked_add(name)?;
    let mut bytes = [0; 390];
    kernel.translator().read(&mut *memory.view(), at, &mut bytes).ok()?;
    let uts = UtsName::decode(&bytes);
    // VMCOREINFO has the release too: anything else is not `init_uts_ns`.
    (uts.release == kernel.release()).then_some(UtsName { machine: kernel.machine().into(), ..uts })
}
