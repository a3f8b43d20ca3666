//! Who allocated the objects of slab caches, where the kernel was booted with `slub_debug=U` (`slab_debug=U` in newer kernels).
//!
//! Behind each object of such a cache are two records, of its last allocation and of its last release (`struct track`). Its slabs are
//! all on lists of their nodes, `partial` or `full`, and its free objects are those of the lists of its slabs.

use std::collections::HashSet;

use pagehaul_btf::{Fault, Object};
use pagehaul_inspect::{MAX_SLAB_OBJECTS, Machine, SlabLayout, cache_node};
use pagehaul_kernel::{Kernel, Memmap};
use pagehaul_machine::VirtAddr;
use pagehaul_physmem::{PhysMemory, View};
use pagehaul_present::number::counted;

use super::counts::{By, Counts};
use super::names::Stacks;
use crate::report::{SlabUser, SlabUsers};

/// Caches, their nodes, and slabs that are read.
const MAX_CACHES: usize = 1 << 16;
const MAX_NODES: u64 = 1024;
const MAX_SLABS: u64 = 1 << 20;
/// Bytes of a slab, at most.
const MAX_SLAB_BYTES: u64 = 1 << 22;
/// Bytes of a pointer.
const POINTER: u64 = 8;

/// Reads the records of all caches that keep some. `None`: no cache does.
pub(crate) fn slab_users(
    machine: &Machine<'_>,
    memory: &dyn PhysMemory,
    kernel: &Kernel,
    even_remote: bool,
    missing: &mut Vec<String>,
) -> Option<SlabUsers> {
    let caches =
        machine.variable("slab_caches", "list_head").and_then(|list| list.list("kmem_cache", "list"));
    // The balance has a note on caches that are missing.
    let (caches, lists_all) = caches.map_or((Vec::new(), false), |walk| (walk.items, walk.broken.is_none()));
    let flag = stores_users(machine);
    let keeps = |cache: &&Object<'_>| cache.number("flags").is_ok_and(|flags| flags & flag != 0);
    let caches: Vec<&Object<'_>> = caches.iter().take(MAX_CACHES).filter(keeps).collect();
    if caches.is_empty() {
        return None;
    }
    if memory.view().is_remote() && !even_remote {
        missing
            .push("slub_debug: records of slab objects are read from a server only with --references".into());
        return None;
    }
    let track = match Track::new(machine) {
        Ok(track) => track,
        Err(why) => {
            missing.push(format!("slub_debug: {why}"));
            return None;
        }
    };
    let mut reader = Reader::new(machine, memory, kernel, track);
    reader.is_whole = lists_all;
    for cache in &caches {
        let name = cache.get("name").and_then(|name| name.text()).unwrap_or_default();
        if let Err(why) = reader.cache(&name, cache) {
            reader.is_whole = false;
            missing.push(format!("slub_debug: the slab cache {name}: {why}"));
        }
    }
    Some(reader.finish(caches.len(), missing))
}

/// Returns `SLAB_STORE_USER`: an enumerator since 6.9, a macro before.
fn stores_users(machine: &Machine<'_>) -> u64 {
    let bit = machine.space().btf().enumerator("_SLAB_STORE_USER");
    bit.and_then(|bit| 1_u64.checked_shl(u32::try_from(bit).ok()?)).unwrap_or(0x1_0000)
}

/// Where a record has what.
struct Track {
    size: u64,
    addr: usize,
    pid: usize,
    /// A handle of the stack depot since 5.18; an array of addresses before.
    handle: Option<usize>,
    addrs: Option<(usize, usize)>,
}

impl Track {
    fn new(machine: &Machine<'_>) -> Result<Self, Fault> {
        let space = machine.space();
        let offset = |member| space.offset_of("track", member).map(|offset| offset as usize);
        let size = space.size_of("track")?;
        let addrs = offset("addrs").ok().map(|at| {
            // The members behind it begin where it ends.
            let end = ["cpu", "pid", "when"].iter().filter_map(|member| offset(member).ok());
            (at, end.filter(|end| *end > at).min().unwrap_or(size as usize))
        });
        Ok(Self { size, addr: offset("addr")?, pid: offset("pid")?, handle: offset("handle").ok(), addrs })
    }

