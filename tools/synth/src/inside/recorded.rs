//! What a kernel keeps of allocations: page_owner with a stack depot, allocation tags, and kmemleak's objects.

use std::collections::BTreeMap;

use super::Arena;
use super::btf::{RECORDED, Record, member, member_of};
use crate::content::PAGE;

/// The shape of the stack depot, by the kernel that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depot {
    V5_10,
    V6_1,
    V6_12,
    /// The table of pools is a pointer.
    V6_18,
}

/// What is kept of allocations.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Whether page_owner is on, and has the stacks.
    pub owner: bool,
    /// Whether allocations are counted.
    pub tags: bool,
    /// Whether the flags of struct pages have the tags of pages (`compressed`).
    pub compressed: bool,
    pub depot: Depot,
    /// Functions of each stack, the innermost first.
    pub stacks: Vec<Vec<&'static str>>,
    /// Pages of a stack: first PFN, pages, number of the stack, name and ID of the task.
    pub pages: Vec<(u64, u64, usize, &'static str, u32)>,
    /// Pages from before page_owner started: first PFN, pages.
    pub early: Vec<(u64, u64)>,
    /// Places in the source: file, line, function, bytes and calls of all CPUs. The last is a module's.
    pub sites: Vec<(&'static str, u32, &'static str, i64, i64)>,
    /// Blocks with a tag: first PFN, number of the place.
    pub tagged: Vec<(u64, usize)>,
    /// Objects that kmemleak tracks, if the kernel has it. Jiffies start at 0, 100 a second; it ends at 10,000.
    pub kmemleak: Option<Vec<Tracked>>,
    /// Jiffies of kmemleak's last scan; 0: none.
    pub scanned: u64,
}

/// An object that kmemleak tracks.
#[derive(Clone, Debug, Default)]
pub struct Tracked {
    pub size: u64,
    pub flags: u32,
    pub min_count: i32,
    pub count: i32,
    /// When it was allocated.
    pub jiffies: u64,
    pub comm: &'static str,
    pub pid: u32,
    /// Number of its stack; none if it could not be saved.
    pub stack: Option<usize>,
}

/// Bytes of a page's entry: flags, `struct page_owner`, tag.
const OWNER_AT: u64 = 8;
const TAG_AT: u64 = OWNER_AT + 80;
const ENTRY: u64 = TAG_AT + 8;
/// Where the flags of struct pages have a tag's number, and the first number.
const IN_FLAGS: (u32, u64) = (52, 0x3f);
const FIRST_NUMBER: u64 = 2;
/// Bytes of a pool.
const POOL: u64 = 4 * PAGE as u64;
/// The pool that has the records, counted from 0.
const POOL_INDEX: u64 = 1;

impl Depot {
    /// The records of this shape.
    pub(super) fn records(self) -> [Record; 4] {
        const OLD: Record = (
            "stack_record",
            32,
            &[
                ("next", "u64", 0),
                ("hash", "u32", 8),
                ("size", "u32", 12),
                ("handle", "handle_parts", 16),
                ("entries", "[1 u64]", 24),
            ],
        );
        const NEW: Record = (
            "stack_record",
            32 + 64 * 8,
            &[
                ("hash_list", "list_head", 0),
                ("hash", "u32", 16),
                ("size", "u32", 20),
                ("handle", "handle_parts", 24),
                ("count", "u32", 28),
                ("entries", "[64 u64]", 32),
            ],
        );
        const OWNER: Record = (
            "page_owner",
            80,
            &[
                ("order", "u32", 0),
                ("gfp_mask", "u32", 4),
                ("handle", "u32", 8),
                ("free_handle", "u32", 12),
                ("ts_nsec", "u64", 16),
                ("free_ts_nsec", "u64", 24),
                ("comm", "[16 char]", 32),
                ("pid", "u32", 48),
                ("tgid", "u32", 52),
            ],
        );
        const OLD_OWNER: Record = (
            "page_owner",
            16,
            &[("order", "u32", 0), ("gfp_mask", "u32", 4), ("handle", "u32", 8), ("free_handle", "u32", 12)],
        );
        const TRACKED: Record = (
            "kmemleak_object",
            128,
            &[
                ("flags", "u32", 4),
                ("object_list", "list_head", 8),
                ("pointer", "u64", 24),
                ("size", "u64", 32),
                ("min_count", "u32", 40),
                ("count", "u32", 44),
                ("trace_handle", "u32", 48),
                ("pid", "u32", 52),
                ("jiffies", "u64", 56),
                ("comm", "[16 char]", 64),
            ],
        );
        const OLD_TRACKED: Record = (
            "kmemleak_object",
            256,
            &[
                ("flags", "u32", 4),
                ("object_list", "list_head", 8),
                ("pointer", "u64", 24),
                ("size", "u64", 32),
                ("min_count", "u32", 40),
                ("count", "u32", 44),
                ("pid", "u32", 52),
                ("jiffies", "u64", 56),
                ("comm", "[16 char]", 64),
                ("trace", "[16 u64]", 80),
                ("trace_len", "u32", 208),
            ],
        );
        let parts: Record = (
            "handle_parts",
            4,
            match self {
                Self::V5_10 => &[
                    ("handle", "u32", 0),
                    ("slabindex", "u32:21+0", 0),
                    ("offset", "u32:10+21", 0),
                    ("valid", "u32:1+31", 0),
                ],
                Self::V6_1 => &[
                    ("handle", "u32", 0),
                    ("slabindex", "u32:16+0", 0),
                    ("offset", "u32:10+16", 0),
                    ("valid", "u32:1+26", 0),
                    ("extra", "u32:5+27", 0),
                ],
                Self::V6_12 | Self::V6_18 => &[
                    ("handle", "u32", 0),
                    ("pool_index_plus_1", "u32:17+0", 0),
                    ("offset", "u32:10+17", 0),
                    ("extra", "u32:5+27", 0),
                ],
            },
        );
        match self {
            Self::V5_10 => [parts, OLD, OLD_OWNER, OLD_TRACKED],
            Self::V6_1 => [parts, OLD, OWNER, OLD_TRACKED],
            Self::V6_12 | Self::V6_18 => [parts, NEW, OWNER, TRACKED],
        }
    }

