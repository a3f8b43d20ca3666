//! Slab objects that are free: what was in them is still there.
//!
//! A slab with free objects is on the list of partial slabs of its node, or belongs to a CPU (until 7.0). Its free objects are a list,
//! whose links are in the objects. Since 6.18 others are in arrays of CPUs and nodes, the sheaves.

use std::collections::BTreeMap;
use std::ops::Range;

use pagehaul_btf::{Fault, Object, Space};
use pagehaul_inspect::{Machine, SlabLayout, cache_node, page_head};
use pagehaul_kernel::{Kernel, Memmap};
use pagehaul_machine::{PageSize, Pfn, VirtAddr};
use pagehaul_physmem::PhysMemory;
use serde::{Deserialize, Serialize};

use crate::collect::{Collector, Translate};

/// Slabs with free objects: about 60 MiB. Walks take longer than a capture may before there are as many.
const MAX_SLABS: usize = 1 << 20;
/// Caches, their nodes, slabs in a row of a CPU, and objects of a sheaf.
const MAX_CACHES: usize = 1 << 16;
const MAX_NODES: u64 = 1024;
const MAX_ROW: usize = 1 << 16;
const MAX_SHEAF: u64 = 1 << 12;
/// Bytes of a pointer.
const POINTER: u64 = 8;

/// Free objects, which are overwritten with zeros but for the link to the next: lists of free objects stay whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FreeObjects {
    shapes: Vec<Shape>,
    /// By address.
    slabs: Vec<Slab>,
}

/// How the objects of a cache lie in its slabs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Shape {
    /// Bytes from an object to the next.
    size: u64,
    /// Bytes from where that of the first object would be to where it is: with red zones only.
    first: u64,
    /// Bytes of it that are overwritten.
    used: u64,
    /// Where in a free object the link is.
    link: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Slab {
    /// Physical address.
    at: u64,
    /// Which of the shapes.
    shape: u32,
    /// A bit for each object that is free.
    free: Vec<u64>,
}

impl Slab {
    fn set(&mut self, index: u64) -> bool {
        let (word, bit) = ((index / 64) as usize, 1_u64 << (index % 64));
        if self.free.len() <= word {
            self.free.resize(word + 1, 0);
        }
        let word = self.free.get_mut(word);
        word.is_some_and(|word| {
            let is_new = *word & bit == 0;
            *word |= bit;
            is_new
        })
    }

    fn objects(&self) -> impl Iterator<Item = u64> {
        let bits = |(index, word): (usize, &u64)| {
            let word = *word;
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| 64 * index as u64 + bit)
        };
        self.free.iter().enumerate().flat_map(bits)
    }
}

impl FreeObjects {
    /// Overwrites what is of free objects in `bytes`, which are those at `paddr`.
    pub(crate) fn overwrite(&self, paddr: u64, bytes: &mut [u8]) {
        let end = paddr.saturating_add(bytes.len() as u64);
        for slab in self.within(paddr, end) {
            let Some(shape) = self.shapes.get(slab.shape as usize) else { continue };
            for index in slab.objects() {
                let start = slab.at + index * shape.size + shape.first;
                let link = start + shape.link;
                for part in [start..link.min(start + shape.used), link + POINTER..start + shape.used] {
                    let from = part.start.max(paddr);
                    let to = part.end.min(end);
                    if from < to {
                        let part = (from - paddr) as usize..(to - paddr) as usize;
                        bytes.get_mut(part).unwrap_or_default().fill(0);
                    }
                }
            }
        }
    }

    /// Whether there may be free objects in this memory.
    pub(crate) fn has_any(&self, memory: Range<u64>) -> bool {
        !self.within(memory.start, memory.end).is_empty()
    }

    fn within(&self, start: u64, end: u64) -> &[Slab] {
        // Slabs do not overlap, so their ends ascend, too.
        let from = self.slabs.partition_point(|slab| self.end_of(slab) <= start);
        let later = self.slabs.get(from..).unwrap_or_default();
        later.get(..later.partition_point(|slab| slab.at < end)).unwrap_or_default()
    }

    fn end_of(&self, slab: &Slab) -> u64 {
        let Some(shape) = self.shapes.get(slab.shape as usize) else { return slab.at };
        // Not beyond the last one that is free, which is in the slab.
        let unused = slab.free.last().map_or(64, |word| u64::from(word.leading_zeros()));
        slab.at + (64 * slab.free.len() as u64).saturating_sub(unused) * shape.size + shape.first
    }
}

/// Finds the free objects of all caches.
pub(crate) fn find(machine: &Machine<'_>, memory: &dyn PhysMemory, out: &mut Collector<'_>) {
    match Finder::new(machine, memory, out.translate()).and_then(|mut finder| {
        finder.find(out)?;
        Ok(finder.finish())
    }) {
        Ok((free, objects, bytes)) => out.free_objects(free, objects, bytes),
        Err(why) => out.gap(format!("free slab objects: {why}")),
    }
}

/// A cache while its slabs are walked.
struct Cache {
    shape: u32,
    layout: SlabLayout,
}

