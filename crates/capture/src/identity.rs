//! The machine's identity in the header of a dump.

use pagehaul_kdump::UtsName;
use pagehaul_kernel::AddressSpace;
use pagehaul_physmem::PhysMemory;
use pagehaul_vmcore::Source;

/// Returns `uname` of the crashed machine: from its memory, from the dump that is the source, or from VMCOREINFO.
pub(crate) fn utsname(source: &Source, space: Option<&AddressSpace>) -> UtsName {
    if let Some(uts) = space.and_then(|space| from_memory(source.memory(), space)) {
        return uts;
    }
    match source.dumps().first() {
        Some(dump) => dump.info().uts.clone(),
        None => {
            let machine = space.map_or("x86_64", AddressSpace::machine).into();
            UtsName { machine, ..UtsName::x86_64(space.map_or("", AddressSpace::release)) }
        }
    }
}

/// Byte offset of `name` in `struct uts_namespace` of kernels that do not export it: behind a kref of 4 bytes, until
/// 9a56493f6942 (5.11) moved the count away. ca4a9241cc5e (5.11) exports the offset.
const NAME_BEHIND_KREF: u64 = 4;

/// Returns `init_uts_ns.name` of the crashed kernel.
fn from_memory(memory: &dyn PhysMemory, space: &AddressSpace) -> Option<UtsName> {
    let info = space.info();
    let name = info.offset("uts_namespace.name").unwrap_or(NAME_BEHIND_KREF);
    let at = info.symbol("init_uts_ns")?.checked_add(name)?;
    let mut bytes = [0; 390];
    space.translator().read(&mut *memory.view(), at, &mut bytes).ok()?;
    let uts = UtsName::decode(&bytes);
    // VMCOREINFO has the release too: anything else is not `init_uts_ns`.
    (uts.release == space.release()).then_some(UtsName { machine: space.machine().into(), ..uts })
}
