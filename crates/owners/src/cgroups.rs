//! The tree of memory cgroups: usage, limits, events, the processes in them, and the generations of their pages.

use std::collections::HashMap;

use pagehaul_btf::{Fault, Object};
use pagehaul_inspect::{Machine, Tasks, static_key_enabled};
use pagehaul_machine::PageCount;
use pagehaul_present::number::count;

use crate::generations::{Found, Reader};
use crate::report::{Cgroup, Cgroups};

/// Cgroups that are reported.
const MOST: usize = 100;
/// Cgroups that are read. The kernel has at most 65,535 that are not removed (MEM_CGROUP_ID_MAX).
const MAX_READ: usize = 1 << 18;
/// Levels of the tree.
const DEEPEST: usize = 64;
/// Pages in swap from here on are damage: 2^56 bytes.
const MOST_SWAP: u64 = 1 << 44;
/// Limits from here on are none: `PAGE_COUNTER_MAX` is LONG_MAX / PAGE_SIZE.
const NO_LIMIT: u64 = 1 << 46;

/// Reads all memory cgroups of a machine that can have `most` pages, and the generations of their pages. Returns why some cgroups are
/// missing, too.
pub(crate) fn cgroups(
    machine: &Machine<'_>,
    tasks: &Tasks,
    most: PageCount,
) -> (Cgroups, Found, Option<String>) {
    let mut generations = Reader::new(machine, most);
    // No symbol: a kernel without CONFIG_MEMCG. A null pointer before the first cgroup is made.
    let root =
        match is_on(machine).and_then(|is_on| if is_on { machine.u64("root_mem_cgroup") } else { Ok(0) }) {
            Ok(0) | Err(Fault::NoSymbol(_)) => {
                generations.nodes();
                return (Cgroups::default(), generations.finish(), None);
            }
            Ok(root) => root,
            Err(why) => {
                let why = format!("memory cgroups: not checked: {why}");
                generations.lack(&why);
                return (Cgroups::default(), generations.finish(), Some(why));
            }
        };
    let mut walk = Walk::new(machine, generations, most);
    if let Err(why) = walk.tree(root) {
        walk.broken.get_or_insert_with(|| format!("memory cgroups: {why}"));
    }
    if let Some(why) = &walk.broken {
        walk.generations.lack(why);
    }
    // The root alone says nothing that the rows do not.
    if walk.found.len() <= 1 {
        let count = walk.found.len();
        let broken = walk.broken();
        return (Cgroups { count, ..Cgroups::default() }, walk.generations.finish(), broken);
    }
    walk.processes(tasks);
    walk.finish()
}

/// Whether pages are charged. With cgroup_disable=memory there is a root, which has nothing: all pages are on lists of the nodes. Linux 4.4
/// made the key.
fn is_on(machine: &Machine<'_>) -> Result<bool, Fault> {
    match static_key_enabled(machine, "memory_cgrp_subsys_enabled_key") {
        Err(Fault::NoSymbol(_)) => Ok(true),
        found => found,
    }
}

struct Walk<'a> {
    machine: &'a Machine<'a>,
    /// In the order of the tree, with the address of the `cgroup_subsys_state` and the pages of the children.
    found: Vec<(u64, Cgroup, u64)>,
    events: Vec<(String, u64)>,
    online: u64,
    generations: Reader<'a>,
    /// Charged pages beyond those of the machine are damage.
    most: PageCount,
    /// Counters that are damaged, and the first of them.
    impossible: (usize, Option<String>),
    broken: Option<String>,
}

impl<'a> Walk<'a> {
    fn new(machine: &'a Machine<'a>, generations: Reader<'a>, most: PageCount) -> Self {
        let btf = machine.space().btf();
        // `enum memcg_memory_event`; the last enumerator is their number.
        let events = btf.enum_with("MEMCG_OOM_KILL").into_iter().filter_map(|(name, value)| {
            let name = name.strip_prefix("MEMCG_")?.to_lowercase();
            Some((name, u64::try_from(value).ok()?))
        });
        let events = events.filter(|(name, _)| !name.starts_with("nr_")).collect();
        let online = btf.enumerator("CSS_ONLINE").and_then(|flag| u64::try_from(flag).ok()).unwrap_or(2);
        Self {
            machine,
            found: Vec::new(),
            events,
            online,
            generations,
            most,
            impossible: (0, None),
            broken: None,
        }
    }

