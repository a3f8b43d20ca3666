//! The machine's identity in the header of a dump.

use pagehaul_kdump::UtsName;
use pagehaul_kernel::AddressSpace;
use pagehaul_physmem::PhysMemory;
use pagehaul_vmcore::Source;

/// Returns `uname` of the crashed machine: from its memory, from the dump that is the source, or from VMCOREINFO and the
/// headers of the source.
pub(crate) fn utsname(source: &Source, space: Option<&AddressSpace>) -> UtsName {
    if let Some(uts) = space.and_then(|space| from_memory(source.memory(), space)) {
        return uts;
    }
    match source.dumps().first() {
        // What is erased in memory may be in its header.
        Some(dump) if source.is_changed() => {
            UtsName { nodename: String::new(), domainname: String::new(), ..dump.info().uts.clone() }
        }
        Some(dump) => dump.info().uts.clone(),
        None => {
            let machine = match space {
                Some(space) => space.machine().to_owned(),
                None => source.memory().platform().name(),
            };
            UtsName { machine, ..UtsName::x86_64(space.map_or("", AddressSpace::release)) }
        }
    }
}

/// Returns `init_uts_ns.name` of the crashed kernel.
fn from_memory(memory: &dyn PhysMemory, space: &AddressSpace) -> Option<UtsName> {
    let uts = UtsName::decode(&space.new_utsname(memory).ok()?);
    // VMCOREINFO has the release too: anything else is not `init_uts_ns`.
    (uts.release == space.release()).then_some(UtsName { machine: space.machine().into(), ..uts })
}