struct Finder<'a> {
    machine: &'a Machine<'a>,
    space: &'a Space<'a>,
    translate: &'a Translate<'a>,
    memmap: Memmap,
    page_size: PageSize,
    /// 5.17 has `struct slab` (d122019bf061), earlier kernels `struct page`.
    record: &'static str,
    shapes: Vec<Shape>,
    slabs: BTreeMap<u64, Slab>,
    objects: u64,
    bytes: u64,
}

impl<'a> Finder<'a> {
    fn new(
        machine: &'a Machine<'a>,
        memory: &dyn PhysMemory,
        translate: &'a Translate<'a>,
    ) -> Result<Self, Fault> {
        let kernel = Kernel::discover(memory)
            .map_err(|why| Fault::WrongKind(format!("the table of struct pages ({why})"), "one"))?;
        let page_size = kernel.page_size();
        let end = memory.ranges().end_pfn(page_size);
        let space = machine.space();
        Ok(Self {
            machine,
            space,
            translate,
            memmap: Memmap::read(&kernel, memory.view().as_mut(), end),
            page_size,
            record: if space.record("slab").is_ok() { "slab" } else { "page" },
            shapes: Vec::new(),
            slabs: BTreeMap::new(),
            objects: 0,
            bytes: 0,
        })
    }

    fn finish(self) -> (FreeObjects, u64, u64) {
        (
            FreeObjects { shapes: self.shapes, slabs: self.slabs.into_values().collect() },
            self.objects,
            self.bytes,
        )
    }

    fn find(&mut self, out: &mut Collector<'_>) -> Result<(), Fault> {
        let caches = self.machine.variable("slab_caches", "list_head")?.list("kmem_cache", "list")?;
        out.broken("the list of slab caches", caches.broken);
        let nodes = self.machine.u32("nr_node_ids").map_or(1, u64::from).clamp(1, MAX_NODES);
        let cpus = self.machine.cpu_mask("__cpu_possible_mask")?;
        for object in caches.items.into_iter().take(MAX_CACHES) {
            let name = object.get("name").and_then(|name| name.text()).unwrap_or_default();
            let result = self.of_cache(&object, nodes, &cpus, out);
            result.unwrap_or_else(|why| out.gap(format!("free objects of the slab cache {name}: {why}")));
            if self.slabs.len() >= MAX_SLABS {
                out.gap(format!("free objects: more than {MAX_SLABS} slabs have some"));
                break;
            }
        }
        Ok(())
    }

    fn of_cache(
        &mut self,
        object: &Object<'a>,
        nodes: u64,
        cpus: &[u64],
        out: &mut Collector<'_>,
    ) -> Result<(), Fault> {
        let cache = self.cache(object)?;
        for node in 0..nodes {
            let pointer = cache_node(object, node)?;
            if pointer != 0 {
                let node = self.space.object(pointer, "kmem_cache_node")?;
                let slabs = node.get("partial")?.list(self.record, "slab_list")?;
                out.broken("partial slabs", slabs.broken);
                for slab in slabs.items {
                    let head = slab.get("freelist")?.pointer()?;
                    self.list(&cache, &slab, head)?;
                }
            }
            // With the node since 7.1.
            let barn = match object.get("per_node").and_then(|all| all.index(node)) {
                Ok(of_node) => of_node.get("barn").and_then(|barn| barn.pointer()),
                Err(_) => {
                    self.space.object(pointer, "kmem_cache_node")?.get("barn").and_then(|barn| barn.pointer())
                }
            };
            if let Ok(barn @ 1..) = barn {
                let full = self.space.object(barn, "node_barn")?.get("sheaves_full")?;
                let sheaves = full.list("slab_sheaf", "barn_list")?;
                out.broken("sheaves", sheaves.broken);
                sheaves.items.iter().try_for_each(|sheaf| self.sheaf(&cache, sheaf))?;
            }
        }
        for cpu in cpus {
            self.of_cpu(object, &cache, *cpu)?;
        }
        Ok(())
    }

    fn cache(&mut self, object: &Object<'_>) -> Result<Cache, Fault> {
        let layout = SlabLayout::new(object)?;
        let SlabLayout { size, first, link, .. } = layout;
        // With red zones, what surrounds objects is checked by others.
        let used = if first > 0 { layout.object_size } else { size };
        let shape = self.shapes.len() as u32;
        self.shapes.push(Shape { size, first, used: used.min(size - first), link });
        Ok(Cache { shape, layout })
    }

