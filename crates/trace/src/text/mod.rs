//! Traces as text: ftrace's `trace` and `trace_pipe`, `trace-cmd report`, `perf script`.
//!
//! Values keep the spelling of the kernel's print formats, so flags are names here and numbers in binary traces. Field
//! names are those of the binary event wherever the print format differs ([`names`]).

mod args;
mod batch;
mod head;
mod names;
mod parser;
mod reader;
mod tasks;

pub(crate) use reader::TextReader;
