//! Owners of pages by stack or tag, and the stacks of the report.

use std::collections::{BTreeMap, HashMap};

use pagehaul_inspect::{Machine, PageExt};
use pagehaul_kernel::KernelError;
use pagehaul_machine::PageCount;
use pagehaul_physmem::PhysMemory;
use pagehaul_present::number::counted;

use super::names::{Stacks, callers, is_large_kmalloc};
use super::records::{By, Part, Records, Task, label, records};
use super::sites::{Tags, place};
use crate::report::{Allocation, AllocationStack, Owner, RowKind, Stacks as Report};
use crate::tally::{Rules, Tally};

/// Stacks and places that are reported.
pub(crate) const MAX_REPORTED: usize = 100;
/// Tasks that are named of those that allocated an owner's pages.
const MAX_TASKS: usize = 4;
/// The name of what debugging allocates for itself.
const OWN: &str = "allocated for page_owner and its stacks";

/// Owners of pages that nothing else names, and what is reported besides.
#[derive(Debug, Default)]
pub(crate) struct Allocations {
    /// Owners of pages without a mark.
    pub(crate) nothing: Vec<Owner>,
    /// Of compound pages: large kmalloc, and others. Until 6.18 both are among the compound pages.
    pub(crate) large: Vec<Owner>,
    pub(crate) compound: Vec<Owner>,
    pub(crate) stacks: Option<Report>,
    /// Pages that are allocated, by `page_owner`.
    pub(crate) allocated: Option<u64>,
    pub(crate) missing: Vec<String>,
}

/// Reads who allocated all pages, if the kernel kept it. Takes the pages that got an owner out of those that are looked for.
pub(crate) fn allocations(
    machine: &Machine<'_>,
    memory: &dyn PhysMemory,
    rules: &Rules<'_>,
    tally: &mut Tally,
    even_remote: bool,
    threads: usize,
) -> Result<Allocations, KernelError> {
    let mut found = Allocations::default();
    let Some(ext) = PageExt::new(machine) else { return Ok(found) };
    found.missing.clone_from(&ext.missing);
    if !ext.has_owners() && !ext.has_tags() {
        return Ok(found);
    }
    if memory.view().is_remote() && !even_remote {
        found.missing.push(
            "page_owner and allocation tags of pages are read from a server only with --references".into(),
        );
        return Ok(found);
    }
    let mut records = records(memory, rules, &ext, threads)?;
    tally.unowned = std::mem::take(&mut records.unnamed);
    tally.searched = records.unnamed_pages;
    // Struct pages that cannot be read have no record that could be asked for.
    let undecided = tally.rows.get(&RowKind::Undecided).copied().unwrap_or(0);
    records.unread = records.unread.max(undecided);
    // A kernel that keeps records has some.
    found.allocated = (ext.has_owners() && records.allocated > 0).then_some(records.allocated);
    found.name(machine, &ext, &records, rules);
    Ok(found)
}

/// An owner that is put together.
#[derive(Default)]
struct Group {
    pages: u64,
    stack: Vec<String>,
    tasks: HashMap<Task, u64>,
}

