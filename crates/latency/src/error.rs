use pagehaul_trace::TraceError;

/// Errors of measuring latencies. Each message is one sentence.
#[derive(Debug, thiserror::Error)]
pub enum LatencyError {
    /// Reading or setting up the trace failed.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// No function matches.
    #[error(
        "no function {pattern} can be traced on this kernel: see available_filter_functions in tracefs ({why})"
    )]
    NoFunction {
        /// The name or glob.
        pattern: String,
        /// The likely reason.
        why: String,
    },
    /// Too many functions match.
    #[error("{patterns} match {count} functions, the limit is {max}: name fewer")]
    TooMany {
        /// The globs.
        patterns: String,
        /// Number of matching functions.
        count: usize,
        /// Upper bound.
        max: usize,
    },
    /// The kernel has no mechanism to measure functions.
    #[error("this kernel cannot measure functions: it has {0}; --between START,END measures trace events")]
    NoMechanism(String),
    /// The kernel rejected a probe.
    #[error("the kernel rejects a probe on {function}: {why}")]
    Refused {
        /// The function.
        function: String,
        /// The kernel's reason.
        why: String,
    },
    /// An event lacks a field.
    #[error("the event {event} has no field {field}: it has {fields}")]
    NoField {
        /// The event.
        event: String,
        /// The field.
        field: String,
        /// Its fields.
        fields: String,
    },
    /// A trace file has no such event.
    #[error("the trace has no event {event}; it has {known}")]
    NotInTrace {
        /// The event.
        event: String,
        /// Some of its events.
        known: String,
    },
    /// A `hist` file of the kernel does not parse.
    #[error("the hist file of {event}: line {line}: {what}")]
    HistFile {
        /// The event.
        event: String,
        /// Line number, from 1.
        line: usize,
        /// What was expected.
        what: String,
    },
}
