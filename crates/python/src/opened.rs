//! An open dump, and its kernel's address space once it is needed.

use std::sync::OnceLock;

use pagehaul_facts::Facts;
use pagehaul_kernel::{AddressSpace, DirectMap, VirtualMemory};
use pagehaul_vmcore::Source;
use pyo3::Python;

use crate::errors::ReadFailure;

/// A dump.
pub(crate) struct Opened {
    pub(crate) source: Source,
    /// Found at the first use of a virtual address.
    space: OnceLock<Result<Space, String>>,
    crash_id: OnceLock<String>,
}

/// The kernel's address space.
pub(crate) struct Space {
    pub(crate) tables: AddressSpace,
    pub(crate) direct_map: DirectMap,
}

impl Space {
    fn discover(source: &Source) -> Result<Self, String> {
        let memory = source.memory();
        let tables = AddressSpace::discover(memory).map_err(|why| why.to_string())?;
        let direct_map = VirtualMemory::new(&tables, memory).direct_map();
        Ok(Self { tables, direct_map })
    }
}

impl Opened {
    pub(crate) fn new(source: Source) -> Self {
        Self { source, space: OnceLock::new(), crash_id: OnceLock::new() }
    }

    /// Returns the ID of the crash, which takes the log of dumps without CRASHTIME.
    pub(crate) fn crash_id(&self, py: Python<'_>) -> String {
        if let Some(found) = self.crash_id.get() {
            return found.clone();
        }
        // Not `get_or_init`, as below.
        let found = py.detach(|| Facts::read(self.source.memory(), String::new()).id.crash_id);
        let _ = self.crash_id.set(found.clone());
        found
    }

    /// Returns the kernel's address space.
    pub(crate) fn space(&self, py: Python<'_>) -> Result<&Space, ReadFailure> {
        if self.space.get().is_none() {
            // Not `get_or_init`: a fork while it runs would leave it locked in the child.
            let found = py.detach(|| Space::discover(&self.source));
            // Another thread may have been faster.
            let _ = self.space.set(found);
        }
        match self.space.get() {
            Some(Ok(space)) => Ok(space),
            Some(Err(why)) => Err(ReadFailure::NoKernel(why.clone())),
            None => Err(ReadFailure::NoKernel("they were not found".into())),
        }
    }
}
