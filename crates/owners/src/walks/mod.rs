//! Walks that find pages without a mark of their owner.

mod bpf;
mod cma;
pub(crate) mod holders;
mod io_uring;
mod kvm;
mod open_files;
mod per_cpu_lists;
mod perf;
mod pipes;
mod ring_buffers;
mod sockets;
mod tables;
mod vmalloc;

use std::ops::Range;

use pagehaul_btf::{Fault, Object};
use pagehaul_inspect::{Machine, Tasks};
use pagehaul_kernel::{Kernel, Memmap, StructPage};
use pagehaul_machine::{PageCount, Pfn, PhysAddr, VirtAddr};
use pagehaul_physmem::{PhysMemory, View};

use crate::claims::{ClaimantId, Claims};
use crate::loss::PhysicalLoss;
use sockets::Packets;

/// What walks need, and what they find.
pub(crate) struct Walks<'a> {
    pub(crate) machine: &'a Machine<'a>,
    pub(crate) kernel: &'a Kernel,
    pub(crate) memory: &'a dyn PhysMemory,
    pub(crate) view: Box<dyn View + 'a>,
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
    pub(crate) packets: Packets,
    /// Roots among KVM's page tables, which no counter has.
    pub(crate) kvm_roots: PageCount,
    /// Parts that were not read to their ends, and why.
    pub(crate) broken: Vec<(&'static str, String)>,
    /// What `memory` lost, if it is read through it.
    pub(crate) loss: Option<&'a PhysicalLoss>,
    /// Runs that were claimed before the part that runs.
    pub(crate) claimed_before: usize,
}

/// A part of the walks with its name.
type Part<'a> = (&'static str, fn(&mut Walks<'a>));

pub(crate) const PER_CPU_LISTS: &str = "free pages on per-CPU lists";
pub(crate) const VMALLOC: &str = "vmalloc areas";
pub(crate) const KVM_TABLES: &str = "page tables of KVM";

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
            view: memory.view(),
            memmap,
            tasks,
            kernel_tables: Vec::new(),
            claims: Claims::default(),
            missing: Vec::new(),
            listed: None,
            in_change: PageCount::ZERO,
            changing: Vec::new(),
            kept_stacks: PageCount::ZERO,
            packets: Packets::default(),
            kvm_roots: PageCount::ZERO,
            broken: Vec::new(),
            loss: None,
            claimed_before: 0,
        }
    }
}

impl<'a> Walks<'a> {
    /// Claims pages. The first walks have precedence.
    pub(crate) fn run(&mut self) {
        for (what, part) in Self::parts() {
            self.claimed_before = self.claims.count();
            let (machine, said) = (self.machine, self.missing.len());
            let ((), lost) = machine.losing(|| part(self));
            let lost = lost.or(self.loss.and_then(PhysicalLoss::take));
            // One that takes what it cannot read for what is not there.
            if self.missing.len() == said
                && let Some(why) = lost
            {
                self.missing(what, why);
            }
            if let Some(why) = self.missing.get(said) {
                self.broken.push((what, why.clone()));
            }
        }
        self.claims.finish();
    }

    /// Returns its parts, each of which can be run alone.
    pub(crate) fn parts() -> [Part<'a>; 7] {
        [
            (PER_CPU_LISTS, Self::per_cpu_lists),
            (VMALLOC, Self::vmalloc),
            ("page directories", Self::page_tables),
            ("open files", Self::open_files),
            ("ring buffers", Self::ring_buffers),
            ("CMA", Self::cma),
            (KVM_TABLES, Self::kvm),
        ]
    }

    /// Returns how many pages the machine can have, which bounds what damaged counts ask for.
    fn pages_of_machine(&self) -> u64 {
        self.memory.ranges().end_pfn(self.kernel.page_size()).number()
    }

    /// Claims the page whose struct page is at an address, if there is one.
    fn claim_struct_page(&mut self, address: u64, claimant: ClaimantId) {
        if let Some(pfn) = self.memmap.pfn(VirtAddr::new(address)) {
            self.claims.add(pfn..pfn + PageCount::new(1), claimant);
        }
    }

    /// Claims the block that the page whose struct page is at an address is a part of. Pages of a compound page count as their head does.
    fn claim_block_of(&mut self, address: u64, claimant: ClaimantId) {
        let mut bytes = vec![0; self.kernel.struct_page_size()];
        let read = self.machine.memory().read(address, &mut bytes);
        let head = read.ok().and_then(|()| StructPage::of(self.kernel, address, &bytes).head());
        self.claim_struct_page(head.unwrap_or(address), claimant);
    }

    /// Claims the pages of an array of pointers to struct pages, and of as many as the machine can have.
    fn claim_array(
        &mut self,
        object: &Object<'_>,
        pages: &str,
        count: &str,
        claimant: ClaimantId,
    ) -> Result<(), Fault> {
        let count = object.number(count)?.min(self.pages_of_machine());
        if count > 0 {
            let bytes = self.machine.memory().bytes(object.get(pages)?.pointer()?, 8 * count as usize)?;
            for word in bytes.as_chunks::<8>().0 {
                self.claim_struct_page(u64::from_le_bytes(*word), claimant);
            }
        }
        Ok(())
    }

    /// Claims the page that the kernel has at an address.
    fn claim_at(&mut self, address: u64, claimant: ClaimantId) -> Result<(), Fault> {
        self.claim_block_at(address, 1, claimant)
    }

    /// Claims a block of pages that the kernel has at an address.
    fn claim_block_at(&mut self, address: u64, pages: u64, claimant: ClaimantId) -> Result<(), Fault> {
        let pfn = self.pfn_at(address)?;
        self.claims.add(pfn..pfn + PageCount::new(pages), claimant);
        Ok(())
    }

    /// Returns the page that the kernel has at an address.
    fn pfn_at(&mut self, address: u64) -> Result<Pfn, Fault> {
        let found = self.kernel.space().translator().translate(self.view.as_mut(), address)?;
        Ok(PhysAddr::new(found.paddr).pfn(self.kernel.page_size()))
    }

    /// Adds that some of a part is missing.
    fn missing(&mut self, what: &str, why: impl std::fmt::Display) {
        self.missing.push(format!("{what}: {why}"));
    }

    /// Adds why a part ended before its end. If it has claimed nothing until then, no page of it was found because none was looked for.
    fn failed(&mut self, what: &str, why: impl std::fmt::Display) {
        let nothing = self.claims.count() == self.claimed_before;
        self.missing(what, format_args!("{}{why}", if nothing { "not checked: " } else { "" }));
    }
}
