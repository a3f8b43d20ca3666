//! Allocation tags (lib/alloc_tag.c, 6.10): bytes and calls by place in the source, as /proc/allocinfo has them.

use pagehaul_btf::Fault;

use super::page_ext::static_key_enabled;
use crate::machine::Machine;

/// Tags of the kernel and all modules at most. Distribution kernels have about 5,000 places.
const MAX_TAGS: u64 = 1 << 18;
/// Bytes of a tag: 40 in 6.12.
const MAX_TAG_BYTES: u64 = 256;
/// Bytes of the counters of a tag on one CPU.
const COUNTERS: u64 = 16;
/// Counters that are at most so far from each other are read at once, and so many bytes.
const MAX_GAP: u64 = 4096;
const MAX_SPAN: u64 = 1 << 20;
/// Bytes of counters that are read at most, of all CPUs. A read counts as so many at least.
const MAX_READ: u64 = 512 << 20;
const LEAST_READ: u64 = 512;
/// Characters of a name.
const LONGEST: usize = 256;

/// Where a table of tags begins and ends.
type Bounds = (u64, u64);

/// A place that allocates memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllocTag {
    /// Address of its `struct alloc_tag`, which begins with its `struct codetag`.
    pub address: u64,
    /// Bytes that are allocated.
    pub bytes: i64,
    /// Allocations.
    pub calls: i64,
}

/// All of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllocTags {
    /// In the order of the tables.
    pub all: Vec<AllocTag>,
    /// Why some may be missing.
    pub broken: Option<String>,
}

/// Where a tag is in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeTag {
    /// File.
    pub file: String,
    /// Line.
    pub line: u32,
    /// Function.
    pub function: String,
    /// Module; `None`: the kernel.
    pub module: Option<String>,
}

/// Reads all tags; `None` if the kernel has none, or does not count.
///
/// # Errors
/// Fails if the kernel counts, and tags cannot be found.
pub fn alloc_tags(machine: &Machine<'_>) -> Result<Option<AllocTags>, Fault> {
    let bounds = machine.symbol("__start_alloc_tags").and_then(|start| {
        // An empty table if the kernel is built without (6.12).
        Ok((start, machine.symbol("__stop_alloc_tags")?))
    });
    let Some((start, end)) = bounds.ok().filter(|(start, end)| start < end) else { return Ok(None) };
    let size = machine.space().size_of("alloc_tag")?;
    let counters_at = machine.space().offset_of("alloc_tag", "counters")?;
    if !(16..=MAX_TAG_BYTES).contains(&size) || counters_at > size - 8 {
        return Err(Fault::WrongKind("alloc_tag".into(), "allocation tags"));
    }
    let mut found = AllocTags::default();
    let mut ranges = vec![(start, end)];
    match modules(machine) {
        Ok((more, broken)) => {
            ranges.extend(more.into_iter().filter(|range| *range != (start, end)));
            found.broken = broken;
        }
        Err(why) => found.broken = Some(format!("those of modules: {why}")),
    }
    ranges.sort_unstable();
    ranges.dedup();
    // Address of each tag, and of its counters.
    let mut tags: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        let count = end.saturating_sub(start) / size;
        let room = MAX_TAGS.saturating_sub(tags.len() as u64);
        if count > room {
            found.broken.get_or_insert_with(|| format!("there are more than {MAX_TAGS}"));
        }
        for address in (0..count.min(room)).map(|number| start.wrapping_add(number * size)) {
            match machine.memory().u64(address.wrapping_add(counters_at)) {
                Ok(counters) => tags.push((address, counters)),
                Err(why) => {
                    found.broken.get_or_insert_with(|| why.to_string());
                    break;
                }
            }
        }
    }
    let sums = sums(machine, &tags, &mut found.broken)?;
    found.all = tags
        .iter()
        .zip(sums)
        .map(|((address, _), (bytes, calls))| AllocTag { address: *address, bytes, calls })
        .collect();
    if found.all.iter().any(|tag| tag.bytes != 0 || tag.calls != 0) {
        return Ok(Some(found));
    }
    // Not counted since boot: off, or `never`.
    match static_key_enabled(machine, "mem_alloc_profiling_key") {
        Ok(true) => Err(Fault::NotRead(found.broken.unwrap_or_else(|| "no allocation is counted".into()))),
        _ => Ok(None),
    }
}

