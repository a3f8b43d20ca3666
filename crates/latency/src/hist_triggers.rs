use std::time::Duration;

use pagehaul_trace::live::{Instance, InstanceOptions, Tracefs};

use crate::call_tracker::Missed;
use crate::error::LatencyError;
use crate::functions;
use crate::histfile::HistFile;
use crate::histogram::Histogram;
use crate::probes::{ProbeKind, Probes};
use crate::report::{LatencyReport, NamedHistogram};
use crate::session::Session;
use crate::setup::{Options, are_names, limit_to};

/// Entries in the tables of start times and of histograms.
const TABLE: u32 = 16_384;

/// Measures functions inside the kernel with hist triggers: only counts come out.
///
/// The kernel keeps one start time per task. If a function is called again before it returns, the inner call
/// replaces the outer one, which counts as without an end.
pub struct HistTriggerSession {
    by_function: bool,
    functions: Vec<Function>,
    started: bool,
    tracefs: Tracefs,
    misses: u64,
    /// Dropped in this order: triggers go with the instance, then what they refer to can be removed.
    instance: Option<Instance>,
    synthetic: Vec<String>,
    probes: Probes,
}

struct Function {
    name: String,
    begin: String,
    synthetic: String,
    /// Counts at the last read.
    seen: Counts,
}

#[derive(Clone)]
struct Counts {
    log2: [u64; 64],
    total_ns: u64,
    begun: u64,
    ended: u64,
    dropped: u64,
}

const NOTHING: Counts = Counts { log2: [0; 64], total_ns: 0, begun: 0, ended: 0, dropped: 0 };

impl HistTriggerSession {
    /// Starts to measure functions.
    ///
    /// # Errors
    /// [`LatencyError::NoMechanism`] if the kernel lacks hist triggers or synthetic events, or is older than
    /// 5.16, whose triggers do not accept numbers in expressions.
    pub fn functions(
        tracefs: &Tracefs,
        patterns: &[String],
        kind: ProbeKind,
        options: &Options,
    ) -> Result<Self, LatencyError> {
        if !tracefs.root().join("synthetic_events").exists() {
            let lacks = "no hist triggers or synthetic events (CONFIG_HIST_TRIGGERS, CONFIG_SYNTH_EVENTS)";
            return Err(LatencyError::NoMechanism(lacks.into()));
        }
        let names = functions::expand(tracefs, patterns)?;
        let probes = Probes::create(tracefs, kind, names, are_names(patterns))?;
        let instance =
            tracefs.create_instance(&InstanceOptions { buffer_kb: 64, ..InstanceOptions::default() })?;
        limit_to(&instance, &options.pids, false)?;
        let mut session = Self {
            by_function: options.by_function,
            functions: Vec::new(),
            started: true,
            tracefs: tracefs.clone(),
            misses: 0,
            instance: Some(instance),
            synthetic: Vec::new(),
            probes,
        };
        session.set_up()?;
        Ok(session)
    }

    /// Returns functions that globs matched but that cannot be probed, with the reason.
    pub fn skipped(&self) -> &[(String, String)] {
        self.probes.skipped()
    }

    fn set_up(&mut self) -> Result<(), LatencyError> {
        let Some(instance) = &self.instance else { return Ok(()) };
        let group = Probes::group();
        let process = std::process::id();
        for (number, (begin, end, name)) in self.probes.events().enumerate() {
            let synthetic = format!("pagehaul_{process}_{number}");
            self.tracefs.append("synthetic_events", &format!("{synthetic} u64 d; u64 k"))?;
            self.synthetic.push(synthetic.clone());
            let trigger = |system: &str, event: &str, text: &str| {
                instance.write(&format!("events/{system}/{event}/trigger"), text)
            };
            let start = format!("hist:keys=common_pid:s{number}=common_timestamp:size={TABLE}:clock=mono");
            trigger(&group, &begin, &start)?;
            // The kernel's log2 rounds up: 2^n holds values above 2^(n-1) up to 2^n. For the latency plus
            // one, these are the buckets from 2^(n-1) to 2^n - 1.
            let took = format!("common_timestamp-$s{number}");
            let stop = format!(
                "hist:keys=common_pid:d{number}={took},k{number}={took}+1:size={TABLE}:clock=mono:\
                 onmatch({group}.{begin}).trace({synthetic},$d{number},$k{number})"
            );
            trigger(&group, &end, &stop).map_err(|error| {
                // Numbers in expressions: since 5.16 (52cfb373536a).
                LatencyError::NoMechanism(format!("hist triggers without numbers in expressions ({error})"))
            })?;
            trigger("synthetic", &synthetic, &format!("hist:keys=k.log2:vals=d:size={TABLE}"))?;
            self.functions.push(Function { name: name.to_owned(), begin, synthetic, seen: NOTHING });
        }
        instance.write("tracing_on", "1")?;
        // Excludes calls that began before the triggers of their ends existed.
        for function in &mut self.functions {
            function.seen = function.read(instance)?;
        }
        Ok(())
    }
}

