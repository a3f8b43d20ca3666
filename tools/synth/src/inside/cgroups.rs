//! Memory cgroups with the generations of their pages.

use super::Arena;
use super::btf::{Record, member};

/// The memory cgroups of a kernel with `CONFIG_LRU_GEN`, in the order of the tree. The first is the root.
#[derive(Clone, Debug, Default)]
pub struct Cgroups {
    /// Whether the hierarchy is of version 1.
    pub old: bool,
    /// Whether the kernel was booted with `cgroup_disable=memory`: there is only a root, and the pages are on lists of the node.
    pub disabled: bool,
    pub groups: Vec<Cgroup>,
}

/// A memory cgroup with its pages on the one node.
#[derive(Clone, Debug, Default)]
pub struct Cgroup {
    pub name: &'static str,
    /// Which of the others it is in.
    pub parent: usize,
    /// Pages charged to it.
    pub usage: u64,
    /// What the counter of swap has, which is that of memory and swap in version 1.
    pub swap: u64,
    /// Whether its lists have generations.
    pub generations: bool,
    /// The youngest generation, and the oldest of anonymous and file pages.
    pub max_seq: u64,
    pub min_seq: [u64; 2],
    /// Seconds from when each generation became the youngest to the end.
    pub ages: [u64; 4],
    /// Generation from 0 to 3, type, zone and number of pages.
    pub pages: Vec<(usize, usize, usize, i64)>,
}

/// The ticks of a second.
const HZ: u64 = 250;
const ZONES: usize = 2;

/// The structures.
pub(super) const CGROUPS: [Record; 9] = [
    ("atomic64_t", 8, &[("counter", "i64", 0)]),
    (
        "page_counter",
        32,
        &[("usage", "atomic64_t", 0), ("watermark", "u64", 8), ("high", "u64", 16), ("max", "u64", 24)],
    ),
    ("kernfs_node", 8, &[("name", "*char", 0)]),
    ("cgroup", 16, &[("kn", "*kernfs_node", 0), ("root", "u64", 8)]),
    (
        "cgroup_subsys_state",
        48,
        &[
            ("cgroup", "*cgroup", 0),
            ("sibling", "list_head", 8),
            ("children", "list_head", 24),
            ("flags", "u32", 40),
        ],
    ),
    (
        "lru_gen_folio",
        192,
        &[
            ("max_seq", "u64", 0),
            ("min_seq", "[2 u64]", 8),
            ("timestamps", "[4 u64]", 24),
            ("nr_pages", "[16 i64]", 56),
            ("enabled", "u32", 184),
        ],
    ),
    ("lruvec", 208, &[("lrugen", "lru_gen_folio", 16)]),
    ("mem_cgroup_per_node", 216, &[("lruvec", "lruvec", 8)]),
    (
        "mem_cgroup",
        120,
        &[
            ("css", "cgroup_subsys_state", 0),
            ("memory", "page_counter", 48),
            ("swap", "page_counter", 80),
            ("nodeinfo", "[1 *mem_cgroup_per_node]", 112),
        ],
    ),
];

/// Writes them. `clock` is the time since the kernel started, in seconds.
pub(super) fn write(arena: &mut Arena, cgroups: &Cgroups, clock: u64, symbols: &mut Vec<(u64, String)>) {
    // Records of allocations have it, too.
    let has_jiffies = symbols.iter().any(|(_, name)| name == "jiffies_64");
    let mut variable = |arena: &mut Arena, name: &str, value: u64| {
        let at = arena.take(8, 8);
        arena.word(at, value);
        symbols.push((at, name.to_owned()));
        at
    };
    let jiffies = (1_u64 << 32) + HZ * clock - 300 * HZ;
    if !has_jiffies {
        variable(arena, "jiffies_64", jiffies);
    }
    let newer = variable(arena, "cgrp_dfl_root", 0);
    let groups: Vec<u64> = cgroups.groups.iter().map(|_| arena.record("mem_cgroup")).collect();
    variable(arena, "root_mem_cgroup", groups[0]);
    variable(arena, "memory_cgrp_subsys_enabled_key", u64::from(!cgroups.disabled));
    let node = symbols.iter().find(|(_, name)| name == "contig_page_data");
    let node_lists = node.map(|(at, _)| *at).filter(|_| cgroups.disabled);
    let [sibling, children] = ["sibling", "children"].map(|name| member("cgroup_subsys_state", name).0);
    for (at, (address, group)) in groups.iter().zip(&cgroups.groups).enumerate() {
        let (cgroup, node) = (arena.record("cgroup"), arena.record("kernfs_node"));
        let name = arena.text(group.name);
        arena.set(node, "kernfs_node", "name", name);
        arena.set(cgroup, "cgroup", "kn", node);
        arena.set(cgroup, "cgroup", "root", newer + 8 * u64::from(cgroups.old));
        arena.set(*address, "cgroup_subsys_state", "cgroup", cgroup);
        // CSS_ONLINE.
        arena.set(*address, "cgroup_subsys_state", "flags", 2);
        for (counter, usage) in [("memory", group.usage), ("swap", group.swap)] {
            let counter = address + member("mem_cgroup", counter).0;
            arena.word(counter, usage);
            arena.set(counter, "page_counter", "high", 1 << 51);
            arena.set(counter, "page_counter", "max", 1 << 51);
        }
        let mut heads = vec![address + children];
        let others = groups.iter().zip(&cgroups.groups).enumerate().skip(1);
        heads.extend(
            others
                .filter(|(child, (_, of))| of.parent == at && *child != at)
                .map(|(_, (child, _))| child + sibling),
        );
        arena.ring(&heads);
        let lists = arena.record("mem_cgroup_per_node");
        arena.word(address + member("mem_cgroup", "nodeinfo").0, lists);
        let lists = match node_lists {
            Some(node) => node + member("pglist_data", "__lruvec").0,
            None => lists + member("mem_cgroup_per_node", "lruvec").0,
        };
        let lists = lists + member("lruvec", "lrugen").0;
        let at = |name: &str| lists + member("lru_gen_folio", name).0;
        arena.set(lists, "lru_gen_folio", "enabled", group.generations.into());
        arena.word(at("max_seq"), group.max_seq);
        for (kind, seq) in group.min_seq.into_iter().enumerate() {
            arena.word(at("min_seq") + 8 * kind as u64, seq);
        }
        for (slot, age) in group.ages.into_iter().enumerate() {
            arena.word(at("timestamps") + 8 * slot as u64, jiffies - HZ * age);
        }
        for (slot, kind, zone, pages) in &group.pages {
            let index = (slot * 2 + kind) * ZONES + zone;
            arena.word(at("nr_pages") + 8 * index as u64, *pages as u64);
        }
    }
}
