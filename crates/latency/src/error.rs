use pagehaul_trace::TraceError;

/// Why no latencies could be had. Each is one sentence.
#[derive(Debug, thiserror::Error)]
pub enum LatencyError {
    /// Reading or setting up the trace failed.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// No function of this name.
    #[error(
        "no function {pattern} can be traced on this kernel: see available_filter_functions in tracefs ({why})"
    )]
    NoFunction {
        /// The name or glob.
        pattern: String,
        /// What was looked at.
        why: String,
    },
    /// Too many functions.
    #[error("{patterns} match {count} functions, more than {most}: name fewer")]
    TooMany {
        /// The globs.
        patterns: String,
        /// How many they match.
        count: usize,
        /// How many are allowed.
        most: usize,
    },
    /// The kernel offers no way.
    #[error(
        "functions cannot be timed on this kernel: it has {0}; trace events can, with --between START,END"
    )]
    NoMechanism(String),
    /// The kernel refused a probe.
    #[error("the kernel refuses a probe on {function}: {why}")]
    Refused {
        /// The function.
        function: String,
        /// What it said.
        why: String,
    },
    /// An event has no such field.
    #[error("the event {event} has no field {field}: it has {fields}")]
    NoField {
        /// The event.
        event: String,
        /// The field.
        field: String,
        /// Those it has.
        fields: String,
    },
    /// A recorded trace has no such event.
    #[error("the trace has no event {event}; it has {known}")]
    NotInTrace {
        /// The event.
        event: String,
        /// Some of those it has.
        known: String,
    },
    /// A histogram of the kernel's that cannot be read.
    #[error("the kernel's histogram of {event} cannot be read: line {line}: {what}")]
    HistFile {
        /// The event.
        event: String,
        /// Counted from 1.
        line: usize,
        /// What was expected.
        what: String,
    },
}
