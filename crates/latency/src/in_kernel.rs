use std::time::Duration;

use pagehaul_trace::live::{Instance, InstanceOptions, Tracefs};

use crate::calls::Missed;
use crate::histfile::HistFile;
use crate::probes::{ProbeKind, Probes};
use crate::report::{Part, Report};
use crate::session::Session;
use crate::setup::{Options, are_exact, limit_to};
use crate::{Histogram, LatencyError, functions};

/// Entries of the tables of start times and of histograms.
const TABLE: u32 = 16_384;

/// Times functions inside the kernel, with histogram triggers: nothing comes out but the counts.
///
/// A start time is kept for each task. Where a function is called again before it returned, the inner call takes the
/// place of the outer one, which is then counted as without an end.
pub struct InKernel {
    by_function: bool,
    functions: Vec<Function>,
    started: bool,
    tracefs: Tracefs,
    misses: u64,
    /// In this order: triggers go with the instance, then what they use can.
    instance: Option<Instance>,
    synthetic: Vec<String>,
    probes: Probes,
}

struct Function {
    name: String,
    begin: String,
    synthetic: String,
    /// As read last time.
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

impl InKernel {
    /// Begins to time functions.
    ///
    /// # Errors
    /// [`LatencyError::NoMechanism`] if the kernel has no histogram triggers or synthetic events, or is older than 5.16,
    /// whose triggers cannot add a number.
    pub fn functions(
        tracefs: &Tracefs,
        patterns: &[String],
        kind: ProbeKind,
        options: &Options,
    ) -> Result<Self, LatencyError> {
        if !tracefs.root().join("synthetic_events").exists() {
            let lacks =
                "no histogram triggers or synthetic events (CONFIG_HIST_TRIGGERS, CONFIG_SYNTH_EVENTS)";
            return Err(LatencyError::NoMechanism(lacks.into()));
        }
        let names = functions::expand(tracefs, patterns)?;
        let probes = Probes::create(tracefs, kind, names, are_exact(patterns))?;
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

    /// Functions that globs meant, but that cannot be probed, and why.
    pub fn left_out(&self) -> &[(String, String)] {
        self.probes.refused()
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
            // The kernel's log2 rounds up, so that 2^n holds what is above 2^(n-1) and up to 2^n. Of one more than the
            // duration, these are the buckets from 2^(n-1) to 2^n - 1.
            let took = format!("common_timestamp-$s{number}");
            let stop = format!(
                "hist:keys=common_pid:d{number}={took},k{number}={took}+1:size={TABLE}:clock=mono:\
                 onmatch({group}.{begin}).trace({synthetic},$d{number},$k{number})"
            );
            trigger(&group, &end, &stop).map_err(|error| {
                // Numbers in expressions: since 5.16 (52cfb373536a).
                LatencyError::NoMechanism(format!(
                    "histogram triggers that do not take what is needed ({error})"
                ))
            })?;
            trigger("synthetic", &synthetic, &format!("hist:keys=k.log2:vals=d:size={TABLE}"))?;
            self.functions.push(Function { name: name.to_owned(), begin, synthetic, seen: NOTHING });
        }
        instance.write("tracing_on", "1")?;
        // Calls that began before the triggers of their ends were there.
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

impl Session for InKernel {
    fn advance(&mut self, wait: Duration) -> Result<bool, LatencyError> {
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

    fn take(&mut self, _last: bool) -> Result<Report, LatencyError> {
        let mut missed = Missed::default();
        let mut parts: Vec<Part> = Vec::new();
        let Some(instance) = &self.instance else {
            return Ok(Report { mechanism: String::new(), parts, missed });
        };
        for function in &mut self.functions {
            let now = function.read(instance)?;
            let old = std::mem::replace(&mut function.seen, now.clone());
            let mut log2 = now.log2;
            for (now, old) in log2.iter_mut().zip(old.log2) {
                *now = now.saturating_sub(old);
            }
            let begun = now.begun.saturating_sub(old.begun);
            missed.without_end += begun.saturating_sub(now.ended.saturating_sub(old.ended));
            missed.full_maps += now.dropped.saturating_sub(old.dropped);
            let histogram = Histogram::of_counts(log2, u128::from(now.total_ns.saturating_sub(old.total_ns)));
            match parts.first_mut().filter(|_| !self.by_function) {
                Some(all) => {
                    all.histogram.merge(&histogram);
                    all.name = format!("{}, {}", all.name, function.name);
                }
                None => parts.push(Part { name: function.name.clone(), histogram }),
            }
        }
        let misses = self.probes.misses();
        missed.probe_misses = misses.saturating_sub(self.misses);
        self.misses = misses;
        let mechanism = format!("{} events, counted in the kernel", self.probes.kind().name());
        Ok(Report { mechanism, parts, missed })
    }
}

impl Drop for InKernel {
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

/// Removes the triggers of an event: each is written again with a `!` in front.
fn remove_trigger(instance: &Instance, system: &str, event: &str) -> Result<(), LatencyError> {
    let file = format!("events/{system}/{event}/trigger");
    for line in instance.read(&file)?.lines().filter(|line| line.starts_with("hist:")) {
        let command = line.trim_end_matches(" [active]").trim_end_matches(" [paused]");
        instance.write(&file, &format!("!{command}"))?;
    }
    Ok(())
}
