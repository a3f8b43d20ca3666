//! What a crash is explained from: symbols, types, unwind tables, tasks with stacks, memory counters, slab caches, vmalloc
//! areas and modules.

mod btf;
mod cgroups;
mod kvm;
mod recorded;
mod tables;
mod unmarked;

use std::collections::BTreeMap;

use crate::content::{Content, PAGE, PageBytes};
use crate::{Machine, image_offset};
use btf::{RECORDED, RECORDS, RUN_QUEUE_BYTES, member};
use cgroups::CGROUPS;
pub use cgroups::{Cgroup, Cgroups};
pub use kvm::Guest;
use kvm::KVM;
pub use recorded::{Depot, Recorded, Tracked};
pub use tables::numbered_functions;
use unmarked::UNMARKED;
pub use unmarked::Unmarked;

#[derive(Clone, Debug)]
pub struct Task {
    /// Thread ID. Tasks are processes of one thread.
    pub pid: u32,
    /// Name, at most 15 bytes.
    pub comm: String,
    /// `task_struct.__state`: 0 runnable, 1 sleeping, 2 blocked.
    pub state: u32,
    /// Seconds on the scheduler's clock at which it last ran.
    pub ran: u64,
    /// Functions on its stack, the innermost first.
    pub stack: Vec<&'static str>,
    /// Anonymous pages; none for kernel threads.
    pub pages: Option<u64>,
}

