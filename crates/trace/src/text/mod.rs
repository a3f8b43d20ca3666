//! Traces as text: ftrace's `trace` and `trace_pipe`, `trace-cmd report`, `perf script`.
//!
//! Values keep the spelling of the kernel's print formats, so flags are names here and numbers in binary traces. Field
//! names are those of the binary event wherever the print format differs ([`names`]).
//!
//! A file is cut into [`pieces`] that several threads take apart ([`ahead`], [`parser`]), each without the others; the reader puts
//! them in order and numbers the kinds of events ([`shape`]). What comes out does not depend on where the borders are.

mod ahead;
mod args;
mod batch;
mod head;
mod names;
mod parser;
mod pieces;
mod reader;
mod shape;
mod tasks;
#[cfg(test)]
mod tests;

pub(crate) use reader::TextReader;
