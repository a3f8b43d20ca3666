//! The memory of a source, with the notes that its file lacks, read through what changes it.

use pagehaul_elfcore::notes;
use pagehaul_machine::{KernelMapping, PageSize, PhysAddr, Platform, VmcoreInfo, arch};
use pagehaul_physmem::{PageState, PhysMemory, RangeMap, ReadError, View, Wrap};

use crate::kind::SourceKind;

/// What is in the files of a source, and what was found out about it.
pub(crate) struct Supplied {
    kind: SourceKind,
    notes: Option<Vec<u8>>,
    platform: Platform,
    /// What all reads go through.
    wrap: Option<Box<dyn Wrap>>,
}

impl Supplied {
    pub(crate) fn new(kind: SourceKind) -> Self {
        let platform = memory_of(&kind).platform();
        Self { kind, notes: None, platform, wrap: None }
    }

    pub(crate) fn kind(&self) -> &SourceKind {
        &self.kind
    }

    /// Has all reads go through `wrap`.
    pub(crate) fn read_through(&mut self, wrap: Box<dyn Wrap>) {
        self.wrap = Some(wrap);
    }

    pub(crate) fn is_changed(&self) -> bool {
        self.wrap.is_some()
    }

    /// Replaces the notes. VMCOREINFO among them says of what machine an image is.
    pub(crate) fn supply_notes(&mut self, supplied: Vec<u8>) {
        let info = notes::vmcoreinfo(&supplied).map(|(_, text)| VmcoreInfo::parse(text)).unwrap_or_default();
        if let Ok(arch) = arch::of_kernel(&info) {
            self.platform.machine = arch.elf_machine();
        }
        let size = info.unsigned("PAGESIZE").and_then(PageSize::new);
        self.platform.page_size = size.unwrap_or(self.platform.page_size);
        self.notes = Some(supplied);
    }
}

fn memory_of(kind: &SourceKind) -> &dyn PhysMemory {
    match kind {
        SourceKind::Elf(vmcore) => vmcore,
        SourceKind::Kdump(dump) | SourceKind::Flattened(dump) => dump,
        SourceKind::Split(set) => set,
        SourceKind::Image(image) => image,
        SourceKind::Simulated(memory) => &**memory,
    }
}

impl PhysMemory for Supplied {
    fn ranges(&self) -> &RangeMap {
        memory_of(&self.kind).ranges()
    }

    fn mark_stored(&self, from: PhysAddr, bits: &mut [u64]) -> Result<(), ReadError> {
        memory_of(&self.kind).mark_stored(from, bits)
    }

    fn held_bytes(&self) -> u64 {
        memory_of(&self.kind).held_bytes()
    }

    fn known_state(&self, paddr: u64) -> (Option<PageState>, u64) {
        memory_of(&self.kind).known_state(paddr)
    }

    fn view(&self) -> Box<dyn View + '_> {
        let view = memory_of(&self.kind).view();
        match &self.wrap {
            Some(wrap) => wrap.wrap(view),
            None => view,
        }
    }

    fn notes(&self) -> &[u8] {
        self.notes.as_deref().unwrap_or_else(|| memory_of(&self.kind).notes())
    }

    fn platform(&self) -> Platform {
        self.platform
    }

    fn faults(&self) -> Vec<String> {
        memory_of(&self.kind).faults()
    }

    fn files(&self) -> Vec<(u64, u64)> {
        memory_of(&self.kind).files()
    }

    fn kernel_mapping(&self) -> Option<KernelMapping> {
        memory_of(&self.kind).kernel_mapping()
    }

    fn direct_map(&self) -> Option<u64> {
        memory_of(&self.kind).direct_map()
    }
}
