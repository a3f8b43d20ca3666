//! The kernel's virtual address space, without struct pages.

use pagehaul_machine::{Arch, PageSize};
use pagehaul_physmem::{PageState, PhysMemory};

use crate::error::{KernelError, TranslateError};
use crate::machine;
use crate::sections::Sections;
use crate::translate::Translator;
use pagehaul_machine::VmcoreInfo;

/// Byte offset of `name` in `struct uts_namespace` of kernels that do not export it: behind a kref of 4 bytes, until
/// 9a56493f6942 (5.11) moved the count away. ca4a9241cc5e (5.11) exports the offset.
const NAME_BEHIND_KREF: u64 = 4;

/// VMCOREINFO, the page tables and the direct map: all that reading the kernel's data takes. Unlike [`Kernel`](crate::Kernel),
/// it needs no memory sections, which an incomplete dump may lack.
#[derive(Debug, Clone)]
pub struct AddressSpace {
    info: VmcoreInfo,
    translator: Translator,
    direct_map: Option<u64>,
    without_struct_pages: Option<&'static str>,
}

impl AddressSpace {
    /// Finds the page tables and the direct map.
    pub fn discover(memory: &dyn PhysMemory) -> Result<Self, KernelError> {
        let space = Self::without_direct_map(machine::info(memory)?, memory)?;
        let sections = Sections::discover(&space.info, &space.translator, memory.view().as_mut());
        let mut space = space.with_direct_map(memory, sections.as_ref().ok());
        if let Err(KernelError::NoStructPages { why }) = sections {
            space.without_struct_pages = Some(why);
        }
        Ok(space)
    }

    /// Finds the page tables.
    pub(crate) fn without_direct_map(info: VmcoreInfo, memory: &dyn PhysMemory) -> Result<Self, KernelError> {
        let translator = Translator::discover(&info, memory)?;
        Ok(Self { info, translator, direct_map: None, without_struct_pages: None })
    }

    /// Finds the direct map: from VMCOREINFO, else from the source, else by the address of a root of sections.
    pub(crate) fn with_direct_map(mut self, memory: &dyn PhysMemory, sections: Option<&Sections>) -> Self {
        let known = self.translator.layout().direct_map().or_else(|| memory.direct_map());
        self.direct_map = known.or_else(|| sections?.direct_map(&self.translator, memory.view().as_mut()));
        self
    }

    /// Returns why the source lacks the struct pages, and much else that the kernel allocated early, and what to do.
    pub fn without_struct_pages(&self) -> Option<&'static str> {
        self.without_struct_pages
    }

    /// Returns VMCOREINFO.
    pub fn info(&self) -> &VmcoreInfo {
        &self.info
    }

    /// Returns the kernel's page tables.
    pub fn translator(&self) -> &Translator {
        &self.translator
    }

    /// Returns the size of the machine's pages.
    pub fn page_size(&self) -> PageSize {
        self.translator.tables().page_size
    }

    /// Returns the virtual address of physical address 0 (PAGE_OFFSET on x86_64), modulo 2^64, if it is known.
    pub fn direct_map(&self) -> Option<u64> {
        self.direct_map
    }

    /// Returns the architecture.
    pub fn arch(&self) -> &'static dyn Arch {
        self.translator.arch()
    }

    /// Returns `uname -m` of the machine.
    pub fn machine(&self) -> &'static str {
        self.arch().uname()
    }

    /// Returns `uname -r` of the kernel.
    pub fn release(&self) -> &str {
        self.info.get("OSRELEASE").unwrap_or("unknown")
    }

    /// Returns the time of the crash, in seconds since 1970. Absent where the kernel never wrote it: in a dump that a
    /// hypervisor took of a running kernel.
    pub fn crash_time(&self) -> Option<u64> {
        self.info.unsigned("CRASHTIME")
    }

    /// Returns the build ID in hexadecimal (0935288c6e00, 5.9).
    pub fn build_id(&self) -> Option<&str> {
        self.info.get("BUILD-ID")
    }

    /// Returns the address of `init_uts_ns.name` (`struct new_utsname`), by VMCOREINFO.
    pub fn new_utsname_at(&self) -> Option<u64> {
        let name = self.info().offset("uts_namespace.name").unwrap_or(NAME_BEHIND_KREF);
        self.info().symbol("init_uts_ns")?.checked_add(name)
    }

    /// Returns the bytes of `init_uts_ns.name` (`struct new_utsname`): six fields of 65 bytes.
    ///
    /// # Errors
    /// Says whether VMCOREINFO does not name it, or the dump excludes it, or has lost it.
    pub fn new_utsname(&self, memory: &dyn PhysMemory) -> Result<[u8; 390], String> {
        let at = self.new_utsname_at().ok_or("VMCOREINFO has no init_uts_ns")?;
        let mut bytes = [0; 390];
        let read = self.translator().read(&mut *memory.view(), at, &mut bytes);
        read.map_err(|why| unread_utsname(&why)).map(|()| bytes)
    }

    /// Returns a return address of kernel code, found on a stack or in a register, without the signature of pointer
    /// authentication (arm64).
    pub fn return_address(&self, word: u64) -> u64 {
        self.translator.layout().return_address(word)
    }

    /// Returns `phys_base` of dump headers, modulo 2^64: how far the kernel image was moved in physical memory; on arm64 the
    /// physical address at which the linear map starts.
    pub fn phys_base(&self) -> u64 {
        self.translator.layout().phys_base()
    }
}

/// Returns why `init_uts_ns` could not be read, as a sentence.
pub fn unread_utsname(why: &TranslateError) -> String {
    match why.state() {
        PageState::Missing | PageState::Damaged => format!("the page of init_uts_ns is lost: {why}"),
        PageState::Excluded => "init_uts_ns is not in the dump".into(),
        PageState::Present | PageState::Absent => format!("init_uts_ns cannot be read: {why}"),
    }
}

#[cfg(test)]
mod tests {
    use pagehaul_physmem::ReadError;

    use super::*;

    #[test]
    fn a_name_that_is_lost_is_not_called_excluded() {
        let of = |source| unread_utsname(&TranslateError::Contents { vaddr: 0x9000, paddr: 0x1000, source });
        let lost = of(ReadError::Damaged { paddr: 0x1000, reason: "zlib".into() });
        assert!(lost.starts_with("the page of init_uts_ns is lost: ") && lost.ends_with("zlib"), "{lost}");
        let lost = of(ReadError::Missing { paddr: 0x1000, reason: "cut".into() });
        assert!(lost.starts_with("the page of init_uts_ns is lost: "), "{lost}");
        assert_eq!(of(ReadError::NotInDump { paddr: 0x1000 }), "init_uts_ns is not in the dump");
        assert!(of(ReadError::NotPresent { paddr: 0x1000 }).starts_with("init_uts_ns cannot be read: "));
    }
}
