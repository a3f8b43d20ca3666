//! The rows of the table, by the names of 2010, and those beyond it. `docs/reclaim.md` says how each is computed.

use serde::Serialize;

use super::analysis::{Context, Sample};
use crate::model::{Class, Pages, Tally};

/// Rows under a heading.
#[derive(Debug, Clone, Serialize)]
pub struct Section {
    /// The heading.
    pub title: &'static str,
    /// The rows.
    pub rows: Vec<Row>,
}

/// A figure, of every run.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// What it counts.
    pub unit: Unit,
    /// What is good.
    pub better: Better,
    /// By run; one if there were no runs. Empty if it cannot be had.
    pub values: Vec<f64>,
    /// Why it cannot be had, or where else it comes from.
    pub note: Option<String>,
}

impl Row {
    /// The mean over runs; none if it cannot be had.
    pub fn mean(&self) -> Option<f64> {
        (!self.values.is_empty()).then(|| self.values.iter().sum::<f64>() / self.values.len() as f64)
    }
}

/// What a row counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Events.
    Count,
    /// Pages of the machine.
    Pages,
    /// Milliseconds.
    Ms,
    /// Seconds.
    Seconds,
    /// Per cent.
    Percent,
    /// Pages a second.
    PagesPerSecond,
}

/// Which way a figure should go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Less is better.
    Lower,
    /// More is better.
    Higher,
    /// It says nothing by itself.
    Neither,
}

/// Which pages of a tally: a word for the row's name, and how to get them.
type Kind = (&'static str, fn(&Tally) -> Pages);

/// A figure of one run, or why there is none.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// The figure.
    Is(f64),
    /// The figure, and where it comes from if not from the trace.
    From(f64, &'static str),
    /// It cannot be had.
    Not(String),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Is(value as f64)
    }
}

pub(super) fn sections(context: &Context, samples: &[Sample]) -> Vec<Section> {
    let mut table = Rows { context, samples, rows: Vec::new() };
    table.reclaimer("Direct reclaim", Class::Direct);
    table.kswapd();
    table.times_in_reclaim();
    let reclaim = std::mem::take(&mut table.rows);
    table.shares();
    let shares = std::mem::take(&mut table.rows);
    table.beyond();
    vec![
        Section { title: "Page reclaim", rows: reclaim },
        Section { title: "Time", rows: shares },
        Section { title: "Beyond the table of 2010", rows: table.rows },
    ]
}

struct Rows<'a> {
    context: &'a Context,
    samples: &'a [Sample],
    rows: Vec<Row>,
}

