//! Memory that is read through something else, such as a recorder.

use pagehaul_machine::{KernelMapping, PhysAddr, Platform};

use crate::error::ReadError;
use crate::ranges::RangeMap;
use crate::state::PageState;
use crate::view::{PhysMemory, View};

/// What reads go through.
pub trait Wrap: Send + Sync {
    /// Returns a view that reads through `view`.
    fn wrap<'a>(&'a self, view: Box<dyn View + 'a>) -> Box<dyn View + 'a>;
}

/// Memory whose views are wrapped. All else is that of the memory.
pub struct Wrapped<'a, W> {
    memory: &'a dyn PhysMemory,
    wrap: W,
}

impl<'a, W: Wrap> Wrapped<'a, W> {
    /// Reads `memory` through `wrap`.
    pub fn through(wrap: W, memory: &'a dyn PhysMemory) -> Self {
        Self { memory, wrap }
    }

    /// What reads go through.
    pub fn wrap(&self) -> &W {
        &self.wrap
    }
}

impl<W: Wrap> PhysMemory for Wrapped<'_, W> {
    fn ranges(&self) -> &RangeMap {
        self.memory.ranges()
    }

    fn mark_stored(&self, from: PhysAddr, bits: &mut [u64]) -> Result<(), ReadError> {
        self.memory.mark_stored(from, bits)
    }

    fn held_bytes(&self) -> u64 {
        self.memory.held_bytes()
    }

    fn known_state(&self, paddr: u64) -> (Option<PageState>, u64) {
        self.memory.known_state(paddr)
    }

    fn view(&self) -> Box<dyn View + '_> {
        self.wrap.wrap(self.memory.view())
    }

    fn notes(&self) -> &[u8] {
        self.memory.notes()
    }

    fn platform(&self) -> Platform {
        self.memory.platform()
    }

    fn faults(&self) -> Vec<String> {
        self.memory.faults()
    }

    fn files(&self) -> Vec<(u64, u64)> {
        self.memory.files()
    }

    fn kernel_mapping(&self) -> Option<KernelMapping> {
        self.memory.kernel_mapping()
    }

    fn direct_map(&self) -> Option<u64> {
        self.memory.direct_map()
    }
}
