//! Text traces: ftrace's `trace` and `trace_pipe`, `trace-cmd report`, `perf script`.
//!
//! Values keep the spelling of the kernel's print formats: flags are names here and numbers in binary traces.
//! Fields have the names of the binary event where the print format differs ([`field_names`]).
//!
//! Several threads ([`parser_threads`]) parse the [`chunks`] of a file independently of each other
//! ([`parser`]). The reader puts the batches in order and numbers the line formats ([`line_format`]). The
//! result does not depend on chunk boundaries.

mod batch;
mod chunks;
mod field_names;
mod fields;
mod header;
mod line_format;
mod parser;
mod parser_threads;
mod reader;
mod task_names;
#[cfg(test)]
mod tests;

pub(crate) use reader::TextReader;
