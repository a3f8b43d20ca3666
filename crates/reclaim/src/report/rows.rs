//! The rows of Mel Gorman's table of 2010, under its names, and those beyond it. `docs/reclaim.md` defines each.

use super::context::{Context, Sample, ms};
use super::section::{Better, Row, Section, Unit};
use crate::histogram::DurationHistogram;
use crate::model::{Pages, Reclaimer, ReclaimerStats};

pub(super) fn sections(context: &Context, samples: &[Sample]) -> Vec<Section> {
    let mut rows = Rows { context, samples, rows: Vec::new() };
    rows.count("Direct reclaims", DIRECT, |sample| sample.stats(Reclaimer::Direct).intervals.begun);
    rows.pages("Direct reclaim", Reclaimer::Direct);
    rows.writes("Direct reclaim", Reclaimer::Direct);
    rows.count("Wake kswapd requests", "mm_vmscan_wakeup_kswapd", |sample| {
        sample.model.wakeup_requests.values().sum()
    });
    rows.count("Kswapd wakeups", KSWAPD, |sample| {
        sample.model.kswapd.values().map(|kswapd| kswapd.wakeups).sum()
    });
    rows.count("Kswapd re-wakeups", KSWAPD, |sample| {
        sample.model.kswapd.values().map(|kswapd| kswapd.rewakeups).sum()
    });
    rows.pages("Kswapd", Reclaimer::Kswapd);
    rows.writes("Kswapd reclaim", Reclaimer::Kswapd);
    rows.time("Time stalled direct reclaim", DIRECT, |sample| sample.stalled_ns(Reclaimer::Direct));
    rows.time("Time kswapd awake", KSWAPD, Sample::kswapd_ns);
    let reclaim = std::mem::take(&mut rows.rows);
    rows.shares();
    let shares = std::mem::take(&mut rows.rows);
    rows.beyond();
    vec![
        Section { title: "Page reclaim", rows: reclaim },
        Section { title: "Time", rows: shares },
        Section { title: "Beyond the table of 2010", rows: rows.rows },
    ]
}

const DIRECT: &str = "mm_vmscan_direct_reclaim_begin";
const KSWAPD: &str = "mm_vmscan_kswapd_wake";
const NO_CPU_TIMES: &str = "the trace does not hold CPU times";

/// A figure of one run, or why it is unavailable.
type Figure = Result<f64, String>;

struct Rows<'a> {
    context: &'a Context,
    samples: &'a [Sample],
    rows: Vec<Row>,
}