/// Returns the tables of the kernel and of modules by the kernel's own list, and why some may be missing.
fn modules(machine: &Machine<'_>) -> Result<(Vec<Bounds>, Option<String>), Fault> {
    let kind = machine.space().object(machine.u64("alloc_tag_cttype")?, "codetag_type")?;
    let walk = kind.get("mod_idr.idr_rt")?.xarray()?;
    let mut broken = walk.broken;
    let mut ranges = Vec::new();
    for (_, address) in walk.items {
        let module = machine.space().object(address, "codetag_module")?;
        match (module.number("range.start"), module.number("range.stop")) {
            (Ok(start), Ok(stop)) if start >> 63 == 1 && start < stop => ranges.push((start, stop)),
            (Ok(_), Ok(_)) => {}
            (Err(why), _) | (_, Err(why)) => {
                broken.get_or_insert_with(|| why.to_string());
            }
        }
    }
    Ok((ranges, broken))
}

/// Adds up the counters of all possible CPUs: one that frees what another allocated counts below zero.
fn sums(
    machine: &Machine<'_>,
    tags: &[(u64, u64)],
    broken: &mut Option<String>,
) -> Result<Vec<(i64, i64)>, Fault> {
    let mut sums = vec![(0_i64, 0_i64); tags.len()];
    // Those of the kernel are close to each other.
    let mut counters: Vec<(u64, usize)> =
        tags.iter().enumerate().map(|(at, (_, counters))| (*counters, at)).collect();
    counters.sort_unstable();
    let mut budget = MAX_READ;
    for cpu in machine.cpu_mask("__cpu_possible_mask")? {
        for group in counters.chunk_by(|(one, _), (other, _)| other - one < MAX_GAP) {
            let mut rest = group;
            while let Some((start, _)) = rest.first() {
                let part = rest.partition_point(|(at, _)| at - start < MAX_SPAN);
                let (now, later) = rest.split_at(part);
                rest = later;
                let len = now.last().map_or(0, |(last, _)| last - start) + COUNTERS;
                budget = match budget.checked_sub(len.max(LEAST_READ)) {
                    Some(left) => left,
                    None => {
                        broken.get_or_insert_with(|| "the counters are too many to be read".into());
                        return Ok(sums);
                    }
                };
                let (bytes, lost) =
                    machine.memory().readable_bytes(machine.on_cpu(*start, cpu)?, len as usize);
                if lost > 0 {
                    broken.get_or_insert_with(|| format!("counters of CPU {cpu} cannot be read"));
                }
                for (at, index) in now {
                    let read = |offset: u64| {
                        let bytes = bytes.get((at - start + offset) as usize..)?.first_chunk()?;
                        Some(i64::from_le_bytes(*bytes))
                    };
                    if let Some(sum) = sums.get_mut(*index) {
                        // `struct alloc_tag_counters`: bytes, calls.
                        sum.0 = sum.0.wrapping_add(read(0).unwrap_or(0));
                        sum.1 = sum.1.wrapping_add(read(8).unwrap_or(0));
                    }
                }
            }
        }
    }
    Ok(sums)
}

/// Returns where the tag at `address` is in the source.
///
/// # Errors
/// Fails if the tag or its names cannot be read.
pub fn code_tag(machine: &Machine<'_>, address: u64) -> Result<CodeTag, Fault> {
    let tag = machine.space().object(address, "codetag")?;
    let text = |name: &str| -> Result<String, Fault> {
        let at = tag.get(name)?.pointer()?;
        if at == 0 {
            return Err(Fault::Null(tag.get(name)?.address()));
        }
        Ok(machine.memory().text(at, LONGEST)?)
    };
    let module = match text("modname") {
        Err(Fault::Null(_)) => None,
        found => Some(found?),
    };
    Ok(CodeTag {
        file: text("filename")?,
        line: tag.number("lineno")? as u32,
        function: text("function")?,
        module,
    })
}
