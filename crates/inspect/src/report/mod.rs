//! Everything together, for those who show it.

pub(crate) mod ahead;
pub(crate) mod difference;
pub(crate) mod gaps;
pub(crate) mod on_request;
pub(crate) mod triage;
mod without_symbols;
