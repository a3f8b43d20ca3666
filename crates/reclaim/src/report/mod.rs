//! What a trace means: rows, tables, checks.

mod analysis;
mod check;
mod compare;
mod context;
mod document;
mod rows;
mod section;
mod table;
mod tables;

pub use analysis::{ReportError, analyse, analyse_all};
pub use check::{Check, Verdict};
pub use compare::{Change, Comparison, ComparisonColumn, ComparisonRow, ComparisonSection};
pub use document::{CommandResult, LostReport, ReclaimReport, SourceInfo, Stalls, TimelineReport};
pub use section::{Better, Row, Section, Unit};
pub use table::{Column, Datum, Table};