    fn handle(self, offset: u64) -> u32 {
        let offset = (offset >> 4) as u32;
        let index = POOL_INDEX as u32;
        match self {
            Self::V5_10 => index | offset << 21 | 1 << 31,
            Self::V6_1 => index | offset << 16 | 1 << 26,
            Self::V6_12 | Self::V6_18 => (index + 1) | offset << 17,
        }
    }
}

pub(super) struct Place<'a> {
    /// First PFN of each section, and the pages of a section.
    pub(super) sections: &'a [u64],
    pub(super) section_pages: u64,
    pub(super) cpus: u64,
    /// The first run queue, and the address of its symbol.
    pub(super) queue: u64,
    pub(super) template: u64,
}

/// What struct pages and their sections have of it.
#[derive(Default)]
pub(super) struct Written {
    /// Words of memory sections by their number.
    pub(super) sections: BTreeMap<u64, u64>,
    /// Bits in the flags of struct pages.
    pub(super) flags: BTreeMap<u64, u64>,
}

/// Writes it.
pub(super) fn write(
    arena: &mut Arena,
    recorded: &Recorded,
    place: &Place<'_>,
    address: &impl Fn(&str) -> u64,
    symbols: &mut Vec<(u64, String)>,
) -> Written {
    let records = recorded.depot.records();
    let at = |record: &str, name: &str| u64::from(member_of(&records, record, name));
    let mut symbol = |name: &str, at: u64| symbols.push((at, name.to_owned()));
    let mut word = |arena: &mut Arena, name: &str, value: u64| {
        let at = arena.take(8, 8);
        arena.word(at, value);
        symbol(name, at);
    };
    // Words of 8 bytes do for those of 4.
    let on = |on: bool| u64::from(on);
    word(arena, "page_owner_inited", on(recorded.owner));
    word(arena, "mem_alloc_profiling_key", on(recorded.tags));
    word(arena, "mem_profiling_compressed", on(recorded.compressed));
    word(arena, "alloc_tag_ref_offs", IN_FLAGS.0.into());
    word(arena, "alloc_tag_ref_mask", IN_FLAGS.1);
    word(arena, "page_ext_size", ENTRY);
    let offset_at = member("page_ext_operations", "offset").0;
    for (name, offset) in [("page_owner_ops", OWNER_AT), ("page_alloc_tagging_ops", TAG_AT)] {
        let operations = arena.record("page_ext_operations");
        arena.word(operations + offset_at, offset);
        symbols.push((operations, name.to_owned()));
    }

    // The depot. The first record is the early one.
    let pool = arena.take(POOL, PAGE as u64);
    let mut next = 0;
    let mut handles = Vec::new();
    for stack in [&vec!["kthread"]].into_iter().chain(&recorded.stacks) {
        let handle = recorded.depot.handle(next);
        let record = pool + next;
        arena.bytes(record, &vec![0; at("stack_record", "entries") as usize]);
        arena.bytes(record + at("stack_record", "size"), &(stack.len() as u32).to_le_bytes());
        arena.bytes(record + at("stack_record", "handle"), &handle.to_le_bytes());
        for (index, function) in stack.iter().enumerate() {
            arena.word(record + at("stack_record", "entries") + 8 * index as u64, address(function) + 0x20);
        }
        handles.push(handle);
        next += (at("stack_record", "entries") + 8 * stack.len() as u64).next_multiple_of(16);
    }
    let table = arena.take(8 * (POOL_INDEX + 1), 8);
    arena.word(table, 0);
    arena.word(table + 8 * POOL_INDEX, pool);
    let (name, at_symbol) = match recorded.depot {
        Depot::V5_10 | Depot::V6_1 => ("stack_slabs", table),
        Depot::V6_12 => ("stack_pools", table),
        Depot::V6_18 => {
            let pointer = arena.take(8, 8);
            arena.word(pointer, table);
            ("stack_pools", pointer)
        }
    };
    symbols.push((at_symbol, name.to_owned()));
    let early = arena.take(8, 8);
    arena.word(early, handles[0].into());
    symbols.push((early, "early_handle".to_owned()));

    if let Some(objects) = &recorded.kmemleak {
        kmemleak(arena, recorded, objects, &handles, address, symbols);
    }
    let tags = tags(arena, recorded, place, symbols);
    // The entries of all pages.
    let mut bases = BTreeMap::new();
    for section in place.sections {
        let base = arena.take(place.section_pages * ENTRY, PAGE as u64);
        arena.zeros(base, place.section_pages * ENTRY);
        bases.insert(section / place.section_pages, base);
    }
    let entry = |pfn: u64| bases[&(pfn / place.section_pages)] + pfn % place.section_pages * ENTRY;
    if recorded.owner {
        let all = recorded.pages.iter().map(|(pfn, pages, stack, comm, pid)| {
            // Users of the depot have bits of their own in handles.
            let extra = if recorded.depot == Depot::V5_10 { 0 } else { 3 << 27 };
            (*pfn, *pages, handles[stack + 1] | extra, *comm, *pid)
        });
        let early = recorded.early.iter().map(|(pfn, pages)| (*pfn, *pages, handles[0], "swapper", 0));
        for (first, pages, handle, comm, pid) in all.chain(early) {
            for pfn in first..first + pages {
                // Was allocated, and is.
                arena.word(entry(pfn), 3);
                let owner = entry(pfn) + OWNER_AT;
                arena.bytes(owner + at("page_owner", "handle"), &handle.to_le_bytes());
                if recorded.depot != Depot::V5_10 {
                    arena.bytes(owner + at("page_owner", "comm"), comm.as_bytes());
                    arena.bytes(owner + at("page_owner", "pid"), &pid.to_le_bytes());
                }
            }
        }
    }
    let mut flags = BTreeMap::new();
    for (pfn, site) in &recorded.tagged {
        if recorded.compressed {
            flags.insert(*pfn, (FIRST_NUMBER + *site as u64) << IN_FLAGS.0);
        } else {
            arena.word(entry(*pfn) + TAG_AT, tags[*site]);
        }
    }
    let sections = bases.into_iter();
    let sections = sections
        .map(|(section, base)| (section, base.wrapping_sub(section * place.section_pages * ENTRY)))
        .collect();
    Written { sections, flags }
}

