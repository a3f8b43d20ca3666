//! The tables of a crash, and those of a recording (docs/schema.md).

mod facts;
mod inside;
mod pages;
mod recording;

pub(crate) use facts::{DumpFile, facts};
pub(crate) use inside::inside;
pub(crate) use pages::pages;
pub(crate) use recording::{recording, started};

use crate::table::Values;

/// A column of texts, one for each of `rows`.
fn texts<'a, R, T: Into<String>>(rows: &'a [R], get: impl Fn(&'a R) -> T) -> Values {
    Values::text(rows.iter().map(|row| Some(get(row))))
}

/// A column of numbers, one for each of `rows`.
fn longs<R, T: TryInto<i64>>(rows: &[R], get: impl Fn(&R) -> T) -> Values {
    Values::long(rows.iter().map(|row| Some(get(row))))
}
