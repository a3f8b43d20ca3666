//! The kernel's types: records with their members, and BTF of them.

use std::collections::HashMap;

use super::cgroups::CGROUPS;
use super::kvm::KVM;
use super::unmarked::UNMARKED;

/// A structure: name, bytes, and members with type and offset. Types are `u32`, `i64`, `*record`, `[4 u64]` or a record.
pub(super) type Record = (&'static str, u32, &'static [(&'static str, &'static str, u32)]);

/// The structures, with the members that readers of crashes need, at offsets of no kernel's.
pub(super) const RECORDS: [Record; 32] = [
    ("list_head", 16, &[("next", "*list_head", 0), ("prev", "*list_head", 8)]),
    ("rb_node", 24, &[("rb_right", "*rb_node", 8), ("rb_left", "*rb_node", 16)]),
    ("rb_root", 8, &[("rb_node", "*rb_node", 0)]),
    ("percpu_counter", 16, &[("count", "i64", 0), ("counters", "u64", 8)]),
    ("thread_info", 8, &[("cpu", "u32", 4)]),
    ("sched_info", 16, &[("last_arrival", "u64", 8)]),
    ("thread_struct", 16, &[("sp", "u64", 8)]),
    ("signal_struct", 32, &[("thread_head", "list_head", 8)]),
    ("inactive_task_frame", 16, &[("bp", "u64", 0), ("ret_addr", "u64", 8)]),
    (
        "mm_struct",
        112,
        &[
            ("map_count", "u32", 0),
            ("rss_stat", "[4 percpu_counter]", 16),
            ("mm_mt", "maple_tree", 80),
            ("start_brk", "u64", 96),
            ("brk", "u64", 104),
        ],
    ),
    ("maple_tree", 16, &[("ma_root", "u64", 8)]),
    ("maple_range_64", 256, &[("pivot", "[15 u64]", 8), ("slot", "[16 u64]", 128)]),
    (
        "vm_area_struct",
        32,
        &[("vm_start", "u64", 0), ("vm_end", "u64", 8), ("vm_flags", "u64", 16), ("vm_file", "u64", 24)],
    ),
    (
        "task_struct",
        TASK_BYTES as u32,
        &[
            ("thread_info", "thread_info", 0),
            ("__state", "u32", 8),
            ("exit_state", "u32", 12),
            ("stack", "u64", 16),
            ("flags", "u32", 24),
            ("pid", "u32", 28),
            ("tgid", "u32", 32),
            ("real_parent", "*task_struct", 40),
            ("tasks", "list_head", 48),
            ("thread_node", "list_head", 64),
            ("signal", "*signal_struct", 80),
            ("mm", "*mm_struct", 88),
            ("comm", "[16 char]", 96),
            ("sched_info", "sched_info", 112),
            ("thread", "thread_struct", 128),
            ("reclaim_state", "u64", 144),
            ("files", "*files_struct", 152),
            ("thread_group_signal", "signal_struct", 160),
        ],
    ),
    (
        "rq",
        RUN_QUEUE_BYTES as u32 + 64,
        &[
            ("nr_running", "u32", 4),
            ("clock", "u64", 8),
            ("curr", "*task_struct", 16),
            ("idle", "*task_struct", 24),
        ],
    ),
    ("free_area", 8, &[("nr_free", "u64", 0)]),
    (
        "zone",
        256,
        &[
            ("_watermark", "[3 u64]", 0),
            ("name", "*char", 24),
            ("managed_pages", "u64", 32),
            ("free_area", "[11 free_area]", 40),
            ("vm_stat", "[2 u64]", 128),
            ("per_cpu_pageset", "u64", 144),
            ("zone_start_pfn", "u64", 152),
            ("spanned_pages", "u64", 160),
        ],
    ),
    ("per_cpu_pages", 56, &[("count", "u32", 0), ("lists", "[3 list_head]", 8)]),
    (
        "page",
        64,
        &[
            ("flags", "u64", 0),
            ("pcp_list", "list_head", 8),
            ("mapping", "u64", 24),
            ("_mapcount", "u32", 48),
            ("_refcount", "u32", 52),
        ],
    ),
    (
        "pglist_data",
        736,
        &[("node_zones", "[2 zone]", 0), ("kswapd_failures", "u32", 512), ("__lruvec", "lruvec", 528)],
    ),
    ("kmem_cache_order_objects", 4, &[("x", "u32", 0)]),
    ("kmem_cache_node", 16, &[("nr_slabs", "u64", 0), ("total_objects", "u64", 8)]),
    (
        "kmem_cache",
        64,
        &[
            ("name", "*char", 0),
            ("list", "list_head", 8),
            ("oo", "kmem_cache_order_objects", 24),
            ("object_size", "u32", 28),
            ("node", "[1 *kmem_cache_node]", 32),
        ],
    ),
    ("vm_struct", 16, &[("caller", "u64", 8)]),
    (
        "vmap_area",
        56,
        &[("va_start", "u64", 0), ("va_end", "u64", 8), ("rb_node", "rb_node", 16), ("vm", "*vm_struct", 40)],
    ),
    ("module_memory", 16, &[("base", "u64", 0), ("size", "u32", 8)]),
    (
        "module",
        128,
        &[
            ("list", "list_head", 8),
            ("name", "[56 char]", 24),
            ("taints", "u64", 80),
            ("mem", "[2 module_memory]", 96),
        ],
    ),
    ("new_utsname", 390, &[("nodename", "[65 char]", 65), ("version", "[65 char]", 195)]),
    ("uts_namespace", 400, &[("name", "new_utsname", 0)]),
    ("class", 8, &[("p", "u64", 0)]),
    ("block_device", 8, &[("bd_device", "u64", 0)]),
    ("mutex", 8, &[("owner", "u64", 0)]),
];