    /// Returns a counter's pages, unless they are more than the machine has.
    fn possible(&mut self, path: &str, what: &str, pages: u64) -> Option<PageCount> {
        let pages = PageCount::new(pages);
        if pages <= self.most {
            return Some(pages);
        }
        self.impossible.0 += 1;
        self.impossible.1.get_or_insert_with(|| {
            format!("the {what} of the memory cgroup {path} cannot be right: it is more pages than the machine has")
        });
        None
    }

    /// Why some are missing, or not all of what is known of them.
    fn broken(&mut self) -> Option<String> {
        let impossible = self.impossible.1.take().map(|first| match self.impossible.0 {
            1 => first,
            more => format!("{first} (and {} more such counters)", count(more as u64 - 1)),
        });
        let parts: Vec<String> = self.broken.take().into_iter().chain(impossible).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// Reads the tree below the `struct mem_cgroup` at `root`, parents before their children.
    fn tree(&mut self, root: u64) -> Result<(), Fault> {
        let machine = self.machine;
        let space = machine.space();
        let mut left = vec![(space.object(root, "mem_cgroup")?, String::from("/"), 0_usize, None::<usize>)];
        while let Some((group, path, depth, parent)) = left.pop() {
            if self.found.len() >= MAX_READ {
                self.broken = Some(format!("memory cgroups: more than {MAX_READ} are not read"));
                break;
            }
            let css = group.get("css")?;
            let cgroup = match self.cgroup(&group, &css, path.clone()) {
                Ok(cgroup) => cgroup,
                Err(why) => {
                    self.broken.get_or_insert_with(|| format!("the memory cgroup {path}: {why}"));
                    continue;
                }
            };
            if let Some((_, _, below)) = parent.and_then(|parent| self.found.get_mut(parent)) {
                *below = below.saturating_add(cgroup.usage.map_or(0, PageCount::get));
            }
            self.generations.cgroup(&group, &path);
            let at = self.found.len();
            self.found.push((css.address(), cgroup, 0));
            if depth >= DEEPEST {
                continue;
            }
            let children = css.get("children")?.list("cgroup_subsys_state", "sibling")?;
            if let Some(why) = children.broken {
                self.broken.get_or_insert_with(|| format!("memory cgroups: {why}"));
            }
            // The first child is read first.
            for child in children.items.into_iter().rev() {
                let name = name(&child).unwrap_or_else(|_| "?".into());
                let path = format!("{}/{name}", path.trim_end_matches('/'));
                left.push((child.container("mem_cgroup", "css")?, path, depth + 1, Some(at)));
            }
        }
        Ok(())
    }

    fn cgroup(&mut self, group: &Object<'_>, css: &Object<'_>, path: String) -> Result<Cgroup, Fault> {
        let memory = group.get("memory")?;
        let limit = |counter: &Object<'_>, name: &str| {
            let pages = counter.number(name).ok().filter(|pages| *pages < NO_LIMIT);
            pages.map(PageCount::new)
        };
        let usage = memory.number("usage.counter")?;
        let usage = self.possible(&path, "usage", usage);
        let peak = memory.number("watermark").ok().and_then(|pages| self.possible(&path, "peak", pages));
        // 5.10 has an array of atomic_long_t, as all later ones.
        let counts = group.get("memory_events");
        let count = |item: u64| counts.as_ref().ok()?.index(item).ok()?.number("counter").ok();
        let events = self.events.iter().filter_map(|(name, item)| Some((name.clone(), count(*item)?)));
        Ok(Cgroup {
            path,
            usage,
            max: limit(&memory, "max"),
            high: limit(&memory, "high"),
            peak,
            swap: self.swap(group, css, usage).ok().flatten().filter(|pages| pages.get() > 0),
            events: events.filter(|(_, times)| *times > 0).collect(),
            removed: css.number("flags")? & self.online == 0,
            ..Cgroup::default()
        })
    }

