//! Traces as text: ftrace's `trace` and `trace_pipe`, `trace-cmd report`, `perf script`.
//!
//! Values keep the spelling of the kernel's print formats, so flags are names here and numbers in binary traces. Field
//! names are those of the binary event wherever the print format differs ([`names`]).
//!
//! A file is cut into [`chunks`] that several threads take apart ([`ahead`], [`parser`]), each without the others; the reader puts
//! them in order and numbers the kinds of events ([`format`]). What comes out does not depend on where the borders are.

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