/// Writes kmemleak's objects, and its variables.
fn kmemleak(
    arena: &mut Arena,
    recorded: &Recorded,
    objects: &[Tracked],
    handles: &[u32],
    address: &impl Fn(&str) -> u64,
    symbols: &mut Vec<(u64, String)>,
) {
    let [.., record] = recorded.depot.records();
    let at = |name: &str| {
        let member = record.2.iter().find(|(known, ..)| *known == name);
        member.map(|(.., at)| u64::from(*at))
    };
    let place = |name: &str| at(name).unwrap_or_default();
    let head = arena.take(16, 8);
    let mut heads = vec![head];
    for (index, tracked) in objects.iter().enumerate() {
        let object = arena.take(record.1.into(), 16);
        arena.zeros(object, record.1.into());
        heads.push(object + place("object_list"));
        arena.word(object + place("pointer"), 0xffff_8880_0000_1000 + 0x1000 * index as u64);
        arena.word(object + place("size"), tracked.size);
        arena.word(object + place("jiffies"), tracked.jiffies);
        arena.bytes(object + place("flags"), &tracked.flags.to_le_bytes());
        arena.bytes(object + place("min_count"), &tracked.min_count.to_le_bytes());
        arena.bytes(object + place("count"), &tracked.count.to_le_bytes());
        arena.bytes(object + place("pid"), &tracked.pid.to_le_bytes());
        // Behind its end are bytes of an earlier name.
        let mut comm = [b'a' + (index % 3) as u8; 16];
        comm[..tracked.comm.len()].copy_from_slice(tracked.comm.as_bytes());
        comm[tracked.comm.len()] = 0;
        arena.bytes(object + place("comm"), &comm);
        let Some(stack) = tracked.stack else { continue };
        match at("trace") {
            Some(trace) => {
                let functions = &recorded.stacks[stack];
                for (index, function) in functions.iter().enumerate() {
                    arena.word(object + trace + 8 * index as u64, address(function) + 0x20);
                }
                arena.bytes(object + place("trace_len"), &(functions.len() as u32).to_le_bytes());
            }
            None => arena.bytes(object + place("trace_handle"), &handles[stack + 1].to_le_bytes()),
        }
    }
    arena.ring(&heads);
    symbols.push((head, "object_list".into()));
    for (name, value) in [
        ("kmemleak_enabled", 1),
        ("jiffies_last_scan", recorded.scanned),
        ("jiffies_min_age", 500),
        ("jiffies_64", 10_000),
    ] {
        let at = arena.take(8, 8);
        arena.word(at, value);
        symbols.push((at, name.to_owned()));
    }
}