impl Allocations {
    fn name(&mut self, machine: &Machine<'_>, ext: &PageExt, records: &Records, rules: &Rules<'_>) {
        let mut stacks = Stacks::new(machine);
        let mut tags = Tags::new(machine);
        // Stacks with the most pages first: those beyond the limit are not read.
        let mut all: Vec<(Part, By, u64)> =
            records.pages.iter().map(|((part, by), pages)| (*part, *by, *pages)).collect();
        all.sort_unstable_by_key(|(part, by, pages)| (std::cmp::Reverse(*pages), *part, *by));
        let mut tasks: HashMap<(Part, By), Vec<(Task, u64)>> = HashMap::new();
        for ((part, by, task), pages) in &records.tasks {
            tasks.entry((*part, *by)).or_default().push((*task, *pages));
        }
        let mut groups: BTreeMap<(Part, bool, String), Group> = BTreeMap::new();
        let mut by_stack: BTreeMap<Vec<String>, u64> = BTreeMap::new();
        let (mut lost, mut own) = (0, 0);
        for (part, by, pages) in all {
            let (name, stack) = match by {
                By::Unsaved => {
                    own += pages;
                    (Some(OWN.to_owned()), Vec::new())
                }
                By::Stack(handle) => match stacks.functions(handle) {
                    Some(functions) => {
                        *by_stack.entry(functions.clone()).or_default() += pages;
                        (Some(format!("allocated in {}", callers(&functions).join(" < "))), functions)
                    }
                    None => {
                        lost += pages;
                        (None, Vec::new())
                    }
                },
                By::Tag(tag) => (tags.get(tag).map(place), Vec::new()),
            };
            let Some(name) = name.filter(|_| part != Part::Other) else { continue };
            // What a tag names can be either, where nothing marks large kmalloc.
            let is_large = part == Part::LargeKmalloc || part == Part::Compound && is_large_kmalloc(&stack);
            if part == Part::Compound && matches!(by, By::Tag(_)) && !rules.fields.marks_large_kmalloc() {
                continue;
            }
            let group = groups.entry((part, is_large, name)).or_default();
            group.pages += pages;
            if group.stack.is_empty() {
                group.stack = stack;
            }
            for (task, pages) in tasks.get(&(part, by)).into_iter().flatten() {
                *group.tasks.entry(*task).or_default() += pages;
            }
        }
        for ((part, is_large, name), group) in groups {
            let owners = match (part, is_large) {
                (_, true) => &mut self.large,
                (Part::Compound, false) => &mut self.compound,
                _ => &mut self.nothing,
            };
            owners.push(owner(name, group));
        }
        for owners in [&mut self.nothing, &mut self.large, &mut self.compound] {
            owners.sort_by(|a, b| b.pages.cmp(&a.pages).then_with(|| a.name.cmp(&b.name)));
        }
        self.note(ext, records, &stacks, tags, lost);
        if self.allocated.is_some() {
            self.stacks = Some(report(records, by_stack, lost, own));
        }
    }

    fn note(&mut self, ext: &PageExt, records: &Records, stacks: &Stacks<'_>, tags: Tags<'_>, lost: u64) {
        if let Some(why) = &stacks.why {
            let failed = counted(stacks.failed, "stack");
            self.missing.push(format!("page_owner: {failed} cannot be read, the first because: {why}"));
        }
        if stacks.cut > 0 || records.cut > 0 {
            self.missing.push(format!(
                "page_owner: {} pages are of more stacks than are read",
                lost.saturating_add(records.cut)
            ));
        }
        if records.unread > 0 {
            let what = if ext.has_owners() { "page_owner" } else { "allocation tags of pages" };
            self.missing.push(format!("{what}: what is kept of {} pages cannot be read", records.unread));
        }
        self.missing.extend(tags.why.map(|why| format!("names of allocation tags: {why}")));
    }
}

fn owner(name: String, group: Group) -> Owner {
    let mut tasks: Vec<(Task, u64)> = group.tasks.into_iter().collect();
    tasks.sort_unstable_by_key(|(task, pages)| (std::cmp::Reverse(*pages), *task));
    let allocation = (name != OWN).then(|| Allocation {
        stack: group.stack,
        allocated_by: tasks.iter().take(MAX_TASKS).map(|(task, _)| label(task)).collect(),
        tasks: tasks.len(),
    });
    Owner { name, pages: PageCount::new(group.pages), allocation, ..Owner::default() }
}

fn report(records: &Records, by_stack: BTreeMap<Vec<String>, u64>, lost: u64, own: u64) -> Report {
    let count = by_stack.len();
    let mut stacks: Vec<AllocationStack> = by_stack
        .into_iter()
        .map(|(stack, pages)| AllocationStack { pages: PageCount::new(pages), stack })
        .collect();
    stacks.sort_by(|a, b| b.pages.cmp(&a.pages).then_with(|| a.stack.cmp(&b.stack)));
    stacks.truncate(MAX_REPORTED);
    Report {
        allocated: PageCount::new(records.allocated),
        early: PageCount::new(records.early),
        unsaved: PageCount::new(own),
        unread: PageCount::new(lost),
        not_known: PageCount::new(records.unread),
        largest: stacks,
        count,
    }
}

/// Takes at most `most` pages for these owners, the largest first. Returns how many it took.
pub(crate) fn limit(owners: &mut Vec<Owner>, most: u64) -> u64 {
    let mut left = most;
    owners.retain_mut(|owner| {
        let pages = owner.pages.get().min(left);
        left -= pages;
        owner.pages = PageCount::new(pages);
        pages > 0
    });
    most - left
}
