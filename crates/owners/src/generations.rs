//! Generations of the multi-gen LRU, which replaces lists of active and inactive pages where it is on (ec1c86b25f4b, 6.1): pages on LRU
//! lists by the time from which they count as used.

use pagehaul_btf::{Fault, Object};
use pagehaul_inspect::{Machine, Ticks, nodes};
use pagehaul_machine::PageCount;

use crate::report::{Age, CgroupGenerations, Generation, Generations};

/// Cgroups' nodes that are reported, those with the most pages.
const MOST: usize = 10_000;
/// Lists that are read, one for each node of a cgroup.
const MAX_READ: usize = 1 << 20;
/// `MAX_NR_GENS` is 4.
const MAX_GENERATIONS: u64 = 16;
/// `MAX_NR_ZONES` is at most 6.
const MAX_ZONES: u64 = 16;
/// Anonymous and file pages (`ANON_AND_FILE`).
const TYPES: u64 = 2;
/// Ages up to which generations are summed up, in milliseconds.
const AGES: [u64; 6] = [1_000, 10_000, 60_000, 600_000, 3_600_000, 86_400_000];

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// `None`: the kernel has no generations, or they are off, or `broken` says why they are not known.
    pub(crate) generations: Option<Generations>,
    /// All pages, as the kernel counts them: a generation's number can be negative for a while, their sum cannot.
    pub(crate) pages: i64,
    /// Why some are missing.
    pub(crate) broken: Option<String>,
    /// Why their ages are not known.
    pub(crate) without_ages: Option<String>,
}

/// Where members are, from the start of a `struct lruvec`.
struct Layout {
    enabled: u64,
    max_seq: u64,
    min_seq: u64,
    timestamps: u64,
    nr_pages: u64,
    generations: u64,
    zones: u64,
}

impl Layout {
    /// `None`: a kernel without CONFIG_LRU_GEN, or of another shape.
    fn new(machine: &Machine<'_>) -> Option<Self> {
        let space = machine.space();
        // `struct lru_gen_struct` until 391655fe08d1 (6.3), then `lru_gen_folio`. Nothing needs its name.
        let at = |member: &str| space.offset_of("lruvec", &format!("lrugen.{member}")).ok();
        let bytes =
            |member: &str| space.object(0, "lruvec").ok()?.get(&format!("lrugen.{member}")).ok()?.size();
        let generations = bytes("timestamps")? / 8;
        // Generations, types, zones. BTF of some compilers has one dimension of all three.
        let zones = (bytes("nr_pages")? / 8).checked_div(generations * TYPES)?;
        let is_known = (2..=MAX_GENERATIONS).contains(&generations) && (1..=MAX_ZONES).contains(&zones);
        is_known.then_some(Self {
            enabled: at("enabled")?,
            max_seq: at("max_seq")?,
            min_seq: at("min_seq")?,
            timestamps: at("timestamps")?,
            nr_pages: at("nr_pages")?,
            generations,
            zones,
        })
    }
}

