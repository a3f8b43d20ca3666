//! From reverse maps of anonymous memory to processes.

use std::collections::HashMap;

use pagehaul_btf::Fault;
use pagehaul_inspect::{Machine, Tasks};

/// Mappings of one reverse map that are read.
const MAX_MAPPINGS: usize = 4096;
/// Processes that are listed for one reverse map, at most.
const MAX_SHARING: usize = 64;
/// Mappings of all of them: a tree of each of a million processes is a few levels deep.
const MAX_ALTOGETHER: usize = 4 << 20;

/// Processes by the address of their `struct mm_struct`.
pub(crate) struct Processes<'a> {
    machine: &'a Machine<'a>,
    by_mm: HashMap<u64, String>,
    /// Who has memory of no task that is known.
    other: &'static str,
    left: usize,
}

/// Who maps a reverse map's pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapped {
    /// The process whose mapping the reverse map was made for; another if it is gone.
    pub(crate) mm: u64,
    /// Other processes that may share pages: children that have not written to them.
    pub(crate) others: usize,
}

impl<'a> Processes<'a> {
    pub(crate) fn new(machine: &'a Machine<'_>, tasks: &Tasks) -> Self {
        let mut by_mm = HashMap::new();
        for task in tasks.all.iter().filter(|task| task.mm.0 != 0) {
            // Threads come after their process.
            by_mm.entry(task.mm.0).or_insert_with(|| format!("{}/{}", task.comm, task.tgid));
        }
        let other = match tasks.broken.is_empty() {
            true => "a process that exits",
            false => "a process that is not known",
        };
        Self { machine, by_mm, other, left: MAX_ALTOGETHER }
    }

    /// Returns the name of the process with this memory.
    pub(crate) fn name(&mut self, mm: u64) -> String {
        self.by_mm.get(&mm).cloned().unwrap_or_else(|| self.other.into())
    }

    /// Returns whether mappings are left that may be read.
    pub(crate) fn exhausted(&self) -> bool {
        self.left == 0
    }

    /// Returns the processes that map the pages of a reverse map, or `None` if none does any more. Fails if the reverse map cannot be read
    /// whole.
    pub(crate) fn mapped(&mut self, anon_vma: u64) -> Result<Option<Mapped>, Fault> {
        let space = self.machine.space();
        let root = space.object(anon_vma, "anon_vma")?.get("rb_root")?;
        // A tree with a cached leftmost node (f808c13fd373, 4.14).
        let root = root.get("rb_root").unwrap_or(root);
        let chains = root.tree("anon_vma_chain", "rb")?;
        let mut owner = None;
        let mut mms: Vec<u64> = Vec::new();
        for chain in chains.items.into_iter().take(MAX_MAPPINGS) {
            if self.left == 0 {
                break;
            }
            self.left -= 1;
            let area = chain.get("vma")?.target()?;
            let mm = area.number("vm_mm")?;
            if owner.is_none() && area.number("anon_vma")? == anon_vma {
                owner = Some(mm);
            }
            if mms.len() < MAX_SHARING && !mms.contains(&mm) {
                mms.push(mm);
            }
        }
        if let (None, Some(why)) = (owner, chains.broken) {
            return Err(Fault::NotRead(why));
        }
        let mm = owner.or_else(|| mms.first().copied());
        Ok(mm.map(|mm| Mapped { mm, others: mms.len().saturating_sub(1) }))
    }
}