impl Rows<'_> {
    fn row(&mut self, name: impl Into<String>, unit: Unit, better: Better, of: impl Fn(&Sample) -> Value) {
        let mut values = Vec::new();
        let mut note = None;
        for sample in self.samples {
            match of(sample) {
                Value::Is(value) => values.push(value),
                Value::From(value, from) => {
                    values.push(value);
                    note.get_or_insert_with(|| from.to_owned());
                }
                Value::Not(why) => drop(note.get_or_insert(why)),
            }
        }
        self.rows.push(Row { name: name.into(), unit, better, values, note });
    }

    /// A row of events that the trace must be able to have.
    fn counted(&mut self, name: impl Into<String>, unit: Unit, events: &[&str], of: impl Fn(&Sample) -> u64) {
        let missing = self.context.missing(events);
        self.row(name, unit, Better::Lower, |sample| match &missing {
            Some(why) => Value::Not(why.clone()),
            None => of(sample).into(),
        });
    }

    /// Stretches, pages and writes of tasks.
    fn reclaimer(&mut self, name: &str, class: Class) {
        self.counted("Direct reclaims", Unit::Count, &["mm_vmscan_direct_reclaim_begin"], |sample| {
            sample.tally(class).stretches.begun
        });
        self.pages(name, class);
        self.writes(name, class);
    }

    fn pages(&mut self, name: &str, class: Class) {
        let kinds: [Kind; 3] =
            [("", Tally::all), ("file ", |tally| tally.pages[1]), ("anon ", |tally| tally.pages[0])];
        for (kind, of) in kinds {
            let counter = kind.is_empty();
            self.lru_row(
                format!("{name} {kind}pages scanned"),
                class,
                counter.then_some("pgscan"),
                "mm_vmscan_lru_isolate",
                |context, tally| of(tally).counted(context.mglru == Some(true)),
            );
        }
        for (kind, of) in kinds {
            let counter = kind.is_empty();
            self.lru_row(
                format!("{name} {kind}pages reclaimed"),
                class,
                counter.then_some("pgsteal"),
                "mm_vmscan_lru_shrink_inactive",
                |_, tally| of(tally).reclaimed,
            );
        }
    }

    /// Pages by the trace; where a kernel does not trace them, by `/proc/vmstat`.
    fn lru_row(
        &mut self,
        name: String,
        class: Class,
        counter: Option<&str>,
        event: &str,
        of: impl Fn(&Context, &Tally) -> u64,
    ) {
        let context = self.context;
        let better = if name.ends_with("scanned") { Better::Lower } else { Better::Neither };
        self.row(name, Unit::Pages, better, |sample| {
            let Some(why) = context.missing_lru(event) else {
                return of(context, &sample.tally(class)).into();
            };
            let counters = match (counter, class) {
                (Some(counter), Class::Kswapd) => vec![format!("{counter}_kswapd")],
                (Some(counter), _) => vec![format!("{counter}_direct"), format!("{counter}_khugepaged")],
                (None, _) => Vec::new(),
            };
            let counters: Vec<&str> = counters.iter().map(String::as_str).collect();
            let value = sample.vmstat.as_ref().and_then(|vmstat| vmstat.sum(&counters));
            value.map_or(Value::Not(why), |value| {
                Value::From(value as f64, "from /proc/vmstat: not traced by this kernel")
            })
        });
    }

    fn writes(&mut self, name: &str, class: Class) {
        for (sync, how) in [(0, "async"), (1, "sync")] {
            for (file, what) in [(1, "file"), (0, "anon")] {
                let missing = self.context.missing_any(&["mm_vmscan_write_folio", "mm_vmscan_writepage"]);
                let context = self.context;
                self.row(format!("{name} write {what} {how} I/O"), Unit::Pages, Better::Lower, |sample| {
                    let count = sample.tally(class).writes[file][sync];
                    match &missing {
                        Some(why) => Value::Not(why.clone()),
                        // Should a kernel do it after all, its word counts.
                        None if count > 0 => count.into(),
                        None if sync == 1 => Value::Not("reclaim of this kernel never writes synchronously".into()),
                        None if file == 1 && context.no_file_writes() => {
                            Value::Not("reclaim of this kernel writes no file pages, but for shared memory, which counts as anon".into())
                        }
                        None => count.into(),
                    }
                });
            }
        }
    }

    fn kswapd(&mut self) {
        let requests = ["mm_vmscan_wakeup_kswapd"];
        self.counted("Wake kswapd requests", Unit::Count, &requests, |sample| {
            sample.model.wakeup_requests.values().sum()
        });
        let wake = ["mm_vmscan_kswapd_wake"];
        self.counted("Kswapd wakeups", Unit::Count, &wake, |sample| {
            sample.model.kswapd.values().map(|kswapd| kswapd.wakeups).sum()
        });
        self.counted("Kswapd re-wakeups", Unit::Count, &wake, |sample| {
            sample.model.kswapd.values().map(|kswapd| kswapd.rewakeups).sum()
        });
        self.pages("Kswapd", Class::Kswapd);
        self.writes("Kswapd reclaim", Class::Kswapd);
    }

    fn times_in_reclaim(&mut self) {
        self.ms("Time stalled direct reclaim", &["mm_vmscan_direct_reclaim_begin"], |sample| {
            sample.tally(Class::Direct).stretches.ns
        });
        self.ms("Time kswapd awake", &["mm_vmscan_kswapd_wake"], |sample| sample.model.kswapd_ns());
    }

    fn ms(&mut self, name: &str, events: &[&str], of: impl Fn(&Sample) -> u64) {
        let missing = self.context.missing(events);
        self.row(format!("{name} (ms)"), Unit::Ms, Better::Lower, |sample| match &missing {
            Some(why) => Value::Not(why.clone()),
            None => Value::Is(of(sample) as f64 / 1e6),
        });
    }

    fn shares(&mut self) {
        let cpu = |sample: &Sample| match (sample.cpu, sample.cpu_of_machine) {
            (Some((user, system)), false) => Value::Is(user + system),
            (Some((user, system)), true) => {
                Value::From(user + system, "of the whole machine: no command was recorded")
            }
            (None, _) => Value::Not("the trace does not hold times of CPU".into()),
        };
        self.row("User/Sys time running test (seconds)", Unit::Seconds, Better::Lower, cpu);
        self.row("Percentage time in direct reclaim", Unit::Percent, Better::Lower, |sample| {
            match sample.cpu {
                Some((user, system)) => {
                    let stalled = sample.tally(Class::Direct).stretches.ns as f64 / 1e9;
                    let all = user + system + stalled;
                    Value::Is(if all > 0.0 { 100.0 * stalled / all } else { 0.0 })
                }
                None => Value::Not("the trace does not hold times of CPU".into()),
            }
        });
        self.row("Total elapsed time (seconds)", Unit::Seconds, Better::Lower, |sample| {
            Value::Is(sample.elapsed_s)
        });
        self.row("Percentage time kswapd awake", Unit::Percent, Better::Lower, |sample| {
            let threads = sample.model.kswapd.len().max(1) as f64;
            let awake = sample.model.kswapd_ns() as f64 / 1e9;
            Value::Is(if sample.elapsed_s > 0.0 { 100.0 * awake / sample.elapsed_s / threads } else { 0.0 })
        });
    }

    fn beyond(&mut self) {
        let direct = ["mm_vmscan_direct_reclaim_begin"];
        for percent in [50.0, 90.0, 99.0, 99.9, 100.0] {
            let name =
                if percent == 100.0 { "Direct stall max".into() } else { format!("Direct stall p{percent}") };
            self.ms(&name, &direct, |sample| {
                let durations = &sample.model.direct().durations;
                if percent == 100.0 {
                    durations.max_ns()
                } else {
                    durations.percentile_ns(percent).unwrap_or(0)
                }
            });
        }
        for class in [Class::Memcg, Class::Proactive, Class::SoftLimit, Class::Node] {
            let name = class.name();
            let events = match class {
                Class::Memcg | Class::Proactive => ["mm_vmscan_memcg_reclaim_begin"],
                Class::SoftLimit => ["mm_vmscan_memcg_softlimit_reclaim_begin"],
                _ => ["mm_vmscan_node_reclaim_begin"],
            };
            self.counted(format!("Reclaims, {name}"), Unit::Count, &events, |sample| {
                sample.tally(class).stretches.begun
            });
            self.ms(&format!("Time stalled, {name}"), &events, |sample| sample.tally(class).stretches.ns);
        }
        for class in [Class::Direct, Class::Kswapd, Class::Memcg, Class::Proactive] {
            self.efficiency(class);
        }
        self.ms("Time throttled in reclaim", &["mm_vmscan_throttled"], |sample| {
            sample.model.causes.throttled.values().map(crate::Durations::sum_ns).sum()
        });
        self.ms("Time stalled direct compaction", &["mm_compaction_begin"], |sample| {
            sample.model.compaction.direct.sum_ns()
        });
        self.row("Pages demoted", Unit::Pages, Better::Neither, |sample| {
            let demoted = sample.vmstat.as_ref().and_then(|vmstat| vmstat.sum_of("pgdemote_"));
            demoted.map_or(Value::Not("no counter of this kernel".into()), |pages| {
                Value::From(pages as f64, "from /proc/vmstat")
            })
        });
    }

    fn efficiency(&mut self, class: Class) {
        let context = self.context;
        let name = class.name();
        let missing = context.missing_lru("mm_vmscan_lru_isolate");
        let pages = |sample: &Sample| {
            let all = sample.tally(class).all();
            (all.counted(context.mglru == Some(true)) as f64, all.reclaimed as f64)
        };
        self.row(format!("Efficiency, {name} (%)"), Unit::Percent, Better::Higher, |sample| {
            match (&missing, pages(sample)) {
                (Some(why), _) => Value::Not(why.clone()),
                (None, (0.0, _)) => Value::Not("nothing was scanned".into()),
                (None, (scanned, reclaimed)) => Value::Is(100.0 * reclaimed / scanned),
            }
        });
        self.row(format!("Velocity, {name} (pages/s)"), Unit::PagesPerSecond, Better::Lower, |sample| {
            match &missing {
                Some(why) => Value::Not(why.clone()),
                None if sample.elapsed_s > 0.0 => Value::Is(pages(sample).0 / sample.elapsed_s),
                None => Value::Not("no time elapsed".into()),
            }
        });
    }
}