    /// Returns what a record says; `None` if nothing was recorded.
    fn read(&self, record: &[u8]) -> Option<(By, u32)> {
        let word = |at: usize| record.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
        let half = |at: usize| record.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let addr = word(self.addr).filter(|addr| *addr != 0)?;
        let pid = half(self.pid)?;
        let by = match (self.handle.and_then(half).filter(|handle| *handle != 0), self.addrs) {
            (Some(handle), _) => By::Stack(handle),
            (None, Some((from, to))) => {
                let addrs: Vec<u64> =
                    (from..to).step_by(8).map_while(word).take_while(|addr| *addr >> 63 == 1).collect();
                By::Addresses(if addrs.is_empty() { vec![addr] } else { addrs })
            }
            (None, None) => By::Addresses(vec![addr]),
        };
        Some((by, pid))
    }
}

struct Reader<'a> {
    machine: &'a Machine<'a>,
    kernel: &'a Kernel,
    view: Box<dyn View + 'a>,
    memmap: Memmap,
    track: Track,
    /// 5.17 has `struct slab` (d122019bf061), earlier kernels `struct page`.
    record: &'static str,
    names: Vec<String>,
    counts: Counts<usize, u32>,
    slabs: u64,
    objects: u64,
    unrecorded: u64,
    /// Whether all slabs were read, as far as is known.
    is_whole: bool,
    why: Option<String>,
}

impl<'a> Reader<'a> {
    fn new(machine: &'a Machine<'a>, memory: &'a dyn PhysMemory, kernel: &'a Kernel, track: Track) -> Self {
        let end = memory.ranges().end_pfn(kernel.page_size());
        let mut view = memory.view();
        Self {
            machine,
            kernel,
            memmap: Memmap::read(kernel, view.as_mut(), end),
            view,
            track,
            record: if machine.space().record("slab").is_ok() { "slab" } else { "page" },
            names: Vec::new(),
            counts: Counts::new(),
            slabs: 0,
            objects: 0,
            unrecorded: 0,
            is_whole: true,
            why: None,
        }
    }

    fn lost(&mut self, why: String) {
        self.is_whole = false;
        self.why.get_or_insert(why);
    }

    fn cache(&mut self, name: &str, cache: &Object<'a>) -> Result<(), Fault> {
        let layout = SlabLayout::new(cache)?;
        let inuse = cache.number("inuse")?;
        // `get_info_end`: a link behind the object precedes the records.
        let behind = if layout.link >= inuse { inuse + POINTER } else { inuse };
        if behind.checked_add(2 * self.track.size).is_none_or(|end| end > layout.size - layout.first) {
            return Err(Fault::WrongKind(format!("its size, {},", layout.size), "one with room for records"));
        }
        let number = self.names.len();
        self.names.push(name.to_owned());
        let nodes = self.machine.u32("nr_node_ids").map_or(1, u64::from).clamp(1, MAX_NODES);
        for node in 0..nodes {
            let pointer = cache_node(cache, node)?;
            if pointer == 0 {
                continue;
            }
            let node = self.machine.space().object(pointer, "kmem_cache_node")?;
            for list in ["partial", "full"] {
                let slabs = node.get(list)?.list(self.record, "slab_list")?;
                if let Some(why) = slabs.broken {
                    self.lost(format!("the list of {list} slabs of {name}: {why}"));
                }
                for slab in slabs.items {
                    self.slabs += 1;
                    if self.slabs > MAX_SLABS {
                        continue;
                    }
                    if let Err(why) = self.slab(number, &layout, behind, &slab) {
                        self.lost(why.to_string());
                    }
                }
            }
        }
        Ok(())
    }