/// The inside of a kernel of [`Era::V6_12`](crate::Era::V6_12) or later.
#[derive(Clone, Debug, Default)]
pub struct Inside {
    pub tasks: Vec<Task>,
    /// Seconds on the scheduler's clock.
    pub clock: u64,
    /// Free pages of the one zone.
    pub free: u64,
    /// PFNs of free pages on the first CPU's lists.
    pub on_lists: Vec<u64>,
    /// Pages of anonymous memory, files, slab and vmalloc.
    pub counters: [u64; 4],
    /// Pages of shared memory, which are on the lists of anonymous memory.
    pub shmem: u64,
    /// Slab caches: name, slabs of one page, objects.
    pub caches: Vec<(&'static str, u64, u64)>,
    /// Callers of vmalloc and bytes.
    pub areas: Vec<(&'static str, u64)>,
    /// Pages of areas that are freed but not purged.
    pub backlog: u64,
    /// Modules and their bytes.
    pub modules: Vec<(&'static str, u32)>,
    /// What is kept of allocations. The kernel has `CONFIG_PAGE_EXTENSION` then.
    pub recorded: Option<Recorded>,
    /// Memory without a mark of its owner.
    pub unmarked: Option<Unmarked>,
    /// Guests of KVM, which is built in. The first process has them. None: a kernel without KVM.
    pub guests: Option<Vec<Guest>>,
    /// Memory cgroups.
    pub cgroups: Option<Cgroups>,
    /// Whether each task and each stack has pages of its own, as in a real kernel.
    pub spread: bool,
}

/// Where the tables are in the kernel's image, and where variables are.
const TABLES: u64 = 0x12_0000;
/// The outermost function of all stacks.
const BOTTOM: &str = "ret_from_fork_asm";
/// Functions that are there whatever the stacks are; CPUs are in the first.
const FUNCTIONS: [&str; 4] = ["default_idle", "vmalloc", "kthread", BOTTOM];

/// Memory of the kernel, in the direct map.
struct Arena {
    base: u64,
    next: u64,
    pages: BTreeMap<u64, PageBytes>,
}

impl Arena {
    fn take(&mut self, bytes: u64, alignment: u64) -> u64 {
        let start = self.next.next_multiple_of(alignment);
        self.next = start + bytes;
        self.base.wrapping_add(start)
    }

    fn bytes(&mut self, at: u64, bytes: &[u8]) {
        for (index, byte) in bytes.iter().enumerate() {
            let at = at.wrapping_sub(self.base) + index as u64;
            self.pages.entry(at / PAGE as u64).or_insert([0; PAGE])[at as usize % PAGE] = *byte;
        }
    }

    /// Makes pages of zeros be there.
    fn zeros(&mut self, at: u64, bytes: u64) {
        let at = at.wrapping_sub(self.base);
        for page in at / PAGE as u64..(at + bytes).div_ceil(PAGE as u64) {
            self.pages.entry(page).or_insert([0; PAGE]);
        }
    }

    /// Returns a word that was written.
    fn get(&self, at: u64) -> u64 {
        let at = at.wrapping_sub(self.base);
        let page = &self.pages[&(at / PAGE as u64)];
        u64::from_le_bytes(*page[at as usize % PAGE..].first_chunk().expect("words are aligned"))
    }

    fn word(&mut self, at: u64, word: u64) {
        self.bytes(at, &word.to_le_bytes());
    }

    /// Writes a member as its type has it.
    fn set(&mut self, at: u64, record: &str, name: &str, value: u64) {
        let (offset, kind) = member(record, name);
        let width = if matches!(kind, "u32" | "i32") { 4 } else { 8 };
        self.bytes(at.wrapping_add(offset), &value.to_le_bytes()[..width]);
    }

    fn text(&mut self, text: &str) -> u64 {
        let at = self.take(text.len() as u64 + 1, 1);
        self.bytes(at, text.as_bytes());
        at
    }

    fn record(&mut self, record: &str) -> u64 {
        let all = RECORDS.iter().chain(&RECORDED).chain(&UNMARKED).chain(&CGROUPS).chain(&KVM);
        let size = all.into_iter().find(|(known, ..)| *known == record).map(|(_, size, _)| *size);
        let Some(size) = size else { panic!("no record {record}") };
        let at = self.take(size.into(), 16);
        // Pages of zeros are there, too.
        self.bytes(at, &vec![0; size as usize]);
        at
    }

    /// Links list heads into a ring.
    fn ring(&mut self, heads: &[u64]) {
        for (at, head) in heads.iter().enumerate() {
            let next = heads[(at + 1) % heads.len()];
            self.word(*head, next);
            self.word(next + 8, *head);
        }
    }
}

impl Machine {
    /// Puts `inside` into pages from `pfn`. Returns how many.
    pub fn inside(&mut self, pfn: u64, inside: &Inside) -> u64 {
        let base = self.setup.page_offset();
        let start = pfn * self.setup.page_bytes();
        let mut arena = Arena { base, next: start, pages: BTreeMap::new() };
        let text = self.setup.text();
        let mut functions: Vec<&str> = FUNCTIONS[..3].to_vec();
        let stacks = inside.tasks.iter().flat_map(|task| task.stack.iter().copied());
        let recorded = inside.recorded.iter().flat_map(|recorded| recorded.stacks.iter().flatten().copied());
        for function in
            stacks.chain(recorded).chain(inside.areas.iter().map(|(caller, _)| *caller)).chain([BOTTOM])
        {
            if !functions.contains(&function) {
                functions.push(function);
            }
        }
        let address = |name: &str| {
            let at = functions.iter().position(|known| *known == name).expect("all functions are known");
            text + 0x1000 + at as u64 * tables::FUNCTION
        };
        let mut symbols: Vec<(u64, String)> =
            functions.iter().map(|name| (address(name), (*name).to_owned())).collect();
        symbols.push((text, "_stext".into()));
        symbols.push((text + image_offset::PGD, "_etext".into()));
        symbols.push((text + 0x20_0000, "_end".into()));
        symbols.push((text + image_offset::UTS, "init_uts_ns".into()));
        let mut add = |name: &str, at: u64| symbols.push((at, name.to_owned()));

        let cpus = self.setup.cpus as u64;
        let vmemmap = self.setup.vmemmap();
        let mut queues = Vec::new();
        let init = arena.record("task_struct");
        add("init_task", init);
        let mut heads = vec![init + member("task_struct", "tasks").0];
        describe(
            &mut arena,
            init,
            &Task {
                pid: 0,
                comm: "swapper/0".into(),
                state: 0,
                ran: inside.clock,
                stack: vec![BOTTOM],
                pages: None,
            },
            init,
            &address,
        );
        for task in &inside.tasks {
            if inside.spread {
                arena.take(0, PAGE as u64);
            }
            let at = arena.record("task_struct");
            describe(&mut arena, at, task, init, &address);
            heads.push(at + member("task_struct", "tasks").0);
        }
        arena.ring(&heads);

        let template = text + 0x1c_0000;
        add("runqueues", template);
        let offsets = arena.take(8 * cpus, 8);
        add("__per_cpu_offset", offsets);
        for cpu in 0..cpus {
            let queue = arena.record("rq");
            queues.push(queue);
            arena.word(offsets + 8 * cpu, queue.wrapping_sub(template));
            arena.set(queue, "rq", "clock", inside.clock * 1_000_000_000);
            arena.set(queue, "rq", "curr", init);
            arena.set(queue, "rq", "idle", init);
        }
        let mut variable = |name: &str, value: u64| {
            let at = arena.take(8, 8);
            arena.word(at, value);
            symbols.push((at, name.to_owned()));
        };
        variable("nr_cpu_ids", cpus);
        variable("__cpu_online_mask", (1 << cpus) - 1);
        variable("__cpu_possible_mask", (1 << cpus) - 1);
        variable("crashing_cpu", 0);
        variable("vmap_lazy_nr", inside.backlog);
        variable("vmemmap_base", vmemmap);
        let zone = memory(&mut arena, inside, &mut symbols);
        arena.set(zone, "zone", "per_cpu_pageset", template + RUN_QUEUE_BYTES);
        arena.set(zone, "zone", "spanned_pages", 0x6000);
        if let Some(recorded) = &inside.recorded {
            self.setup.section_entry = 32;
            let pages = 1 << (self.setup.section_bits - self.setup.page_shift());
            let sections: Vec<u64> = self.setup.sections().iter().map(|section| section * pages).collect();
            let place = recorded::Place {
                sections: &sections,
                section_pages: pages,
                cpus,
                queue: queues[0],
                template,
            };
            let written = recorded::write(&mut arena, recorded, &place, &address, &mut symbols);
            self.setup.page_ext = written.sections;
            self.setup.page_flags = written.flags;
        }
        for (at, queue) in queues.into_iter().enumerate() {
            let pages = if at == 0 { inside.on_lists.as_slice() } else { &[] };
            self.listed.extend(per_cpu_lists(&mut arena, queue + RUN_QUEUE_BYTES, vmemmap, pages));
        }
        if let Some(unmarked) = &inside.unmarked {
            let place = unmarked::Place { direct_map: base, page_bytes: self.setup.page_bytes(), vmemmap };
            let first =
                inside.tasks.iter().position(|task| task.pages.is_some()).expect("there is a process");
            let first = heads[first + 1] - member("task_struct", "tasks").0;
            unmarked::write(&mut arena, unmarked, &place, first, &mut symbols);
        }
        if let Some(guests) = &inside.guests {
            let first = inside.tasks.iter().position(|task| task.pages.is_some());
            let first = first.map(|at| heads[at + 1] - member("task_struct", "tasks").0);
            let written = kvm::write(&mut arena, guests, base, first, &mut symbols);
            for (pfn, page) in written.tables {
                self.frames.insert(pfn, Content::Bytes(Box::new(page)));
            }
            self.privates.extend(written.privates);
        }
        if let Some(cgroups) = &inside.cgroups {
            cgroups::write(&mut arena, cgroups, inside.clock, &mut symbols);
        }
        areas(&mut arena, inside, &address, &mut symbols);
        modules(&mut arena, inside, text, &mut symbols);

        let mut place = text + TABLES;
        let mut put = |bytes: Vec<u8>| {
            let at = place;
            place = (at + bytes.len() as u64).next_multiple_of(8);
            self.setup.image_contents.push((at - text, bytes));
            at
        };
        let addresses: Vec<u64> = functions.iter().map(|name| address(name)).collect();
        let mut more = Vec::new();
        if let Some(recorded) = &inside.recorded {
            more.extend(RECORDED);
            let records = recorded.depot.records();
            let is_there = |name: &str| name != "kmemleak_object" || recorded.kmemleak.is_some();
            more.extend(records.into_iter().filter(|(name, ..)| is_there(name)));
        }
        if inside.unmarked.is_some() {
            more.extend(UNMARKED);
        }
        if inside.cgroups.is_some() {
            more.extend(CGROUPS);
        }
        if inside.guests.is_some() {
            more.extend(KVM);
        }
        let types = btf::btf(&more);
        let (header, unwind_ip) = (put(tables::ORC_HEADER.to_vec()), 4 * addresses.len() as u64);
        let at = header + 24;
        let (ips, entries) = tables::orc(at, &addresses);
        assert_eq!(put(ips), at);
        let (types_len, entries_len) = (types.len() as u64, entries.len() as u64);
        let (entries, types) = (put(entries), put(types));
        for (name, at) in [
            ("__start_orc_header", header),
            ("__start_orc_unwind_ip", at),
            ("__stop_orc_unwind_ip", at + unwind_ip),
            ("__start_orc_unwind", entries),
            ("__stop_orc_unwind", entries + entries_len),
            ("__start_BTF", types),
            ("__stop_BTF", types + types_len),
        ] {
            symbols.push((at, name.to_owned()));
        }
        symbols.sort();
        for (name, bytes) in tables::kallsyms(&symbols) {
            let at = put(bytes);
            self.setup.info_edits.push((format!("SYMBOL({name})"), Some(format!("{at:x}"))));
        }
        let end = if self.setup.page_shift() == 12 { template } else { text + image_offset::LARGE_PGD };
        assert!(place <= end, "too many symbols");

        let end = arena.next.div_ceil(self.setup.page_bytes());
        for pfn in pfn..end {
            self.kernel(pfn);
        }
        for (frame, bytes) in arena.pages {
            self.frames.insert(frame, Content::Bytes(Box::new(bytes)));
        }
        end - pfn
    }
}

/// Writes a task, its signal_struct, its memory and its stack.
fn describe(arena: &mut Arena, at: u64, task: &Task, parent: u64, address: &impl Fn(&str) -> u64) {
    const KERNEL_THREAD: u64 = 0x20_0000;
    let mut set = |name: &str, value: u64| arena.set(at, "task_struct", name, value);
    set("__state", task.state.into());
    set("flags", if task.pages.is_none() { KERNEL_THREAD } else { 0x40_0000 });
    set("pid", task.pid.into());
    set("tgid", task.pid.into());
    set("real_parent", parent);
    // Each has a signal_struct of its own, next to it.
    let (signal, _) = member("task_struct", "thread_group_signal");
    set("signal", at + signal);
    let head = at + signal + member("signal_struct", "thread_head").0;
    arena.ring(&[head, at + member("task_struct", "thread_node").0]);
    arena.bytes(at + member("task_struct", "comm").0, task.comm.as_bytes());
    let arrival = member("task_struct", "sched_info").0 + member("sched_info", "last_arrival").0;
    arena.word(at + arrival, task.ran * 1_000_000_000);
    if let Some(pages) = task.pages {
        let mm = arena.record("mm_struct");
        arena.set(at, "task_struct", "mm", mm);
        // MM_ANONPAGES is 1.
        arena.word(mm + member("mm_struct", "rss_stat").0 + 16, pages);
        mappings(arena, mm, pages);
    }
    let bottom = [BOTTOM];
    let functions = task.stack.iter().chain(bottom.iter().filter(|_| task.stack.last() != Some(&BOTTOM)));
    // A word below each return address.
    let words: Vec<u64> = functions.flat_map(|function| [0, address(function) + 0x20]).collect();
    let saved = arena.take(words.len() as u64 * 8, 16);
    for (index, word) in words.iter().enumerate() {
        arena.word(saved + 8 * index as u64, *word);
    }
    arena.set(at, "task_struct", "stack", saved & !0xfff);
    arena.word(at + member("task_struct", "thread").0 + member("thread_struct", "sp").0, saved);
}

/// Text and heap: a maple tree of one leaf.
fn mappings(arena: &mut Arena, mm: u64, pages: u64) {
    const TEXT: u64 = 0x40_0000;
    const HEAP: u64 = 0x100_0000;
    let heap_end = HEAP + pages * PAGE as u64;
    // VM_READ and VM_EXEC, VM_READ and VM_WRITE.
    let areas = [(TEXT, TEXT + PAGE as u64, 5), (HEAP, heap_end, 3)];
    // Nodes are aligned to their size.
    let leaf = arena.take(256, 256);
    arena.bytes(leaf, &[0; 256]);
    let [pivots, slots] = ["pivot", "slot"].map(|name| leaf + member("maple_range_64", name).0);
    for (at, (start, end, flags)) in areas.into_iter().enumerate() {
        let area = arena.record("vm_area_struct");
        arena.set(area, "vm_area_struct", "vm_start", start);
        arena.set(area, "vm_area_struct", "vm_end", end);
        arena.set(area, "vm_area_struct", "vm_flags", flags);
        // A gap comes before each.
        let slot = 16 * at as u64;
        arena.word(pivots + slot, start - 1);
        arena.word(pivots + slot + 8, end - 1);
        arena.word(slots + slot + 8, area);
    }
    arena.set(mm, "mm_struct", "map_count", areas.len() as u64);
    arena.set(mm, "mm_struct", "start_brk", HEAP);
    arena.set(mm, "mm_struct", "brk", heap_end);
    // The root's flags, and maple_leaf_64.
    arena.word(mm + member("mm_struct", "mm_mt").0 + member("maple_tree", "ma_root").0, leaf | 8 | 4 | 2);
}

/// Writes the per-CPU lists at `lists`, with all pages on the first. Returns the links of these.
fn per_cpu_lists(arena: &mut Arena, lists: u64, vmemmap: u64, pages: &[u64]) -> Vec<(u64, [u64; 2])> {
    arena.set(lists, "per_cpu_pages", "count", pages.len() as u64);
    let head = lists + member("per_cpu_pages", "lists").0;
    for empty in [head + 16, head + 32] {
        arena.ring(&[empty]);
    }
    let link = |pfn: &u64| vmemmap + pfn * 64 + member("page", "pcp_list").0;
    let ring: Vec<u64> = [head].into_iter().chain(pages.iter().map(link)).collect();
    let of = |at: usize| [ring[(at + 1) % ring.len()], ring[(at + ring.len() - 1) % ring.len()]];
    let [next, previous] = of(0);
    arena.word(head, next);
    arena.word(head + 8, previous);
    pages.iter().enumerate().map(|(at, pfn)| (*pfn, of(at + 1))).collect()
}

/// Returns the address of the zone.
fn memory(arena: &mut Arena, inside: &Inside, symbols: &mut Vec<(u64, String)>) -> u64 {
    let node = arena.record("pglist_data");
    symbols.push((node, "contig_page_data".into()));
    let name = arena.text("DMA32");
    arena.set(node, "zone", "name", name);
    arena.set(node, "zone", "managed_pages", 1 << 18);
    for (at, mark) in [1000, 1250, 1500].into_iter().enumerate() {
        arena.word(node + member("zone", "_watermark").0 + 8 * at as u64, mark);
    }
    arena.word(node + member("zone", "vm_stat").0, inside.free);
    arena.word(node + member("zone", "free_area").0, inside.free);
    let [anon, file, slab, vmalloc] = inside.counters;
    let shmem = inside.shmem;
    let table = arena.take(8 * 11, 8);
    symbols.push((table, "vm_node_stat".into()));
    for (at, value) in
        [anon + shmem, 0, file, 0, slab, 0, vmalloc, anon, file + shmem, shmem, 0].into_iter().enumerate()
    {
        arena.word(table + 8 * at as u64, value);
    }
    let head = arena.record("list_head");
    symbols.push((head, "slab_caches".into()));
    let mut heads = vec![head];
    for (name, slabs, objects) in &inside.caches {
        let cache = arena.record("kmem_cache");
        let node = arena.record("kmem_cache_node");
        let name = arena.text(name);
        arena.set(node, "kmem_cache_node", "nr_slabs", *slabs);
        arena.set(node, "kmem_cache_node", "total_objects", *objects);
        arena.set(cache, "kmem_cache", "name", name);
        arena.set(cache, "kmem_cache", "object_size", 64);
        arena.set(cache, "kmem_cache", "node", node);
        heads.push(cache + member("kmem_cache", "list").0);
    }
    arena.ring(&heads);
    node
}

/// A tree that is a list: each area is the right child of the one before.
fn areas(
    arena: &mut Arena,
    inside: &Inside,
    address: &impl Fn(&str) -> u64,
    symbols: &mut Vec<(u64, String)>,
) {
    let root = arena.record("rb_root");
    symbols.push((root, "vmap_area_root".into()));
    let mut link = root;
    let mut start = 0xffff_c900_0000_0000;
    for (caller, bytes) in &inside.areas {
        let area = arena.record("vmap_area");
        let vm = arena.record("vm_struct");
        arena.set(vm, "vm_struct", "caller", address(caller) + 0x20);
        arena.set(area, "vmap_area", "va_start", start);
        arena.set(area, "vmap_area", "va_end", start + bytes);
        arena.set(area, "vmap_area", "vm", vm);
        let node = area + member("vmap_area", "rb_node").0;
        arena.word(link, node);
        link = node + member("rb_node", "rb_right").0;
        start += bytes;
    }
}

fn modules(arena: &mut Arena, inside: &Inside, text: u64, symbols: &mut Vec<(u64, String)>) {
    let head = arena.record("list_head");
    symbols.push((head, "modules".into()));
    let mut heads = vec![head];
    for (index, (name, bytes)) in inside.modules.iter().enumerate() {
        let module = arena.record("module");
        arena.bytes(module + member("module", "name").0, name.as_bytes());
        let area = module + member("module", "mem").0;
        arena.set(area, "module_memory", "base", text + 0x4000_0000 + (index as u64) * 0x10_0000);
        arena.set(area, "module_memory", "size", (*bytes).into());
        heads.push(module + member("module", "list").0);
    }
    arena.ring(&heads);
}

#[cfg(test)]
mod tests {
    use super::btf::TASK_BYTES;
    use super::*;

    #[test]
    fn members_lie_in_their_records() {
        for (record, size, members) in RECORDS {
            for (name, _, offset) in members {
                assert!(*offset < size, "{record}.{name}");
            }
        }
        assert!(member("task_struct", "thread_group_signal").0 + 32 <= TASK_BYTES);
    }
}