    /// Pages in swap. In hierarchies of version 1 a counter of memory and swap is in its place.
    fn swap(
        &self,
        group: &Object<'_>,
        css: &Object<'_>,
        usage: Option<PageCount>,
    ) -> Result<Option<PageCount>, Fault> {
        let counted = group.number("swap.usage.counter")?;
        let hierarchy = css.get("cgroup->root")?.pointer()?;
        let is_old = self.machine.symbols().address("cgrp_dfl_root").is_some_and(|newer| newer != hierarchy);
        let pages =
            if is_old { usage.map(|usage| counted.saturating_sub(usage.get())) } else { Some(counted) };
        Ok(pages.filter(|pages| *pages < MOST_SWAP).map(PageCount::new))
    }

    /// Counts the processes of each cgroup.
    fn processes(&mut self, tasks: &Tasks) {
        let machine = self.machine;
        let Some(number) = machine.space().btf().enumerator("memory_cgrp_id") else { return };
        let mut by_css: HashMap<u64, (usize, String)> = HashMap::new();
        // Tasks of one cgroup mostly share a css_set.
        let mut sets: HashMap<u64, u64> = HashMap::new();
        for task in tasks.all.iter().filter(|task| !task.kernel_thread && task.pid == task.tgid) {
            let css = (|| {
                let set = machine.space().object(task.address.0, "task_struct")?.get("cgroups")?;
                let address = set.pointer()?;
                if let Some(known) = sets.get(&address) {
                    return Ok(*known);
                }
                let css = set.target()?.get("subsys")?.index(number as u64)?.pointer()?;
                sets.insert(address, css);
                Ok::<u64, Fault>(css)
            })();
            if let Ok(css) = css {
                by_css.entry(css).or_insert_with(|| (0, task.label())).0 += 1;
            }
        }
        for (css, cgroup, _) in &mut self.found {
            if let Some((count, name)) = by_css.remove(css) {
                (cgroup.processes, cgroup.process) = (count, Some(name));
            }
        }
    }

    fn finish(mut self) -> (Cgroups, Found, Option<String>) {
        let count = self.found.len();
        let broken = self.broken();
        let removed = self.found.iter().filter(|(_, cgroup, _)| cgroup.removed);
        let own = removed
            .clone()
            .map(|(_, cgroup, below)| cgroup.usage.map_or(0, PageCount::get).saturating_sub(*below));
        let removed_pages = PageCount::new(own.fold(0, u64::saturating_add));
        let removed = removed.count();
        let mut order: Vec<usize> = (0..count).collect();
        // Those that reached a limit, then the largest. The order of the tree decides among equals.
        let worth = |at: &usize| {
            let cgroup = self.found.get(*at).map(|(_, cgroup, _)| cgroup);
            let full = cgroup.is_some_and(|cgroup| cgroup.is_full() || cgroup.events("oom") > 0);
            (std::cmp::Reverse(full), std::cmp::Reverse(cgroup.and_then(|it| it.usage)), *at)
        };
        order.sort_by_key(worth);
        order.truncate(MOST);
        order.sort_unstable();
        let mut found: Vec<Option<Cgroup>> =
            self.found.into_iter().map(|(_, cgroup, _)| Some(cgroup)).collect();
        let largest = order.into_iter().filter_map(|at| found.get_mut(at)?.take()).collect();
        let cgroups = Cgroups { largest, count, removed, removed_pages };
        (cgroups, self.generations.finish(), broken)
    }
}

/// The name of a cgroup in the directory of its parent.
fn name(css: &Object<'_>) -> Result<String, Fault> {
    css.get("cgroup")?.target()?.get("kn")?.target()?.get("name")?.text()
}
