//! All that is known of the kernel that died.

use std::ops::Range;

use pagehaul_memory::PhysMemory;

use crate::{KernelError, PageClass, Translator, VmcoreInfo};

/// What the source knows of the kernel besides VMCOREINFO.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hints {
    /// Physical address the kernel image was loaded at, less the one it was linked for, as the ELF segment of the
    /// kernel's text gives it: its `p_paddr - (p_vaddr - 0xffffffff80000000)`. Needed where VMCOREINFO has no
    /// `NUMBER(phys_base)`.
    pub phys_base: Option<u64>,
}

/// A class of pages that this kernel's VMCOREINFO does not allow to tell: its pages are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Undecidable {
    /// The class.
    pub class: PageClass,
    /// The key or keys that VMCOREINFO lacks.
    pub missing: &'static str,
    /// What follows, in one sentence.
    pub consequence: &'static str,
}

/// The kernel that died: where its page tables and struct pages are, and how to read them. Shared by all threads.
#[derive(Debug, Clone)]
pub struct Kernel {
    info: VmcoreInfo,
    translator: Translator,
    undecidable: Vec<Undecidable>,
}

impl Kernel {
    /// Finds out everything needed to classify pages, or what is missing.
    pub fn discover(memory: &dyn PhysMemory, _hints: Hints) -> Result<Self, KernelError> {
        let (_, text) =
            pagehaul_memory::notes::vmcoreinfo(memory.notes()).ok_or(KernelError::NoVmcoreInfo)?;
        let info = VmcoreInfo::parse(text);
        Ok(Self { info, translator: Translator {}, undecidable: Vec::new() })
    }

    /// Every key the kernel exported.
    pub fn info(&self) -> &VmcoreInfo {
        &self.info
    }

    /// The kernel's page tables.
    pub fn translator(&self) -> &Translator {
        &self.translator
    }

    /// `uname -r` of the kernel.
    pub fn release(&self) -> &str {
        self.info.get("OSRELEASE").unwrap_or("unknown")
    }

    /// Seconds since 1970 at the crash. Absent where the kernel was not asked to write it: a dump taken by a
    /// hypervisor from a running kernel.
    pub fn crash_time(&self) -> Option<u64> {
        self.info.unsigned("CRASHTIME")
    }

    /// The build ID in hexadecimal (5.9 and later).
    pub fn build_id(&self) -> Option<&str> {
        self.info.get("BUILD-ID")
    }

    /// `uname -m` of the machine.
    pub fn machine(&self) -> &'static str {
        "x86_64"
    }

    /// What the kernel's image was moved by in physical memory (`phys_base`), as dump headers want it.
    pub fn phys_base(&self) -> u64 {
        0
    }

    /// Pages in a block: one memory section, 32,768 on x86_64.
    pub fn pages_per_block(&self) -> usize {
        1 << 15
    }

    /// How many blocks cover the PFNs below `max_pfn`.
    pub fn blocks(&self, max_pfn: u64) -> u64 {
        max_pfn.div_ceil(self.pages_per_block() as u64)
    }

    /// The PFNs of a block.
    pub fn block_pfns(&self, block: u64) -> Range<u64> {
        let pages = self.pages_per_block() as u64;
        block * pages..(block + 1) * pages
    }

    /// The classes this kernel's VMCOREINFO does not allow to tell, which are kept.
    pub fn undecidable(&self) -> &[Undecidable] {
        &self.undecidable
    }
}
