//! Shows results: tables, numbers and times, written one way in every command and report.

pub mod number;
mod table;
pub mod time;

pub use table::{Cell, Table};
