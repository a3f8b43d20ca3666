//! Chunks of per-CPU memory (mm/percpu.c).

use pagehaul_btf::Fault;
use pagehaul_machine::PageCount;

use crate::machine::Machine;

/// Lists of chunks: about 20 sizes, of 2 types at most.
const MAX_LISTS: u64 = 256;

/// The chunks that are made of allocated pages.
#[derive(Debug, Default)]
pub struct PerCpuChunks {
    /// Their addresses, ascending.
    pub addresses: Vec<u64>,
    /// Their pages, by their own counts.
    pub pages: PageCount,
    /// Why some may be missing.
    pub broken: Option<String>,
}

/// Finds all chunks but the first and the reserved one, which are memory from before the allocator.
pub fn per_cpu_chunks(machine: &Machine<'_>) -> Result<PerCpuChunks, Fault> {
    let table = match machine.u64("pcpu_chunk_lists") {
        Err(Fault::NoSymbol(_)) => machine.u64("pcpu_slot")?,
        found => found?,
    };
    // 3c7be18ac9a0 (5.9) to 5.13: lists for memory cgroups, and lists for others.
    let types = machine.space().btf().enumerator("PCPU_NR_CHUNK_TYPES");
    let lists = u64::from(machine.u32("pcpu_nr_slots")?)
        .saturating_mul(types.map_or(1, |types| types.clamp(1, 2) as u64));
    let units = u64::from(machine.u32("pcpu_nr_units")?);
    let early = ["pcpu_first_chunk", "pcpu_reserved_chunk"].map(|name| machine.u64(name).unwrap_or(0));
    let size = machine.space().size_of("list_head")?;
    let mut found = PerCpuChunks::default();
    for list in 0..lists.min(MAX_LISTS) {
        let head = machine.space().object(table.wrapping_add(list * size), "list_head")?;
        // What lies behind the last list of a type is none.
        let Ok(walk) = head.list("pcpu_chunk", "list") else { continue };
        found.broken = found.broken.or(walk.broken);
        for chunk in walk.items {
            if early.contains(&chunk.address()) {
                continue;
            }
            let populated = chunk.number("nr_populated").unwrap_or_else(|why| {
                found.broken.get_or_insert_with(|| why.to_string());
                0
            });
            found.addresses.push(chunk.address());
            found.pages += PageCount::new(populated.saturating_mul(units));
        }
    }
    found.addresses.sort_unstable();
    found.addresses.dedup();
    Ok(found)
}
