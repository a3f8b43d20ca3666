//! What the kernel records for each page in addition to its struct page (mm/page_ext.c): which stack and task allocated it
//! (`page_owner=on`), and the place in the source (`sysctl.vm.mem_profiling=1`, 6.10).

use pagehaul_btf::Fault;

use super::page_tags::PageTags;
use crate::machine::Machine;

/// Bytes kept of one page at most: 80 with both, and there are few other users.
const MAX_BYTES: u64 = 4096;
/// `PAGE_EXT_OWNER_ALLOCATED`: the page is allocated now. Bit 0 stays once it was.
const ALLOCATED: i64 = 1;

/// Where entries are, and what they have.
#[derive(Debug, Clone)]
pub struct PageExt {
    /// Offset of the pointer to entries in `struct mem_section`.
    pub in_section: u64,
    /// Bytes of an entry.
    pub size: usize,
    owner: Option<OwnerFields>,
    tag: Option<usize>,
    /// Tags that are in the flags of struct pages instead.
    in_flags: Option<PageTags>,
    /// What is on but cannot be read, one sentence each.
    pub missing: Vec<String>,
}

#[derive(Debug, Clone)]
struct OwnerFields {
    allocated: u64,
    handle: usize,
    comm: Option<usize>,
    pid: Option<usize>,
    /// Stands for the pages that were allocated before there were entries.
    early: u32,
    /// Stands for stacks that were not saved: the depot allocated memory itself, or had none.
    unsaved: [u32; 2],
}

/// Who allocated a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageOwner {
    /// Its stack in the stack depot.
    pub stack: OwnerStack,
    /// Name and ID of the task (6.1).
    pub task: Option<([u8; 16], u32)>,
}

/// What is known of a stack before it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerStack {
    /// Its handle.
    Saved(u32),
    /// Allocated before `page_owner` started.
    Early,
    /// Allocated for `page_owner` itself, or without memory for the stack.
    Unsaved,
}

impl PageExt {
    /// Finds the entries; `None` if the kernel keeps nothing of its pages, or was not booted with it.
    pub fn new(machine: &Machine<'_>) -> Option<Self> {
        let mut missing = Vec::new();
        let owner = known("page_owner", owner_offset(machine), &mut missing);
        let (tag, in_flags) = match known("allocation tags of pages", tags(machine), &mut missing) {
            Some(Tags::InEntries(at)) => (Some(at), None),
            Some(Tags::InFlags(tags)) => (None, Some(tags)),
            None => (None, None),
        };
        let mut found = Self { in_section: 0, size: 0, owner: None, tag: None, in_flags, missing };
        if owner.is_none() && tag.is_none() {
            return (found.in_flags.is_some() || !found.missing.is_empty()).then_some(found);
        }
        if let Err(why) = found.fill(machine, owner, tag) {
            (found.owner, found.tag) = (None, None);
            let what = if owner.is_some() { "page_owner" } else { "allocation tags of pages" };
            found.missing.push(format!("{what}: {why}"));
        }
        Some(found)
    }

    fn fill(&mut self, machine: &Machine<'_>, owner: Option<usize>, tag: Option<usize>) -> Result<(), Fault> {
        let space = machine.space();
        self.in_section = space.offset_of("mem_section", "page_ext")?;
        let size = machine.u64("page_ext_size")?;
        let fits = |at: usize, bytes: u64| (at as u64).checked_add(bytes).is_some_and(|end| end <= size);
        let bad = |what: &str| Fault::NotRead(format!("{what} does not fit entries of {size} bytes"));
        if size == 0 || size > MAX_BYTES {
            return Err(bad("what is kept of a page"));
        }
        self.size = size as usize;
        if let Some(at) = owner {
            if !fits(at, space.size_of("page_owner")?) || !fits(0, 8) {
                return Err(bad("struct page_owner"));
            }
            let member = |name| space.offset_of("page_owner", name).map(|offset| at + offset as usize);
            let bit = space.btf().enumerator("PAGE_EXT_OWNER_ALLOCATED").unwrap_or(ALLOCATED);
            let handle = |name| machine.u32(name).unwrap_or(0);
            self.owner = Some(OwnerFields {
                allocated: 1 << (bit & 63),
                handle: member("handle")?,
                comm: member("comm").ok(),
                pid: member("pid").ok(),
                early: handle("early_handle"),
                unsaved: ["dummy_handle", "failure_handle"].map(handle),
            });
        }
        if let Some(at) = tag {
            if !fits(at, 8) {
                return Err(bad("an allocation tag"));
            }
            self.tag = Some(at);
        }
        Ok(())
    }

    /// Returns whether entries say who allocated their pages.
    pub fn has_owners(&self) -> bool {
        self.owner.is_some()
    }

