//! A dump that is damaged in many places: pages are missing, words are arbitrary or point elsewhere. The report ends.

use crate::{Base, Simulation};
use pagehaul_erase::Subject;
use pagehaul_inspect::{
    Machine, OnRequest, PageExt, Requested, StackDepot, TriageReport, alloc_tags, code_tag, detail,
    difference, per_cpu_free,
};
use pagehaul_kernel::{AddressSpace, KernelLog, VirtualMemory};
use pagehaul_physmem::{PhysMemory, Wrap};

/// Tasks of which everything is read.
const DETAILED: usize = 16;

/// What is kept of allocations: as much of it as a few words lead to.
fn recorded(machine: &Machine<'_>, data: &[u8]) {
    let depot = StackDepot::new(machine);
    let ext = PageExt::new(machine);
    for bytes in data.chunks(64).take(DETAILED) {
        if let (Ok(depot), Some(handle)) = (&depot, bytes.first_chunk()) {
            let _ = depot.stack(u32::from_le_bytes(*handle)).map(|stack| assert!(stack.len() <= 256));
        }
        if let Some(ext) = &ext {
            let flags = bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            let _ = (ext.owner(bytes), ext.tag(bytes), ext.tag_in_flags(flags));
        }
    }
    // Indices of pools and offsets of records that exist.
    for handle in (0..64).flat_map(|offset| [2 | offset << 17, 1 | offset << 16 | 1 << 26]) {
        let _ = depot.as_ref().map(|depot| depot.stack(handle));
    }
    if let Ok(Some(tags)) = alloc_tags(machine) {
        for tag in tags.all.iter().take(DETAILED) {
            let _ = code_tag(machine, tag.address);
        }
    }
}

/// Runs the target.
pub fn run(data: &[u8]) {
    let base = Base::inspectable();
    let page = |bytes: [u8; 2]| base.pfns[usize::from(u16::from_le_bytes(bytes)) % base.pfns.len()];
    let offset = |bytes: [u8; 2]| u64::from(u16::from_le_bytes(bytes) & 0xfff);
    let mut simulation = Simulation::on(base);
    for patch in data.as_chunks::<13>().0 {
        let &[kind, a, b, c, d, ref word @ ..] = patch;
        let (pfn, at) = (page([a, b]), offset([c, d]));
        simulation = match kind % 8 {
            0 => simulation.without(pfn),
            1..=3 => {
                let [a, b, c, d, ..] = *word;
                let pointer = base.image.page_offset() + (page([a, b]) << 12) + offset([c, d]);
                simulation.with_bytes((pfn << 12) + at, &pointer.to_le_bytes())
            }
            _ => simulation.with_bytes((pfn << 12) + at, word),
        };
    }
    let Ok(kernel) = AddressSpace::discover(&simulation) else { return };
    let memory = VirtualMemory::new(&kernel, &simulation);
    let machine = Machine::open(&kernel, &memory, simulation.notes())
        .unwrap_or_else(|why| Machine::without_symbols(&kernel, &memory, simulation.notes(), &why));
    if let Ok(found) = pagehaul_erase::find(&simulation, &Subject::ALL) {
        let mut page = [0; 4096];
        let view = simulation.view();
        let _ = found.erasure.wrap(view).read(base.pfns[0] << 12, &mut page);
    }
    let log = KernelLog::read(&simulation);
    let report = TriageReport::new(&machine, log.as_ref());
    report.stacks(&machine);
    OnRequest::read(&machine, &report, &Requested::ALL);
    let _ = per_cpu_free(&machine);
    recorded(&machine, data);
    for task in report.tasks.all.iter().take(DETAILED) {
        detail(&machine, &report.cpus, task);
    }
    serde_json::to_string(&report).expect("a report is JSON");
    let same = difference(&report, &report);
    assert!(
        same.tasks.is_empty() && same.memory.is_empty() && same.slab.is_empty() && same.vmalloc.is_empty()
    );
}