    /// Adds what a CPU has of a cache: a slab that it allocates from, slabs in reserve, and sheaves.
    fn of_cpu(&mut self, object: &Object<'a>, cache: &Cache, cpu: u64) -> Result<(), Fault> {
        // Gone since 7.0.
        if let Ok(per_cpu) = object.get("cpu_slab") {
            let at = self.machine.on_cpu(per_cpu.pointer()?, cpu)?;
            let per_cpu = self.space.object(at, "kmem_cache_cpu")?;
            // bb192ed9aa71 (5.17) renamed `page`.
            let slab = per_cpu.any(&["slab", "page"])?.pointer()?;
            if slab != 0 {
                let slab = self.space.object(slab, self.record)?;
                self.list(cache, &slab, per_cpu.get("freelist")?.pointer()?)?;
                let head = slab.get("freelist")?.pointer()?;
                self.list(cache, &slab, head)?;
            }
            // Without CONFIG_SLUB_CPU_PARTIAL there are none.
            let mut next = per_cpu.get("partial").and_then(|partial| partial.pointer()).unwrap_or(0);
            let mut left = MAX_ROW;
            while next != 0 && left > 0 {
                let slab = self.space.object(next, self.record)?;
                let head = slab.get("freelist")?.pointer()?;
                self.list(cache, &slab, head)?;
                next = slab.get("next")?.pointer()?;
                left -= 1;
            }
        }
        if let Ok(sheaves) = object.get("cpu_sheaves")
            && let sheaves @ 1.. = sheaves.pointer()?
        {
            let sheaves = self.space.object(self.machine.on_cpu(sheaves, cpu)?, "slub_percpu_sheaves")?;
            for name in ["main", "spare"] {
                let sheaf = sheaves.get(name)?.pointer()?;
                if sheaf != 0 {
                    self.sheaf(cache, &self.space.object(sheaf, "slab_sheaf")?)?;
                }
            }
        }
        Ok(())
    }

    /// Adds the objects of an array.
    fn sheaf(&mut self, cache: &Cache, sheaf: &Object<'_>) -> Result<(), Fault> {
        let first = sheaf.get("objects")?.address();
        for index in 0..sheaf.number("size")?.min(MAX_SHEAF) {
            let object = self.machine.memory().u64(first.wrapping_add(POINTER * index))?;
            let physical = (self.translate)(object)?;
            let page = Pfn::new(physical >> self.page_size.shift());
            let Some(page) = self.memmap.struct_page(page) else { continue };
            let page = self.space.object(page.get(), "page")?;
            let slab = self.slab(cache, page_head(&page)?)?;
            self.add(cache, slab, physical)?;
        }
        Ok(())
    }

    /// Adds the objects of a list.
    fn list(&mut self, cache: &Cache, slab: &Object<'_>, head: u64) -> Result<(), Fault> {
        let at = self.slab(cache, slab.address())?;
        for object in cache.layout.free_objects(self.machine.memory(), head) {
            let object = object?;
            if !self.add(cache, at, (self.translate)(object)?)? {
                return Err(Fault::WrongKind(
                    format!("the list of free objects at {object:#x}"),
                    "a list: it meets itself",
                ));
            }
        }
        Ok(())
    }

    /// Returns the physical address of a slab by that of its struct page.
    fn slab(&self, _cache: &Cache, page: u64) -> Result<u64, Fault> {
        let wrong = || Fault::WrongKind(format!("the struct page at {page:#x}"), "one of a slab");
        Ok(self.memmap.pfn(VirtAddr::new(page)).ok_or_else(wrong)?.start(self.page_size).get())
    }

    /// Adds an object. Returns false if it was there.
    fn add(&mut self, cache: &Cache, slab: u64, object: u64) -> Result<bool, Fault> {
        let Some(index) = cache.layout.index(slab, object) else {
            return Err(Fault::WrongKind(format!("{object:#x}"), "an object of the slab"));
        };
        let found = self.slabs.entry(slab).or_insert(Slab { at: slab, shape: cache.shape, free: Vec::new() });
        let is_new = found.set(index);
        if is_new {
            self.objects += 1;
            self.bytes = self.bytes.saturating_add(cache.layout.size);
        }
        Ok(is_new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_objects_in_use_stay() {
        let shapes = vec![
            Shape { size: 64, first: 0, used: 64, link: 32 },
            Shape { size: 96, first: 32, used: 40, link: 40 },
        ];
        let slab = |at, shape, free: &[u64]| {
            let mut slab = Slab { at, shape, free: Vec::new() };
            free.iter().for_each(|index| assert!(slab.set(*index)));
            assert!(!slab.set(free[0]));
            slab
        };
        let objects = FreeObjects {
            shapes,
            slabs: vec![slab(0x1000, 0, &[0, 63]), slab(0x2000, 1, &[2]), slab(0x3000, 0, &[5])],
        };
        let mut memory = vec![1; 0x4000];
        // In pieces that cut objects.
        for at in (0..memory.len()).step_by(100) {
            let end = memory.len().min(at + 100);
            objects.overwrite(at as u64, &mut memory[at..end]);
        }
        let zeros: Vec<usize> =
            memory.iter().enumerate().filter(|(_, byte)| **byte == 0).map(|(at, _)| at).collect();
        let expected = [
            0x1000..0x1020,
            0x1028..0x1040,
            0x1fc0..0x1fe0,
            0x1fe8..0x2000,
            0x20e0..0x2108,
            0x3140..0x3160,
            0x3168..0x3180,
        ];
        assert_eq!(zeros, expected.into_iter().flatten().collect::<Vec<_>>());
        assert!(
            objects.has_any(0x20e0..0x20e1)
                && !objects.has_any(0x2200..0x3000)
                && !objects.has_any(0..0x1000)
        );
    }
}