impl Rows<'_> {
    /// Adds a row. `source` says where its figures come from, if not from the trace.
    fn row(
        &mut self,
        name: &str,
        unit: Unit,
        better: Better,
        source: Option<&str>,
        figure: impl Fn(&Sample) -> Figure,
    ) {
        let mut values = Vec::new();
        let mut note = None;
        for sample in self.samples {
            match figure(sample) {
                Ok(value) => {
                    values.push(value);
                    note = note.or(source.map(str::to_owned));
                }
                Err(why) => note = note.or(Some(why)),
            }
        }
        self.rows.push(Row { name: name.to_owned(), unit, better, values, note });
    }

    /// Adds a row that is unavailable without an event.
    fn counted(&mut self, name: &str, unit: Unit, event: &str, figure: impl Fn(&Sample) -> f64) {
        let missing = self.context.missing(&[event]);
        self.row(name, unit, Better::Lower, None, |sample| missing.clone().map_or(Ok(figure(sample)), Err));
    }

    fn count(&mut self, name: &str, event: &str, count: impl Fn(&Sample) -> u64) {
        self.counted(name, Unit::Count, event, |sample| count(sample) as f64);
    }

    fn time(&mut self, name: &str, event: &str, ns: impl Fn(&Sample) -> u64) {
        self.counted(&format!("{name} (ms)"), Unit::Ms, event, |sample| ms(ns(sample)));
    }

    fn pages(&mut self, name: &str, reclaimer: Reclaimer) {
        type Of = fn(&ReclaimerStats) -> Pages;
        let kinds: [(&str, Of); 3] =
            [("", ReclaimerStats::all), ("file ", |stats| stats.pages[1]), ("anon ", |stats| stats.pages[0])];
        let context = self.context;
        for (kind, of) in kinds {
            let name = format!("{name} {kind}pages scanned");
            let counter = kind.is_empty().then_some("pgscan");
            self.lru_row(&name, reclaimer, Better::Lower, counter, "mm_vmscan_lru_isolate", |stats| {
                context.scanned(of(stats))
            });
        }
        for (kind, of) in kinds {
            let name = format!("{name} {kind}pages reclaimed");
            let counter = kind.is_empty().then_some("pgsteal");
            self.lru_row(
                &name,
                reclaimer,
                Better::Neither,
                counter,
                "mm_vmscan_lru_shrink_inactive",
                |stats| of(stats).reclaimed,
            );
        }
    }

    /// Adds pages by the trace or, where a kernel does not trace them, by `/proc/vmstat`.
    fn lru_row(
        &mut self,
        name: &str,
        reclaimer: Reclaimer,
        better: Better,
        counter: Option<&str>,
        event: &str,
        of: impl Fn(&ReclaimerStats) -> u64,
    ) {
        let missing = self.context.missing_lru(event);
        let source = missing.is_some().then_some("from /proc/vmstat: not traced by this kernel");
        let suffixes: &[&str] =
            if reclaimer == Reclaimer::Kswapd { &["_kswapd"] } else { &["_direct", "_khugepaged"] };
        self.row(name, Unit::Pages, better, source, |sample| {
            let Some(why) = &missing else { return Ok(of(&sample.stats(reclaimer)) as f64) };
            let counters: Vec<String> = counter
                .iter()
                .flat_map(|name| suffixes.iter().map(move |suffix| format!("{name}{suffix}")))
                .collect();
            let counters: Vec<&str> = counters.iter().map(String::as_str).collect();
            let value = sample.vmstat.as_ref().and_then(|vmstat| vmstat.sum(&counters));
            value.map(|value| value as f64).ok_or_else(|| why.clone())
        });
    }

    fn writes(&mut self, name: &str, reclaimer: Reclaimer) {
        let missing = self.context.missing_any(&["mm_vmscan_write_folio", "mm_vmscan_writepage"]);
        let no_file_writes = self.context.no_file_writes();
        for (sync, how) in [(0, "async"), (1, "sync")] {
            for (file, what) in [(1, "file"), (0, "anon")] {
                let name = format!("{name} write {what} {how} I/O");
                self.row(&name, Unit::Pages, Better::Lower, None, |sample| {
                    let count = sample.stats(reclaimer).writes[file][sync];
                    match &missing {
                        Some(why) => Err(why.clone()),
                        // A kernel that does write has the last word.
                        None if count > 0 => Ok(count as f64),
                        None if sync == 1 => Err("reclaim of this kernel never writes synchronously".into()),
                        None if file == 1 && no_file_writes => {
                            Err("reclaim of this kernel writes no file pages except shared memory, which counts as anon".into())
                        }
                        None => Ok(0.0),
                    }
                });
            }
        }
    }

    fn shares(&mut self) {
        let of_machine = self.samples.iter().any(|sample| sample.cpu_of_machine);
        let source = of_machine.then_some("of the whole machine: no command was recorded");
        let cpu = |sample: &Sample| {
            sample.cpu.map(|(user, system)| user + system).ok_or_else(|| NO_CPU_TIMES.to_owned())
        };
        self.row("User/Sys time running test (seconds)", Unit::Seconds, Better::Lower, source, cpu);
        self.row("Percentage time in direct reclaim", Unit::Percent, Better::Lower, None, |sample| {
            let stalled = sample.stalled_ns(Reclaimer::Direct) as f64 / 1e9;
            Ok(percent(stalled, cpu(sample)? + stalled))
        });
        self.row("Total elapsed time (seconds)", Unit::Seconds, Better::Lower, None, |sample| {
            Ok(sample.elapsed_s)
        });
        self.row("Percentage time kswapd awake", Unit::Percent, Better::Lower, None, |sample| {
            let threads = sample.model.kswapd.len().max(1) as f64;
            Ok(percent(sample.kswapd_ns() as f64 / 1e9, sample.elapsed_s * threads))
        });
    }

    fn beyond(&mut self) {
        for (name, percent) in [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("max", 100.0)]
        {
            self.time(&format!("Direct stall {name}"), DIRECT, |sample| {
                sample.stats(Reclaimer::Direct).intervals.durations.percentile_ns(percent).unwrap_or(0)
            });
        }
        for (reclaimer, event) in [
            (Reclaimer::Memcg, "mm_vmscan_memcg_reclaim_begin"),
            (Reclaimer::Proactive, "mm_vmscan_memcg_reclaim_begin"),
            (Reclaimer::SoftLimit, "mm_vmscan_memcg_softlimit_reclaim_begin"),
            (Reclaimer::Node, "mm_vmscan_node_reclaim_begin"),
        ] {
            let name = reclaimer.name();
            self.count(&format!("Reclaims, {name}"), event, |sample| sample.stats(reclaimer).intervals.begun);
            self.time(&format!("Time stalled, {name}"), event, |sample| sample.stalled_ns(reclaimer));
        }
        for reclaimer in [Reclaimer::Direct, Reclaimer::Kswapd, Reclaimer::Memcg, Reclaimer::Proactive] {
            self.efficiency(reclaimer);
        }
        self.time("Time throttled in reclaim", "mm_vmscan_throttled", |sample| {
            sample.model.causes.throttled.values().map(DurationHistogram::sum_ns).sum()
        });
        self.time("Time stalled direct compaction", "mm_compaction_begin", |sample| {
            sample.model.direct_compaction.sum_ns()
        });
        self.row("Pages demoted", Unit::Pages, Better::Neither, Some("from /proc/vmstat"), |sample| {
            let demoted = sample.vmstat.as_ref().and_then(|vmstat| vmstat.sum_of("pgdemote_"));
            demoted.map(|pages| pages as f64).ok_or_else(|| "this kernel has no such counter".into())
        });
    }

    fn efficiency(&mut self, reclaimer: Reclaimer) {
        let context = self.context;
        let name = reclaimer.name();
        let missing = context.missing_lru("mm_vmscan_lru_isolate");
        let pages = |sample: &Sample| match &missing {
            Some(why) => Err(why.clone()),
            None => {
                let all = sample.stats(reclaimer).all();
                Ok((context.scanned(all) as f64, all.reclaimed as f64))
            }
        };
        self.row(&format!("Efficiency, {name} (%)"), Unit::Percent, Better::Higher, None, |sample| {
            let (scanned, reclaimed) = pages(sample)?;
            if scanned > 0.0 { Ok(percent(reclaimed, scanned)) } else { Err("nothing was scanned".into()) }
        });
        self.row(
            &format!("Velocity, {name} (pages/s)"),
            Unit::PagesPerSecond,
            Better::Lower,
            None,
            |sample| {
                let (scanned, _) = pages(sample)?;
                if sample.elapsed_s > 0.0 {
                    Ok(scanned / sample.elapsed_s)
                } else {
                    Err("no time elapsed".into())
                }
            },
        );
    }
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { 100.0 * part / whole } else { 0.0 }
}
