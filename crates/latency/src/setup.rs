//! What has to be switched on before events come.

use pagehaul_trace::TraceError;
use pagehaul_trace::live::{Instance, InstanceOptions, Tracefs};

use crate::between::EventName;
use crate::probes::{ProbeKind, Probes};
use crate::{LatencyError, Unit, functions};

/// How latencies are counted.
#[derive(Debug, Clone)]
pub struct Options {
    /// The unit of rows.
    pub unit: Unit,
    /// Rows of so many units instead of powers of two.
    pub step: Option<u64>,
    /// A histogram for each function.
    pub by_function: bool,
    /// Only these processes, with all their threads and children; all where it is empty.
    pub pids: Vec<u32>,
    /// KiB of the kernel's buffer for each CPU.
    pub buffer_kb: u32,
}

/// How the kernel is to time functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// Events at begin and return of functions.
    Probes(ProbeKind),
    /// The function graph tracer in an instance.
    FunctionGraph,
}

impl Mechanism {
    /// The best this kernel offers.
    ///
    /// # Errors
    /// [`LatencyError::NoMechanism`] says what is missing.
    pub fn choose(tracefs: &Tracefs) -> Result<Self, LatencyError> {
        if let Some(kind) = ProbeKind::offered(tracefs) {
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

    /// In a few words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Probes(ProbeKind::Kprobe) => "kprobe events",
            Self::Probes(ProbeKind::Fprobe) => "fprobe events",
            Self::FunctionGraph => "function graph",
        }
    }
}

/// An instance with everything switched on but tracing itself.
pub struct Setup {
    pub(crate) mechanism: &'static str,
    /// Before the probes, which can be removed when no instance uses them.
    pub(crate) instance: Instance,
    pub(crate) probes: Option<Probes>,
}

impl Setup {
    /// For functions.
    ///
    /// # Errors
    /// [`LatencyError`] in one sentence.
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
                let probes = Probes::create(tracefs, kind, names, are_exact(patterns))?;
                for (begin, end, _) in setup.probes.insert(probes).events() {
                    setup.instance.enable(&Probes::group(), &begin)?;
                    setup.instance.enable(&Probes::group(), &end)?;
                }
            }
            Mechanism::FunctionGraph => {
                setup.instance.write("set_ftrace_filter", &names.join("\n"))?;
                // Older kernels have it for one user at a time, and not in instances.
                setup.instance.write("current_tracer", "function_graph").map_err(|_| {
                    LatencyError::NoMechanism(
                        "neither kprobe nor fprobe events, and its function graph tracer is not for instances".into(),
                    )
                })?;
            }
        }
        Ok(setup)
    }

    /// For a pair of trace events.
    ///
    /// # Errors
    /// [`LatencyError`] in one sentence.
    pub fn between(
        tracefs: &Tracefs,
        start: &EventName,
        end: &EventName,
        options: &Options,
    ) -> Result<Self, LatencyError> {
        // Names first: nothing is made for events that are not there.
        let events = [(find_system(tracefs, start)?, &start.name), (find_system(tracefs, end)?, &end.name)];
        let instance = tracefs.create_instance(&instance_options(options))?;
        limit_to(&instance, &options.pids, false)?;
        for (system, name) in events {
            instance.enable(&system, name)?;
        }
        Ok(Self { mechanism: "trace events", instance, probes: None })
    }

    /// Functions that globs meant, but that cannot be probed, and why.
    pub fn left_out(&self) -> &[(String, String)] {
        self.probes.as_ref().map_or(&[], Probes::refused)
    }
}

/// Whether functions were named, and not found by globs: then each of them is wanted.
pub(crate) fn are_exact(patterns: &[String]) -> bool {
    !patterns.iter().any(|pattern| pattern.contains(['*', '?']))
}

fn instance_options(options: &Options) -> InstanceOptions {
    InstanceOptions { buffer_kb: options.buffer_kb, ..InstanceOptions::default() }
}

/// Has an instance trace these processes only, with the threads they have and those to come.
pub(crate) fn limit_to(instance: &Instance, pids: &[u32], tracer: bool) -> Result<(), TraceError> {
    // What this process does to read its events would make more of them. Since 5.7 (276836260301, b3b1e6ededa4); older
    // kernels show it.
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

/// The subsystem of an event that may have been named without one.
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
