//! All that is known of the kernel that died.

use std::ops::Range;

use pagehaul_physmem::{KernelMapping, PAGE_SIZE, PhysMemory};

use crate::rules::Rules;
use crate::sections::Sections;
use crate::{KernelError, PageClass, Translator, VmcoreInfo, machine};

/// What is known of the kernel besides VMCOREINFO.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hints {
    /// What the kernel image was moved by in physical memory, modulo 2^64: the physical address of any byte of the
    /// image, less its virtual one, plus `0xffffffff80000000`. Used where VMCOREINFO has no `NUMBER(phys_base)`.
    pub phys_base: Option<u64>,
}

impl Hints {
    /// What the source itself tells.
    pub fn from_memory(memory: &dyn PhysMemory) -> Self {
        let base = |image: KernelMapping| {
            image.paddr.wrapping_sub(image.vaddr.wrapping_sub(crate::arch::START_KERNEL_MAP))
        };
        Self { phys_base: memory.kernel_mapping().map(base) }
    }
}

/// A class of pages that this kernel's VMCOREINFO does not allow to tell, wholly or in part: such pages are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Undecidable {
    /// The class.
    pub class: PageClass,
    /// The key or keys that VMCOREINFO lacks.
    pub missing: &'static str,
    /// What follows, as the second half of a sentence: "free pages are kept".
    pub consequence: &'static str,
}

impl std::fmt::Display for Undecidable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: VMCOREINFO has no {}: {}", self.class.name(), self.missing, self.consequence)
    }
}

/// The kernel that died: where its page tables and struct pages are, and how to read them. Shared by all threads.
#[derive(Debug, Clone)]
pub struct Kernel {
    info: VmcoreInfo,
    translator: Translator,
    sections: Sections,
    rules: Rules,
    undecidable: Vec<Undecidable>,
    direct_map: Option<u64>,
}

impl Kernel {
    /// Finds out everything needed to classify pages, or what is missing.
    pub fn discover(memory: &dyn PhysMemory, hints: Hints) -> Result<Self, KernelError> {
        let info = machine::info(memory)?;
        // Before any memory is read: a kernel whose pages cannot be told apart need not be searched for.
        let (rules, undecidable) = Rules::new(&info)?;
        let translator = Translator::discover(&info, memory, hints)?;
        if translator.page_size() != PAGE_SIZE as u64 {
            return Err(KernelError::Unsupported(format!(
                "this kernel has pages of {} bytes; page classes are known only for pages of {PAGE_SIZE} bytes",
                translator.page_size()
            )));
        }
        let mut view = memory.view();
        let sections = Sections::discover(&info, &translator, view.as_mut())?;
        let direct_map = sections.direct_map(&translator, view.as_mut());
        Ok(Self { info, translator, sections, rules, undecidable, direct_map })
    }

    /// Every key the kernel exported.
    pub fn info(&self) -> &VmcoreInfo {
        &self.info
    }

    /// The kernel's page tables.
    pub fn translator(&self) -> &Translator {
        &self.translator
    }

    /// The virtual address at which the kernel sees physical address 0 (PAGE_OFFSET on x86_64), modulo 2^64, where its
    /// memory or VMCOREINFO tells.
    pub fn direct_map(&self) -> Option<u64> {
        self.direct_map
    }

    pub(crate) fn sections(&self) -> &Sections {
        &self.sections
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }

    /// `uname -r` of the kernel.
    pub fn release(&self) -> &str {
        self.info.get("OSRELEASE").unwrap_or("unknown")
    }

    /// Seconds since 1970 at the crash. Absent where the kernel never came to write it: in a dump that a hypervisor took
    /// of a running kernel.
    pub fn crash_time(&self) -> Option<u64> {
        self.info.unsigned("CRASHTIME")
    }

    /// The build ID in hexadecimal (0935288c6e00, 5.9).
    pub fn build_id(&self) -> Option<&str> {
        self.info.get("BUILD-ID")
    }

    /// `uname -m` of the machine.
    pub fn machine(&self) -> &'static str {
        self.translator.arch().name()
    }

    /// `phys_base` of dump headers, modulo 2^64: what the kernel image was moved by in physical memory; on arm64 the
    /// physical address at which the linear map starts.
    pub fn phys_base(&self) -> u64 {
        self.translator.arch().phys_base()
    }

    /// Pages in a block: one memory section, 32,768 on x86_64 and since 5.12 on arm64. A power of two, at least 256.
    pub fn pages_per_block(&self) -> usize {
        self.sections.pages() as usize
    }

    /// How many blocks cover the PFNs below `max_pfn`.
    pub fn blocks(&self, max_pfn: u64) -> u64 {
        max_pfn.div_ceil(self.sections.pages())
    }

    /// The PFNs of a block.
    pub fn block_pfns(&self, block: u64) -> Range<u64> {
        let first = block.saturating_mul(self.sections.pages());
        first..first.saturating_add(self.sections.pages())
    }

    /// The classes this kernel's VMCOREINFO does not allow to tell, which are kept.
    pub fn undecidable(&self) -> &[Undecidable] {
        &self.undecidable
    }
}