/// Writes the tags. Returns their addresses.
fn tags(
    arena: &mut Arena,
    recorded: &Recorded,
    place: &Place<'_>,
    symbols: &mut Vec<(u64, String)>,
) -> Vec<u64> {
    const RUN_QUEUE: u64 = 128;
    let count = recorded.sites.len() as u64;
    let size =
        RECORDED.iter().find(|(name, ..)| *name == "alloc_tag").map_or(0, |(_, size, _)| u64::from(*size));
    let counters = arena.take(RUN_QUEUE * place.cpus * count, 16);
    arena.zeros(counters, RUN_QUEUE * place.cpus * count);
    // Another table lies between those of the kernel and the module.
    let table = arena.take(size * (count + 1), 16);
    arena.zeros(table, size * (count + 1));
    let mut found = Vec::new();
    for (index, (file, line, function, bytes, calls)) in recorded.sites.iter().enumerate() {
        let is_module = index as u64 + 1 == count;
        let tag = table + size * (index as u64 + u64::from(is_module));
        let [file, function, module] = [*file, *function, "leaky"].map(|text| arena.text(text));
        arena.set(tag, "codetag", "lineno", (*line).into());
        arena.set(tag, "codetag", "filename", file);
        arena.set(tag, "codetag", "function", function);
        arena.set(tag, "codetag", "modname", if is_module { module } else { 0 });
        let first = counters + RUN_QUEUE * place.cpus * index as u64;
        arena.set(tag, "alloc_tag", "counters", place.template.wrapping_add(first - place.queue));
        // The first CPU frees what the last allocates.
        let last = first + RUN_QUEUE * (place.cpus - 1);
        if place.cpus > 1 {
            arena.word(first, (-1000_i64) as u64);
            arena.word(first + 8, (-3_i64) as u64);
            arena.word(last, (bytes + 1000) as u64);
            arena.word(last + 8, (calls + 3) as u64);
        } else {
            arena.word(first, *bytes as u64);
            arena.word(first + 8, *calls as u64);
        }
        found.push(tag);
    }
    let kernel_end = table + size * count.saturating_sub(1);
    let mut slots = vec![(table, kernel_end)];
    if let Some(tag) = found.last() {
        slots.push((*tag, tag + size));
    }
    let of_kernel = arena.record("alloc_tag_kernel_section");
    arena.set(of_kernel, "alloc_tag_kernel_section", "first_tag", table);
    arena.set(of_kernel, "alloc_tag_kernel_section", "count", count.saturating_sub(1));
    symbols.push((of_kernel, "kernel_tags".into()));
    let of_modules = arena.record("alloc_tag_module_section");
    let first = found.last().copied().unwrap_or(0);
    arena.set(of_modules, "alloc_tag_module_section", "start_addr", first);
    arena.set(of_modules, "alloc_tag_module_section", "size", if first == 0 { 0 } else { size });
    symbols.push((of_modules, "module_tags".into()));
    symbols.push((table, "__start_alloc_tags".into()));
    symbols.push((kernel_end, "__stop_alloc_tags".into()));
    let node = arena.take(1024, 64);
    arena.zeros(node, 1024);
    for (at, (start, stop)) in slots.into_iter().enumerate() {
        let module = arena.record("codetag_module");
        arena.word(module + member("codetag_module", "range").0, start);
        arena.word(module + member("codetag_module", "range").0 + 8, stop);
        arena.word(node + member("xa_node", "slots").0 + 8 * at as u64, module);
    }
    let kind = arena.record("codetag_type");
    arena.word(kind, node | 2);
    let pointer = arena.take(8, 8);
    arena.word(pointer, kind);
    symbols.push((pointer, "alloc_tag_cttype".into()));
    found
}