/// Structures of kernels that keep something of allocations, but those of the stack depot.
pub(super) const RECORDED: [Record; 13] = [
    ("mem_section", 32, &[("section_mem_map", "u64", 0), ("usage", "u64", 8), ("page_ext", "u64", 16)]),
    ("page_ext_operations", 40, &[("offset", "u64", 0), ("size", "u64", 8)]),
    (
        "codetag",
        32,
        &[
            ("flags", "u32", 0),
            ("lineno", "u32", 4),
            ("modname", "*char", 8),
            ("function", "*char", 16),
            ("filename", "*char", 24),
        ],
    ),
    ("alloc_tag", 40, &[("ct", "codetag", 0), ("counters", "u64", 32)]),
    ("alloc_tag_counters", 16, &[("bytes", "u64", 0), ("calls", "u64", 8)]),
    ("alloc_tag_kernel_section", 16, &[("first_tag", "*alloc_tag", 0), ("count", "u64", 8)]),
    (
        "alloc_tag_module_section",
        24,
        &[("start_addr", "u64", 0), ("end_addr", "u64", 8), ("size", "u64", 16)],
    ),
    ("codetag_range", 16, &[("start", "u64", 0), ("stop", "u64", 8)]),
    ("codetag_module", 24, &[("mod", "u64", 0), ("range", "codetag_range", 8)]),
    ("xa_node", 528, &[("shift", "u32", 0), ("slots", "[64 u64]", 16)]),
    ("xarray", 8, &[("xa_head", "u64", 0)]),
    ("idr", 8, &[("idr_rt", "xarray", 0)]),
    ("codetag_type", 8, &[("mod_idr", "idr", 0)]),
];

/// `sizeof(struct task_struct)` of this kernel.
pub(super) const TASK_BYTES: u64 = 256;

/// Bytes of a run queue. The per-CPU lists of the zone are behind it.
pub(super) const RUN_QUEUE_BYTES: u64 = 64;

/// Enumerators with their values.
const ENUMS: [(&str, &[(&str, u32)]); 5] = [
    ("pageflags", &[("PG_locked", 0), ("PG_reserved", 14), ("__NR_PAGEFLAGS", 24)]),
    ("migratetype", &[("MIGRATE_UNMOVABLE", 0), ("MIGRATE_PCPTYPES", 3)]),
    ("zone_stat_item", &[("NR_FREE_PAGES", 0), ("NR_MLOCK", 1)]),
    (
        "node_stat_item",
        &[
            ("NR_LRU_BASE", 0),
            ("NR_INACTIVE_ANON", 0),
            ("NR_ACTIVE_ANON", 1),
            ("NR_INACTIVE_FILE", 2),
            ("NR_ACTIVE_FILE", 3),
            ("NR_SLAB_RECLAIMABLE_B", 4),
            ("NR_SLAB_UNRECLAIMABLE_B", 5),
            ("NR_VMALLOC", 6),
            ("NR_ANON_MAPPED", 7),
            ("NR_FILE_PAGES", 8),
            ("NR_SHMEM", 9),
            ("NR_PAGETABLE", 10),
        ],
    ),
    ("mm_counters", &[("MM_FILEPAGES", 0), ("MM_ANONPAGES", 1), ("MM_SWAPENTS", 2), ("MM_SHMEMPAGES", 3)]),
];

const INTEGERS: [(&str, u32, u32); 5] =
    [("u32", 4, 0), ("u64", 8, 0), ("i32", 4, 1), ("i64", 8, 1), ("char", 1, 1)];

/// Returns offset and type of a member.
pub(super) fn member(record: &str, name: &str) -> (u64, &'static str) {
    let all = RECORDS.iter().chain(&RECORDED).chain(&UNMARKED).chain(&CGROUPS).chain(&KVM);
    let members = all.into_iter().find(|(known, ..)| *known == record).map(|(.., members)| members);
    let found = members.and_then(|members| members.iter().find(|(known, ..)| *known == name));
    let Some((_, kind, offset)) = found else { panic!("{record} has no member {name}") };
    (u64::from(*offset), kind)
}