impl Function {
    fn read(&self, instance: &Instance) -> Result<Counts, LatencyError> {
        let hist = |system: &str, event: &str| -> Result<HistFile, LatencyError> {
            let text = instance.read(&format!("events/{system}/{event}/hist"))?;
            Ok(HistFile::parse(event, &text)?.into_iter().next().unwrap_or_default())
        };
        let durations = hist("synthetic", &self.synthetic)?;
        let begun = hist(&Probes::group(), &self.begin)?;
        let mut counts = Counts {
            begun: begun.hits.saturating_add(begun.dropped),
            ended: durations.hits,
            dropped: durations.dropped.saturating_add(begun.dropped),
            ..NOTHING
        };
        for entry in &durations.entries {
            let exponent = entry.log2("k").unwrap_or(0).saturating_sub(1) as usize;
            if let Some(bucket) = counts.log2.get_mut(exponent) {
                *bucket = bucket.saturating_add(entry.value("hitcount").unwrap_or(0));
            }
            counts.total_ns = counts.total_ns.saturating_add(entry.value("d").unwrap_or(0));
        }
        Ok(counts)
    }
}

impl Session for HistTriggerSession {
    fn poll(&mut self, wait: Duration) -> Result<bool, LatencyError> {
        if self.started {
            std::thread::sleep(wait);
        }
        Ok(self.started)
    }

    fn stop(&mut self) -> Result<(), LatencyError> {
        self.started = false;
        match &self.instance {
            Some(instance) => Ok(instance.write("tracing_on", "0")?),
            None => Ok(()),
        }
    }

    fn take(&mut self, _last: bool) -> Result<LatencyReport, LatencyError> {
        let mut missed = Missed::default();
        let mut histograms: Vec<NamedHistogram> = Vec::new();
        let Some(instance) = &self.instance else {
            return Ok(LatencyReport { mechanism: String::new(), histograms, missed, warnings: Vec::new() });
        };
        for function in &mut self.functions {
            let now = function.read(instance)?;
            let old = std::mem::replace(&mut function.seen, now.clone());
            let mut log2 = now.log2;
            for (now, old) in log2.iter_mut().zip(old.log2) {
                *now = now.saturating_sub(old);
            }
            let begun = now.begun.saturating_sub(old.begun);
            missed.starts_without_end += begun.saturating_sub(now.ended.saturating_sub(old.ended));
            missed.dropped += now.dropped.saturating_sub(old.dropped);
            let histogram =
                Histogram::from_log2_counts(log2, u128::from(now.total_ns.saturating_sub(old.total_ns)));
            match histograms.first_mut().filter(|_| !self.by_function) {
                Some(all) => {
                    all.histogram.merge(&histogram);
                    all.name = format!("{}, {}", all.name, function.name);
                }
                None => histograms.push(NamedHistogram { name: function.name.clone(), histogram }),
            }
        }
        let misses = self.probes.misses();
        missed.probe_misses = misses.saturating_sub(self.misses);
        self.misses = misses;
        let mechanism = format!("{} events, counted in the kernel", self.probes.kind().name());
        Ok(LatencyReport { mechanism, histograms, missed, warnings: Vec::new() })
    }
}

impl Drop for HistTriggerSession {
    fn drop(&mut self) {
        // An instance whose triggers refer to each other cannot be removed with them.
        if let Some(instance) = self.instance.take() {
            for function in self.functions.iter().rev() {
                let _ = remove_trigger(&instance, "synthetic", &function.synthetic);
            }
            for (begin, end, _) in self.probes.events() {
                let _ = remove_trigger(&instance, &Probes::group(), &end);
                let _ = remove_trigger(&instance, &Probes::group(), &begin);
            }
        }
        for name in &self.synthetic {
            let _ = self.tracefs.append("synthetic_events", &format!("!{name} u64 d; u64 k"));
        }
    }
}

/// Removes the triggers of an event: writing one again with a leading `!` removes it.
fn remove_trigger(instance: &Instance, system: &str, event: &str) -> Result<(), LatencyError> {
    let file = format!("events/{system}/{event}/trigger");
    for line in instance.read(&file)?.lines().filter(|line| line.starts_with("hist:")) {
        let command = line.trim_end_matches(" [active]").trim_end_matches(" [paused]");
        instance.write(&file, &format!("!{command}"))?;
    }
    Ok(())
}
