use pagehaul_latency::LatencyError;
use pagehaul_trace::TraceError;

/// Why vmalloc could not be looked at. Each is one sentence.
#[derive(Debug, thiserror::Error)]
pub enum VmallocError {
    /// A file of /proc.
    #[error("cannot read {path}: {source}{hint}")]
    Proc {
        /// The file.
        path: &'static str,
        /// What the system said.
        source: std::io::Error,
        /// What to do about it.
        hint: &'static str,
    },
    /// A line of /proc/vmallocinfo.
    #[error("/proc/vmallocinfo: line {line} is no area (start-end size …): {text:?}")]
    Areas {
        /// Counted from 1.
        line: usize,
        /// Its begin.
        text: String,
    },
    /// This kernel's vmalloc has no trace events.
    #[error(
        "this kernel has no vmalloc trace events (they are not in 6.1, and in 6.12): without -i and -d, the areas there are \
         now are shown"
    )]
    NoEvents,
    /// A recorded trace is of something else.
    #[error(
        "the trace has no vmalloc events: record them with `pagehaul vmalloc -o FILE`, or trace-cmd record -e vmalloc"
    )]
    NotInTrace,
    /// Tracing failed.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Timing purges failed.
    #[error(transparent)]
    Latency(#[from] LatencyError),
}
