//! Sets up tracing of functions and events.

use pagehaul_trace::TraceError;
use pagehaul_trace::live::{Instance, InstanceOptions, Tracefs};

use crate::error::LatencyError;
use crate::event_name::EventName;
use crate::functions;
use crate::probes::{ProbeKind, Probes};
use crate::unit::Unit;

/// Options of a measurement.
#[derive(Debug, Clone)]
pub struct Options {
    /// Unit of buckets.
    pub unit: Unit,
    /// Linear buckets of this many units, in place of powers of two.
    pub step: Option<u64>,
    /// One histogram per function.
    pub by_function: bool,
    /// Only these processes, with their threads and children; empty for all.
    pub pids: Vec<u32>,
    /// Buffer size per CPU in KiB.
    pub buffer_kb: u32,
}

/// How functions are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// Events at entry and return of functions.
    Probes(ProbeKind),
    /// The function graph tracer in an instance.
    FunctionGraph,
}

impl Mechanism {
    /// Returns the best mechanism of this kernel.
    ///
    /// # Errors
    /// [`LatencyError::NoMechanism`] lists what is missing.
    pub fn choose(tracefs: &Tracefs) -> Result<Self, LatencyError> {
        if let Some(kind) = ProbeKind::available(tracefs) {
            return Ok(Self::Probes(kind));
        }
        let tracers = tracefs.read("available_tracers").unwrap_or_default();
        if tracers.split_whitespace().any(|tracer| tracer == "function_graph") {
            return Ok(Self::FunctionGraph);
        }
        Err(LatencyError::NoMechanism(
            "neither kprobe events (CONFIG_KPROBE_EVENTS) nor fprobe events (CONFIG_FPROBE_EVENTS) nor the function graph \
             tracer (CONFIG_FUNCTION_GRAPH_TRACER)"
                .into(),
        ))
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Probes(ProbeKind::Kprobe) => "kprobe events",
            Self::Probes(ProbeKind::Fprobe) => "fprobe events",
            Self::FunctionGraph => "function graph",
        }
    }
}

/// An instance that is set up, with tracing off.
pub struct Setup {
    pub(crate) mechanism: &'static str,
    /// Before the probes, which can only be removed once no instance uses them.
    pub(crate) instance: Instance,
    pub(crate) probes: Option<Probes>,
}

impl Setup {
    /// Sets up functions.
    ///
    /// # Errors
    /// [`LatencyError`] if no function matches or the kernel refuses.
    pub fn functions(
        tracefs: &Tracefs,
        patterns: &[String],
        mechanism: Mechanism,
        options: &Options,
    ) -> Result<Self, LatencyError> {
        let names = functions::expand(tracefs, patterns)?;
        let instance = tracefs.create_instance(&instance_options(options))?;
        limit_to(&instance, &options.pids, mechanism == Mechanism::FunctionGraph)?;
        let mut setup = Self { mechanism: mechanism.name(), instance, probes: None };
        match mechanism {
            Mechanism::Probes(kind) => {
                let probes = Probes::create(tracefs, kind, names, are_names(patterns))?;
                for (begin, end, _) in setup.probes.insert(probes).events() {
                    setup.instance.enable(&Probes::group(), &begin)?;
                    setup.instance.enable(&Probes::group(), &end)?;
                }
            }
            Mechanism::FunctionGraph => {
                setup.instance.write("set_ftrace_filter", &names.join("\n"))?;
                // Older kernels allow one user of the tracer, and not in instances.
                setup.instance.write("current_tracer", "function_graph").map_err(|_| {
                    LatencyError::NoMechanism(
                        "neither kprobe nor fprobe events, and its function graph tracer is not for instances".into(),
                    )
                })?;
            }
        }
        Ok(setup)
    }

    /// Sets up a pair of trace events.
    ///
    /// # Errors
    /// [`LatencyError`] if the kernel lacks an event or refuses.
    pub fn between(
        tracefs: &Tracefs,
        start: &EventName,
        end: &EventName,
        options: &Options,
    ) -> Result<Self, LatencyError> {
        // Looks up both events before anything is created.
        let events = [(find_system(tracefs, start)?, &start.name), (find_system(tracefs, end)?, &end.name)];
        let instance = tracefs.create_instance(&instance_options(options))?;
        limit_to(&instance, &options.pids, false)?;
        for (system, name) in events {
            instance.enable(&system, name)?;
        }
        Ok(Self { mechanism: "trace events", instance, probes: None })
    }

    /// Returns functions that globs matched but that cannot be probed, with the reason.
    pub fn skipped(&self) -> &[(String, String)] {
        self.probes.as_ref().map_or(&[], Probes::skipped)
    }
}

/// Returns whether all patterns are names, so that each function must be measured.
pub(crate) fn are_names(patterns: &[String]) -> bool {
    !patterns.iter().any(|pattern| pattern.contains(['*', '?']))
}

fn instance_options(options: &Options) -> InstanceOptions {
    InstanceOptions { buffer_kb: options.buffer_kb, ..InstanceOptions::default() }
}

/// Limits an instance to these processes, with their present and future threads.
pub(crate) fn limit_to(instance: &Instance, pids: &[u32], tracer: bool) -> Result<(), TraceError> {
    // Excludes this process: reading its events would cause more of them. Since 5.7 (276836260301,
    // b3b1e6ededa4); older kernels include it.
    let (own, own_file) = (
        std::process::id().to_string(),
        if tracer { "set_ftrace_notrace_pid" } else { "set_event_notrace_pid" },
    );
    let _ = instance.write(own_file, &own);
    let mut threads = Vec::new();
    for pid in pids {
        let tasks = std::path::PathBuf::from(format!("/proc/{pid}/task"));
        let entries = tasks.read_dir().map_err(TraceError::io(&tasks, "read"))?;
        threads.extend(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()));
    }
    if threads.is_empty() {
        return Ok(());
    }
    if tracer {
        instance.write("options/function-fork", "1")?;
        return instance.write("set_ftrace_pid", &threads.join(" "));
    }
    instance.write("options/event-fork", "1")?;
    instance.write("set_event_pid", &threads.join(" "))
}

/// Returns the event system of an event that may have been named without one.
fn find_system(tracefs: &Tracefs, event: &EventName) -> Result<String, LatencyError> {
    if let Some(system) = event.system.as_ref().filter(|system| tracefs.has_event(system, &event.name)) {
        return Ok(system.clone());
    }
    let events = tracefs.root().join("events");
    let entries = events.read_dir().map_err(TraceError::io(&events, "read"))?;
    let mut systems: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|system| event.system.is_none() && tracefs.has_event(system, &event.name))
        .collect();
    systems.sort();
    systems.into_iter().next().ok_or_else(|| {
        LatencyError::Trace(TraceError::NoSuchEvent {
            system: event.system.clone().unwrap_or_else(|| "*".into()),
            event: event.name.clone(),
        })
    })
}