    /// Counts the objects of a slab that are in use.
    fn slab(
        &mut self,
        cache: usize,
        layout: &SlabLayout,
        behind: u64,
        slab: &Object<'_>,
    ) -> Result<(), Fault> {
        let wrong = |what: &'static str| Fault::WrongKind(format!("the slab at {:#x}", slab.address()), what);
        let objects = slab.number("objects")?;
        let bytes = objects.checked_mul(layout.size).filter(|bytes| *bytes <= MAX_SLAB_BYTES);
        let bytes = bytes.filter(|_| objects <= MAX_SLAB_OBJECTS).ok_or_else(|| wrong("one of its cache"))?;
        let pfn = self.memmap.pfn(VirtAddr::new(slab.address()));
        let at = pfn.ok_or_else(|| wrong("a struct page"))?.start(self.kernel.page_size()).get();
        let mut free = HashSet::new();
        for object in layout.free_objects(self.machine.memory(), slab.get("freelist")?.pointer()?) {
            let translator = self.kernel.space().translator();
            let object = translator.translate(self.view.as_mut(), object?)?.paddr;
            let index = layout.index(at, object).filter(|index| *index < objects);
            if !free.insert(index.ok_or_else(|| wrong("one with its own free objects"))?) {
                return Err(wrong("one whose free objects are a list"));
            }
        }
        let mut memory = vec![0; bytes as usize];
        let fault = |why| Fault::NotRead(format!("the slab at {at:#x}: {why}"));
        self.view.read(at, &mut memory).map_err(fault)?;
        for index in (0..objects).filter(|index| !free.contains(index)) {
            self.objects += 1;
            let start = (index * layout.size + layout.first + behind) as usize;
            let record = memory.get(start..start + self.track.size as usize);
            let Some((by, pid)) = record.and_then(|record| self.track.read(record)) else {
                self.unrecorded += 1;
                continue;
            };
            self.counts.add(cache, by, layout.size, pid);
        }
        Ok(())
    }

    fn finish(self, caches: usize, missing: &mut Vec<String>) -> SlabUsers {
        let mut stacks = Stacks::new(self.machine);
        let (count, cut) = (self.counts.len(), self.counts.cut);
        let (largest, lost) = self.counts.largest(&mut stacks);
        let largest = largest.into_iter().map(|row| SlabUser {
            cache: self.names.get(row.of).cloned().unwrap_or_default(),
            objects: row.objects,
            bytes: row.bytes,
            stack: row.stack,
            pids: row.named,
            tasks: row.tasks,
        });
        if let Some(why) = stacks.why {
            let failed = counted(stacks.failed, "stack");
            missing.push(format!("slub_debug: {failed} cannot be read, the first because: {why}"));
        }
        if let Some(why) = self.why {
            missing.push(format!("slub_debug: not all slabs can be read, the first because: {why}"));
        }
        let beyond = self.slabs.saturating_sub(MAX_SLABS);
        if beyond > 0 {
            missing.push(format!("slub_debug: {} are not read", counted(beyond, "slab")));
        }
        if cut > 0 {
            missing.push(format!("slub_debug: {} of more stacks than are counted", counted(cut, "object")));
        }
        SlabUsers {
            caches,
            objects: self.objects,
            unrecorded: self.unrecorded.saturating_add(lost),
            is_whole: self.is_whole && beyond == 0,
            largest: largest.collect(),
            count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn a_record_names_a_stack_or_addresses() {
        // 6.1: addr, handle and cpu, pid and padding, when.
        let handles = Track { size: 32, addr: 0, pid: 16, handle: Some(8), addrs: None };
        let kernel = 0xffff_ffff_8100_0000;
        assert_eq!(handles.read(&words(&[kernel, 7 << 32 | 0x55, 42, 9])), Some((By::Stack(0x55), 42)));
        // No memory for the stack: the caller is known.
        assert_eq!(handles.read(&words(&[kernel, 0, 42, 9])), Some((By::Addresses(vec![kernel]), 42)));
        assert_eq!(handles.read(&words(&[0, 0x55, 42, 9])), None);
        assert_eq!(handles.read(&words(&[kernel])), None);
        // 5.10: addr, addrs, cpu and pid.
        let addresses = Track { size: 40, addr: 0, pid: 28, handle: None, addrs: Some((8, 24)) };
        let record = words(&[kernel, kernel + 4, kernel + 8, 42 << 32, 9]);
        assert_eq!(addresses.read(&record), Some((By::Addresses(vec![kernel + 4, kernel + 8]), 42)));
        let short = words(&[kernel, kernel + 4, 0, 42 << 32, 9]);
        assert_eq!(addresses.read(&short), Some((By::Addresses(vec![kernel + 4]), 42)));
    }
}
