//! Walks that find pages without a mark of their owner.

mod files;
mod per_cpu_lists;
mod tables;
mod vmalloc;

use std::ops::Range;

use pagehaul_inspect::{Machine, Tasks};
use pagehaul_kernel::{Kernel, Memmap};
use pagehaul_machine::{PageCount, Pfn};
use pagehaul_physmem::PhysMemory;

pub(crate) use files::{Held, holders};

use crate::claims::Claims;

/// What walks need, and what they find.
pub(crate) struct Walks<'a> {
    pub(crate) machine: &'a Machine<'a>,
    pub(crate) kernel: &'a Kernel,
    pub(crate) memory: &'a dyn PhysMemory,
    pub(crate) memmap: &'a Memmap,
    pub(crate) tasks: &'a Tasks,
    /// The kernel's own page tables.
    pub(crate) kernel_tables: Vec<Range<Pfn>>,
    pub(crate) claims: Claims,
    pub(crate) missing: Vec<String>,
    /// Free pages on per-CPU lists by the lists' own counts.
    pub(crate) listed: Option<PageCount>,
    /// Pages of stacks that CPUs keep for new tasks.
    pub(crate) kept_stacks: PageCount,
}

impl Walks<'_> {
    /// Claims pages. The first walks have precedence.
    pub(crate) fn run(&mut self) {
        self.per_cpu_lists();
        self.vmalloc();
        self.page_tables();
        self.pipes();
        self.claims.finish();
    }

    fn missing(&mut self, what: &str, why: impl std::fmt::Display) {
        self.missing.push(format!("{what}: {why}"));
    }
}