/// Reads the generations of one cgroup after the other.
pub(crate) struct Reader<'a> {
    machine: &'a Machine<'a>,
    layout: Option<Layout>,
    ticks: Result<Ticks, String>,
    /// Nodes with their numbers.
    nodes: Vec<(u64, Object<'a>)>,
    /// More pages than the machine has are damage.
    most: u64,
    read: usize,
    is_on: bool,
    pages: i64,
    ages: Vec<Age>,
    kept: Vec<(u64, CgroupGenerations)>,
    count: usize,
    broken: Option<String>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(machine: &'a Machine<'a>, most: PageCount) -> Self {
        let mut broken = None;
        let layout = Layout::new(machine);
        if layout.is_none() && machine.space().btf().is_empty() {
            broken = Some("their types are not known without the kernel's BTF".to_owned());
        }
        let numbered = |(at, node): (usize, Object<'a>)| (node.number("node_id").unwrap_or(at as u64), node);
        let mut found = Vec::new();
        let mut ticks = Err(String::new());
        if layout.is_some() {
            match nodes(machine) {
                Ok(nodes) => found = nodes.into_iter().enumerate().map(numbered).collect(),
                Err(why) => broken = Some(why.to_string()),
            }
            ticks = Ticks::new(machine).map_err(|why| why.to_string());
        }
        // The last is of those that are older, and one more of those whose age is not known.
        let limits = AGES.into_iter().map(Some).chain([None, None]);
        let ages = limits.map(|up_to_ms| Age { up_to_ms, ..Age::default() }).collect();
        Self {
            machine,
            layout,
            ticks,
            nodes: found,
            most: most.get(),
            read: 0,
            is_on: false,
            pages: 0,
            ages,
            kept: Vec::new(),
            count: 0,
            broken,
        }
    }

    /// Reads those of a `struct mem_cgroup`.
    pub(crate) fn cgroup(&mut self, group: &Object<'_>, path: &str) {
        if self.layout.is_none() {
            return;
        }
        for at in 0..self.nodes.len() {
            let Some((number, _)) = self.nodes.get(at).copied() else { break };
            let lists = (|| match group.get("nodeinfo")?.index(number)?.pointer()? {
                // Made for the nodes that are possible.
                0 => Ok(None),
                info => Ok(Some(
                    info.wrapping_add(self.machine.space().offset_of("mem_cgroup_per_node", "lruvec")?),
                )),
            })();
            let read = lists.and_then(|lists| lists.map_or(Ok(()), |lists| self.lists(lists, path, number)));
            if let Err(why) = read {
                self.broken.get_or_insert_with(|| {
                    format!("those of the memory cgroup {path} on node {number}: {why}")
                });
            }
        }
    }

    /// Reads those of the nodes, which have all pages where there are no memory cgroups.
    pub(crate) fn nodes(&mut self) {
        if self.layout.is_none() {
            return;
        }
        for at in 0..self.nodes.len() {
            let Some((number, node)) = self.nodes.get(at).copied() else { break };
            // `lruvec` until 867e5e1de14b (5.5), before there were generations.
            let lists = node.get("__lruvec").map(|lists| lists.address());
            if let Err(why) = lists.and_then(|lists| self.lists(lists, "/", number)) {
                self.broken.get_or_insert_with(|| format!("those of node {number}: {why}"));
            }
        }
    }

    /// Notes that some are missing: those of cgroups that could not be read.
    pub(crate) fn lack(&mut self, why: &str) {
        // A kernel without them lacks none.
        if self.layout.is_some() {
            self.broken.get_or_insert_with(|| why.to_owned());
        }
    }

    /// Reads those of the `struct lruvec` at an address.
    fn lists(&mut self, lists: u64, path: &str, node: u64) -> Result<(), Fault> {
        let Some(layout) = &self.layout else { return Ok(()) };
        let memory = self.machine.memory();
        let word = |at: u64| memory.u64(lists.wrapping_add(at));
        let nonsense = |what: String| Err(Fault::NotRead(what));
        if self.read >= MAX_READ {
            return nonsense(format!("more than {MAX_READ} lists are not read"));
        }
        self.read += 1;
        // A `bool`. Each list has it, since they change one by one.
        if memory.bytes(lists.wrapping_add(layout.enabled), 1)? != [1] {
            return Ok(());
        }
        self.is_on = true;
        let max = word(layout.max_seq)?;
        let min = [word(layout.min_seq)?, word(layout.min_seq + 8)?];
        // The first generations have the numbers 0 to 3.
        if min.iter().any(|min| max.checked_sub(*min).is_none_or(|count| count >= layout.generations)) {
            return nonsense(format!("generations {min:?} to {max}, of at most {}", layout.generations));
        }
        let len = 8 * layout.generations * TYPES * layout.zones;
        let counts = memory.bytes(lists.wrapping_add(layout.nr_pages), len as usize)?;
        let counts: Vec<i64> =
            counts.as_chunks::<8>().0.iter().map(|word| i64::from_le_bytes(*word)).collect();
        if counts.iter().any(|count| count.unsigned_abs() > self.most) {
            return nonsense("it counts more pages than the machine has".into());
        }
        let mut generations = Vec::new();
        for seq in max.saturating_sub(layout.generations - 1)..=max {
            let slot = seq % layout.generations;
            let age_ms = match &self.ticks {
                Ok(ticks) => ticks.milliseconds_since(word(layout.timestamps + 8 * slot)?),
                Err(_) => None,
            };
            let of = |kind: u64| {
                let first = ((slot * TYPES + kind) * layout.zones) as usize;
                let zones = counts.get(first..first + layout.zones as usize).unwrap_or_default();
                // As the kernel shows them (debugfs lru_gen).
                PageCount::new(zones.iter().map(|count| (*count).max(0) as u64).sum())
            };
            let found = Generation { seq, age_ms, anonymous: of(0), file: of(1) };
            if found.pages() > PageCount::ZERO || min.iter().any(|min| seq >= *min) {
                generations.push(found);
            }
        }
        self.pages = self.pages.saturating_add(counts.iter().sum());
        self.keep(path, node, generations);
        Ok(())
    }

    fn keep(&mut self, path: &str, node: u64, generations: Vec<Generation>) {
        let mut pages = PageCount::ZERO;
        for found in &generations {
            pages += found.pages();
            let last = self.ages.len() - 1;
            let at = found.age_ms.map_or(last, |age| AGES.iter().take_while(|most| age > **most).count());
            if let Some(sum) = self.ages.get_mut(at) {
                sum.anonymous += found.anonymous;
                sum.file += found.file;
            }
        }
        if pages == PageCount::ZERO {
            return;
        }
        self.count += 1;
        self.kept.push((pages.get(), CgroupGenerations { path: path.to_owned(), node, generations }));
        if self.kept.len() >= 2 * MOST {
            self.cut();
        }
    }

    /// Keeps those with the most pages.
    fn cut(&mut self) {
        // The order of the tree decides among equals.
        self.kept.sort_by_key(|(pages, _)| std::cmp::Reverse(*pages));
        self.kept.truncate(MOST);
    }

    pub(crate) fn finish(mut self) -> Found {
        self.cut();
        let Self { is_on, pages, ages, kept, count, broken, ticks, .. } = self;
        let unknown = ages.last().cloned().unwrap_or_default();
        let mut ages: Vec<Age> = ages.into_iter().take(AGES.len() + 1).collect();
        ages.retain(|age| age.anonymous + age.file > PageCount::ZERO);
        let generations = is_on.then(|| Generations {
            ages,
            age_not_known: unknown.anonymous + unknown.file,
            largest: kept.into_iter().map(|(_, found)| found).collect(),
            count,
        });
        // Neither on nor off, if no list says so.
        let not_checked = if generations.is_none() { "not checked: " } else { "" };
        let broken = broken.map(|why| format!("generations of the LRU: {not_checked}{why}"));
        let without_ages = ticks.err().filter(|_| is_on);
        let without_ages =
            without_ages.map(|why| format!("generations of the LRU: their ages are not known: {why}"));
        Found { generations, pages, broken, without_ages }
    }
}