    /// Returns whether pages have allocation tags.
    pub fn has_tags(&self) -> bool {
        self.tag.is_some() || self.has_tags_in_flags()
    }

    /// Returns whether the flags of struct pages have the allocation tags, and entries have none.
    pub fn has_tags_in_flags(&self) -> bool {
        self.in_flags.is_some()
    }

    /// Returns whether something is kept in entries.
    pub fn has_entries(&self) -> bool {
        self.owner.is_some() || self.tag.is_some()
    }

    /// Returns who allocated the page of an entry; `None` if it is not allocated, or that is not kept.
    #[inline]
    pub fn owner(&self, entry: &[u8]) -> Option<PageOwner> {
        let fields = self.owner.as_ref()?;
        // The flags come first.
        if word(entry, 0)? & fields.allocated == 0 {
            return None;
        }
        let handle = half(entry, fields.handle)?;
        let stack = match handle {
            0 => OwnerStack::Unsaved,
            _ if handle == fields.early => OwnerStack::Early,
            _ if fields.unsaved.contains(&handle) => OwnerStack::Unsaved,
            _ => OwnerStack::Saved(handle),
        };
        let task = fields
            .comm
            .zip(fields.pid)
            .and_then(|(comm, pid)| Some((task_name(entry.get(comm..)?)?, half(entry, pid)?)));
        Some(PageOwner { stack, task })
    }

    /// Returns the address of the allocation tag of an entry. Of a block, the first page has it.
    #[inline]
    pub fn tag(&self, entry: &[u8]) -> Option<u64> {
        // 1 stands for pages that are never counted (CODETAG_EMPTY).
        word(entry, self.tag?).filter(|tag| tag >> 63 == 1)
    }

    /// Returns the address of the allocation tag in the flags of a struct page. Of a block, the first page has it.
    #[inline]
    pub fn tag_in_flags(&self, flags: u64) -> Option<u64> {
        self.in_flags.as_ref()?.tag(flags)
    }
}

/// Returns the name of a task (`TASK_COMM_LEN`), zeros behind its end: there can be bytes of an earlier name.
pub fn task_name(bytes: &[u8]) -> Option<[u8; 16]> {
    let mut name: [u8; 16] = *bytes.first_chunk()?;
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    name.get_mut(end..).unwrap_or_default().fill(0);
    Some(name)
}

#[inline]
fn word(entry: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*entry.get(at..)?.first_chunk()?))
}

#[inline]
fn half(entry: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*entry.get(at..)?.first_chunk()?))
}

/// Returns where `struct page_owner` is in entries; `None` if it is not there.
fn owner_offset(machine: &Machine<'_>) -> Result<Option<usize>, Fault> {
    match (static_key_enabled(machine, "page_owner_inited"), machine.space().record("page_owner")) {
        (Ok(false), _) => Ok(None),
        (Ok(true), Ok(_)) => client(machine, "page_owner_ops").map(Some),
        // The type is defined where it is used only.
        (Err(_), Ok(_)) => Err(Fault::NotRead(
            "the kernel has it, but whether it is on is not known, as its variables cannot be read".into(),
        )),
        (Ok(true), Err(why)) => Err(why),
        (Err(_), Err(_)) => Ok(None),
    }
}

/// Returns what was found, or says why nothing was.
fn known<T>(what: &str, found: Result<Option<T>, Fault>, missing: &mut Vec<String>) -> Option<T> {
    found.unwrap_or_else(|why| {
        missing.push(format!("{what}: {why}"));
        None
    })
}

/// Where the allocation tags of pages are.
enum Tags {
    InEntries(usize),
    InFlags(PageTags),
}

/// Returns where the allocation tags of pages are; `None` if there are none.
fn tags(machine: &Machine<'_>) -> Result<Option<Tags>, Fault> {
    if !static_key_enabled(machine, "mem_alloc_profiling_key").unwrap_or(false) {
        return Ok(None);
    }
    if static_key_enabled(machine, "mem_profiling_compressed").unwrap_or(false) {
        return PageTags::new(machine).map(|tags| Some(Tags::InFlags(tags)));
    }
    client(machine, "page_alloc_tagging_ops").map(|at| Some(Tags::InEntries(at)))
}

/// Returns whether a static key is on.
pub fn static_key_enabled(machine: &Machine<'_>, key: &str) -> Result<bool, Fault> {
    // `struct static_key` begins with its counter.
    Ok(machine.u32(key)? as i32 > 0)
}

fn client(machine: &Machine<'_>, operations: &str) -> Result<usize, Fault> {
    let offset = machine.variable(operations, "page_ext_operations")?.number("offset")?;
    usize::try_from(offset)
        .ok()
        .filter(|offset| *offset as u64 <= MAX_BYTES)
        .ok_or_else(|| Fault::NotRead(format!("{operations} has its data at {offset:#x}, behind any entry")))
}
