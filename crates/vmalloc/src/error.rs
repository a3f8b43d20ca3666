use pagehaul_latency::LatencyError;
use pagehaul_trace::TraceError;

/// Errors of watching vmalloc. Each message is one sentence.
#[derive(Debug, thiserror::Error)]
pub enum VmallocError {
    /// A file of /proc cannot be read.
    #[error("cannot read {path}: {source}{hint}")]
    Proc {
        /// The file.
        path: &'static str,
        /// The system's error.
        source: std::io::Error,
        /// The remedy.
        hint: &'static str,
    },
    /// A line of /proc/vmallocinfo does not parse.
    #[error("/proc/vmallocinfo: line {line}: expected START-END SIZE …, found {text:?}")]
    Areas {
        /// Line number, from 1.
        line: usize,
        /// Start of the line.
        text: String,
    },
    /// The kernel has no vmalloc trace events.
    #[error(
        "this kernel has no vmalloc trace events (6.1 lacks them, 6.12 has them): run without --interval and --duration to show the present \
         areas"
    )]
    NoEvents,
    /// A trace file has no vmalloc events.
    #[error(
        "the trace has no vmalloc events: record them with `pagehaul vmalloc -o FILE`, or trace-cmd record -e vmalloc"
    )]
    NotInTrace,
    /// Tracing failed.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Measuring purges failed.
    #[error(transparent)]
    Latency(#[from] LatencyError),
}
