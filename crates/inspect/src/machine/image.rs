//! The kernel image of a dump on a server: what a report reads of it is announced, and so fetched together.

use pagehaul_kernel::ReadVirtual;
use pagehaul_symbols::Symbols;

/// Variables of the kernel image that a report reads, most of them words.
const VARIABLES: [&str; 48] = [
    "__cpu_online_mask",
    "__cpu_possible_mask",
    "__per_cpu_offset",
    "__start_orc_header",
    "avenrun",
    "block_class",
    "class_kset",
    "contig_page_data",
    "crash_notes",
    "crashing_cpu",
    "hstates",
    "hugetlb_max_hstate",
    "init_net",
    "init_pid_ns",
    "init_task",
    "init_uts_ns",
    "jiffies_64",
    "last_jiffies_update",
    "mod_tree",
    "modules",
    "net_hotdata",
    "net_namespace_list",
    "netdev_max_backlog",
    "node_data",
    "nr_cpu_ids",
    "nr_node_ids",
    "nr_swap_pages",
    "nr_vmalloc_pages",
    "nr_vmap_nodes",
    "page_offset_base",
    "panic_cpu",
    "pcpu_chunk_lists",
    "pcpu_first_chunk",
    "pcpu_nr_slots",
    "pcpu_nr_units",
    "pcpu_reserved_chunk",
    "pcpu_slot",
    "percpu_counter_batch",
    "saved_command_line",
    "slab_caches",
    "super_blocks",
    "tainted_mask",
    "total_swap_pages",
    "vm_node_stat",
    "vm_zone_stat",
    "vmap_area_root",
    "vmap_lazy_nr",
    "vmap_nodes",
];
/// Bytes of such a variable.
const VARIABLE_BYTES: u64 = 256;
/// Tables of the kernel image that are read whole, or in many places: types, and how stacks are unwound.
const TABLES: [(&str, &str); 3] = [
    ("__start_BTF", "__stop_BTF"),
    ("__start_orc_unwind_ip", "__stop_orc_unwind_ip"),
    ("__start_orc_unwind", "__stop_orc_unwind"),
];
/// Bytes of such a table at most.
const MAX_TABLE: u64 = 16 << 20;

/// Announces what a report reads of the kernel image.
pub(crate) fn announce(symbols: &Symbols, memory: &dyn ReadVirtual) {
    if !memory.is_remote() {
        return;
    }
    let table = |(start, end): (&str, &str)| {
        let start = symbols.address(start)?;
        Some(start..symbols.address(end)?.min(start.saturating_add(MAX_TABLE)))
    };
    let variable = |name: &str| {
        let start = symbols.address(name)?;
        Some(start..start.saturating_add(VARIABLE_BYTES))
    };
    let ranges = TABLES.into_iter().filter_map(table).chain(VARIABLES.into_iter().filter_map(variable));
    memory.will_need(&ranges.collect::<Vec<_>>());
}
