//! Walks that find pages without a mark of their owner.

pub(crate) mod files;
mod per_cpu_lists;
mod tables;
mod vmalloc;

use std::ops::Range;

use pagehaul_inspect::{Machine, Tasks};
use pagehaul_kernel::{Kernel, Memmap};
use pagehaul_machine::{PageCount, Pfn};
use pagehaul_physmem::PhysMemory;

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
    /// Those on lists that a CPU was changing: their number is known, but not which they are.
    pub(crate) in_change: PageCount,
    /// These lists, one sentence each.
    pub(crate) changing: Vec<String>,
    /// Pages of stacks that CPUs keep for new tasks.
    pub(crate) kept_stacks: PageCount,
}

impl<'a> Walks<'a> {
    pub(crate) fn new(
        machine: &'a Machine<'a>,
        kernel: &'a Kernel,
        memory: &'a dyn PhysMemory,
        memmap: &'a Memmap,
        tasks: &'a Tasks,
    ) -> Self {
        Self {
            machine,
            kernel,
            memory,
            memmap,
            tasks,
            kernel_tables: Vec::new(),
            claims: Claims::default(),
            missing: Vec::new(),
            listed: None,
            in_change: PageCount::ZERO,
            changing: Vec::new(),
            kept_stacks: PageCount::ZERO,
        }
    }
}

impl Walks<'_> {
    /// Claims pages. The first walks have precedence.
    pub(crate) fn run(&mut self) {
        Self::parts().into_iter().for_each(|part| part(self));
        self.claims.finish();
    }

    /// Returns its parts, each of which can be run alone.
    pub(crate) fn parts() -> [fn(&mut Self); 4] {
        [Self::per_cpu_lists, Self::vmalloc, Self::page_tables, Self::pipes]
    }

    fn missing(&mut self, what: &str, why: impl std::fmt::Display) {
        self.missing.push(format!("{what}: {why}"));
    }
}