/// Returns the offset of a member of one of these records.
pub(super) fn member_of(records: &[Record], record: &str, name: &str) -> u32 {
    let members = records.iter().find(|(known, ..)| *known == record).map(|(.., members)| *members);
    let found = members.and_then(|members| members.iter().find(|(known, ..)| *known == name));
    found.map_or(u32::MAX, |(.., offset)| *offset)
}

#[derive(Default)]
struct Writer {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
    ids: HashMap<String, u32>,
}

impl Writer {
    fn name(&mut self, name: &str) -> u32 {
        let at = self.strings.len() as u32;
        self.strings.extend(name.bytes());
        self.strings.push(0);
        at
    }

    fn add(&mut self, name: &str, kind: u32, entries: usize, size_or_type: u32, rest: &[u32]) -> u32 {
        let name = if name.is_empty() { 0 } else { self.name(name) };
        for word in [name, kind << 24 | entries as u32, size_or_type].iter().chain(rest) {
            self.types.extend(word.to_le_bytes());
        }
        self.count += 1;
        self.count
    }

    /// The number of a type, which is written before the records that use it.
    fn id(&mut self, text: &str) -> u32 {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let id = if let Some(target) = text.strip_prefix('*') {
            let target = self.id(target);
            self.add("", 2, 0, target, &[])
        } else {
            let inner = text.trim_start_matches('[').trim_end_matches(']');
            let Some((count, element)) = inner.split_once(' ') else { panic!("type {text}") };
            let element = self.id(element);
            let index = self.id("u32");
            let count = count.parse().expect("a number of elements");
            self.add("", 3, 0, 0, &[element, index, count])
        };
        self.ids.insert(text.to_owned(), id);
        id
    }
}

/// Returns the BTF of all records, and of `more`.
pub(super) fn btf(more: &[Record]) -> Vec<u8> {
    let records: Vec<Record> = RECORDS.iter().chain(more).copied().collect();
    let mut writer = Writer { strings: vec![0], ..Writer::default() };
    for (name, bytes, sign) in INTEGERS {
        let id = writer.add(name, 1, 0, bytes, &[(sign << 24) | (bytes * 8)]);
        writer.ids.insert(name.into(), id);
    }
    // A kernel without a structure has no member of it either, nor a pointer to it.
    let is_known = |kind: &str| {
        let target = kind.trim_start_matches('*');
        let mut names = records.iter().map(|(name, ..)| *name).chain(INTEGERS.map(|(name, ..)| name));
        // Arrays and bit fields are of types that are there.
        target.contains(['[', ':']) || names.any(|name| name == target)
    };
    // Records have the numbers after those, so that pointers among them can be written first.
    let members_of = |record: &Record| record.2.iter().filter(|(_, kind, _)| is_known(kind));
    let derived: Vec<&str> =
        records.iter().flat_map(|record| members_of(record).map(|member| member.1)).collect();
    let plain = |text: &&str| !text.starts_with(['*', '[']);
    let before = writer.count;
    let mut unique: Vec<&str> = Vec::new();
    for text in derived.into_iter().filter(|text| !plain(text)) {
        let mut text = text;
        // Inner types of a pointer or array count as well.
        loop {
            if !unique.contains(&text) {
                unique.push(text);
            }
            let inner =
                text.strip_prefix('*').or_else(|| Some(text.split_once(' ')?.1.trim_end_matches(']')));
            match inner {
                Some(inner) if !plain(&inner) => text = inner,
                _ => break,
            }
        }
    }
    for (at, (name, ..)) in records.iter().enumerate() {
        writer.ids.insert((*name).into(), before + (unique.len() + at) as u32 + 1);
    }
    for text in &unique {
        writer.id(text);
    }
    for record in &records {
        let (name, bytes, members) = (record.0, record.1, members_of(record).collect::<Vec<_>>());
        let mut rest = Vec::new();
        // Bit fields: `u32:10+17` are 10 bits from the 17th on.
        let has_bits = members.iter().any(|(_, kind, _)| kind.contains(':'));
        for (member, kind, offset) in &members {
            let name = writer.name(member);
            let (kind, bits) = kind.split_once(':').unwrap_or((kind, "0+0"));
            let (width, first) = bits.split_once('+').expect("width and first bit");
            let [width, first] = [width, first].map(|number| number.parse::<u32>().expect("a number"));
            let id = writer.id(kind);
            rest.extend([name, id, width << 24 | (offset * 8 + first)]);
        }
        let id = writer.add(name, 4 | u32::from(has_bits) << 7, members.len(), bytes, &rest);
        assert_eq!(writer.ids.get(name), Some(&id));
    }
    for (name, values) in ENUMS {
        let rest: Vec<u32> = values.iter().flat_map(|(name, value)| [writer.name(name), *value]).collect();
        writer.add(name, 6, values.len(), 4, &rest);
    }
    let mut bytes = vec![0x9f, 0xeb, 1, 0];
    let types = writer.types.len() as u32;
    for word in [24, 0, types, types, writer.strings.len() as u32] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(writer.types);
    bytes.extend(writer.strings);
    bytes
}
