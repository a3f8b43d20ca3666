//! Names of stacks.

use std::collections::HashMap;

use pagehaul_btf::Fault;
use pagehaul_inspect::{Machine, StackDepot};

/// Stacks that are read.
const MAX_STACKS: usize = 1 << 14;
/// Functions that name an owner.
const FEW: usize = 4;

/// Functions that allocate for others, without leading underscores, and what the compiler and `alloc_hooks` (6.10) append. Those
/// that begin with one of these are meant, too.
const ALLOCATORS: [&str; 36] = [
    "alloc_contig",
    "alloc_frozen_pages",
    "alloc_page",
    "alloc_pages",
    "alloc_percpu",
    "alloc_slab_page",
    "alloc_from_pcs",
    "alloc_single_from",
    "allocate_slab",
    "cache_alloc",
    "cache_grow",
    "dma_alloc",
    "dma_direct_alloc",
    "dma_direct_zalloc",
    "folio_alloc",
    "get_free_page",
    "get_page_from_freelist",
    "get_zeroed_page",
    "kmalloc",
    "kmem_cache_alloc",
    "krealloc",
    "kvmalloc",
    "kvrealloc",
    "kzalloc",
    "new_slab",
    "page_frag_alloc",
    "page_frag_cache_refill",
    "pcpu_",
    "post_alloc_hook",
    "prep_new_page",
    "refill_objects",
    "set_page_owner",
    "slab_alloc",
    "vma_alloc_",
    "vmalloc",
    "vzalloc",
];

/// Whether a function allocates for others.
fn is_allocator(function: &str) -> bool {
    let name = function.trim_start_matches('_');
    ALLOCATORS.iter().any(|allocator| name.starts_with(allocator))
}

/// Whether a stack is of a `kmalloc` that is too large for a slab cache.
pub(crate) fn is_large_kmalloc(functions: &[String]) -> bool {
    let is_large = |function: &str| {
        let name = function.trim_start_matches('_');
        // `kmalloc_order` until 5.19.
        name.starts_with("kmalloc_large") || name.starts_with("kmalloc_order")
    };
    // Behind it are its callers.
    functions.iter().take_while(|function| is_allocator(function)).any(|function| is_large(function))
}

/// Returns how many of the first functions of a stack are the allocator's: none if all are.
pub fn allocator_frames(functions: &[String]) -> usize {
    functions.iter().position(|function| !is_allocator(function)).unwrap_or(0)
}

/// Returns the functions of a stack that asked for the memory, the innermost first.
pub(crate) fn callers(functions: &[String]) -> &[String] {
    let callers = functions.get(allocator_frames(functions)..).unwrap_or_default();
    callers.get(..callers.len().min(FEW)).unwrap_or_default()
}

/// Reads and names stacks.
pub(crate) struct Stacks<'a> {
    machine: &'a Machine<'a>,
    depot: Result<StackDepot<'a>, Fault>,
    names: HashMap<u64, String>,
    known: HashMap<u32, Option<Vec<String>>>,
    /// Stacks that were not read, and why the first was not.
    pub(crate) failed: u64,
    pub(crate) why: Option<String>,
    /// Stacks beyond the limit.
    pub(crate) cut: u64,
}

impl<'a> Stacks<'a> {
    pub(crate) fn new(machine: &'a Machine<'a>) -> Self {
        Self {
            machine,
            depot: StackDepot::new(machine),
            names: HashMap::new(),
            known: HashMap::new(),
            failed: 0,
            why: None,
            cut: 0,
        }
    }

    /// Returns the functions of a stack, the innermost first.
    pub(crate) fn functions(&mut self, handle: u32) -> Option<Vec<String>> {
        if let Some(known) = self.known.get(&handle) {
            return known.clone();
        }
        if self.known.len() >= MAX_STACKS {
            self.cut += 1;
            return None;
        }
        let found = match &self.depot {
            Ok(depot) => depot.stack(handle).map_err(|why| why.to_string()),
            Err(why) => Err(why.to_string()),
        };
        let found = match found {
            Ok(addresses) => Some(self.named(&addresses)),
            Err(why) => {
                self.failed += 1;
                self.why.get_or_insert(why);
                None
            }
        };
        self.known.insert(handle, found.clone());
        found
    }

    /// Returns the functions with these return addresses.
    pub(crate) fn named(&mut self, addresses: &[u64]) -> Vec<String> {
        addresses.iter().map(|address| self.function(*address)).collect()
    }

    fn function(&mut self, address: u64) -> String {
        let machine = self.machine;
        let name = self.names.entry(address).or_insert_with(|| {
            // A return address can be that of the next function, where a function never returns.
            let Some(name) = machine.symbols().name(address.wrapping_sub(1)) else {
                return format!("{address:#x}");
            };
            let module = name.module.as_ref().map_or_else(String::new, |module| format!(" [{module}]"));
            let function = name.readable();
            // Parts of functions that the compiler made, and what `alloc_hooks` appends (6.10).
            let function = function.split('.').next().unwrap_or(&function);
            format!("{}{module}", function.strip_suffix("_noprof").unwrap_or(function))
        });
        name.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(functions: &[&str]) -> Vec<String> {
        functions.iter().map(|function| (*function).to_owned()).collect()
    }

    #[test]
    fn the_caller_of_the_allocator_is_the_owner() {
        let pipe = stack(&[
            "__alloc_pages",
            "alloc_pages_mpol",
            "pipe_write",
            "vfs_write",
            "ksys_write",
            "do_syscall_64",
            "x",
        ]);
        assert_eq!(callers(&pipe), ["pipe_write", "vfs_write", "ksys_write", "do_syscall_64"]);
        // An allocator that a caller calls is none of its frames.
        let nested = stack(&["get_page_from_freelist", "e1000_alloc_rx", "kmalloc_array"]);
        assert_eq!(callers(&nested), ["e1000_alloc_rx", "kmalloc_array"]);
        assert_eq!(callers(&stack(&["alloc_pages"])), ["alloc_pages"]);
        assert!(callers(&[]).is_empty());
    }

    #[test]
    fn large_kmalloc_is_known_by_its_stack() {
        assert!(is_large_kmalloc(&stack(&[
            "___kmalloc_large_node",
            "__kmalloc_large_node",
            "__kmalloc",
            "f"
        ])));
        assert!(is_large_kmalloc(&stack(&["alloc_pages", "kmalloc_order", "f"])));
        assert!(!is_large_kmalloc(&stack(&["alloc_pages", "f", "kmalloc_large"])));
    }
}
