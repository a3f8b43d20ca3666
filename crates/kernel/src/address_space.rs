//! The kernel's virtual memory, without its struct pages.

use pagehaul_physmem::PhysMemory;

use crate::sections::Sections;
use crate::{Hints, KernelError, Translator, VmcoreInfo, machine};

/// Where the kernel's virtual memory is: all that analysis needs. Unlike [`Kernel`], it needs no memory sections, which
/// an incomplete dump may lack.
#[derive(Debug, Clone)]
pub struct AddressSpace {
    info: VmcoreInfo,
    translator: Translator,
    direct_map: Option<u64>,
}

impl AddressSpace {
    /// Finds the page tables.
    pub fn discover(memory: &dyn PhysMemory, hints: Hints) -> Result<Self, KernelError> {
        let info = machine::info(memory)?;
        let translator = Translator::discover(&info, memory, hints)?;
        let mut view = memory.view();
        let sections = Sections::discover(&info, &translator, view.as_mut()).ok();
        let known = translator.arch().direct_map().or_else(|| memory.direct_map());
        let direct_map =
            known.or_else(|| sections.and_then(|sections| sections.direct_map(&translator, view.as_mut())));
        Ok(Self { info, translator, direct_map })
    }

    /// Every key the kernel exported.
    pub fn info(&self) -> &VmcoreInfo {
        &self.info
    }

    /// The kernel's page tables.
    pub fn translator(&self) -> &Translator {
        &self.translator
    }

    /// `uname -m` of the machine.
    pub fn machine(&self) -> &'static str {
        self.translator.arch().name()
    }

    /// The virtual address at which the kernel sees physical address 0 (PAGE_OFFSET on x86_64), modulo 2^64, if memory or
    /// VMCOREINFO tells it.
    pub fn direct_map(&self) -> Option<u64> {
        self.direct_map
    }
}
