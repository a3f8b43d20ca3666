//! The columns that commands read of each table (docs/schema.md). A column of another type would be read as nulls, and its crashes
//! would be missing from reports without a warning.

use anyhow::{bail, ensure};

use crate::names::{MANIFEST, key_column};
use crate::table::Values;

/// Pages of 4 KiB in an address space of 64 bits.
const MAX_PAGES: i64 = 1 << 52;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Texts,
    /// Of 32 or 64 bits.
    Number,
    /// A number of pages: not below 0, and not more than there can be.
    Pages,
    Time,
    Flag,
}

/// A column, and whether reports need it. Without a needed column figures would be false; without an optional one a value is unknown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) needed: bool,
}

const fn needed(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, needed: true }
}

const fn optional(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, needed: false }
}

const DUMPS: &[Column] = &[
    needed("sig", Kind::Text),
    optional("sig_coarse", Kind::Text),
    optional("frames", Kind::Texts),
    optional("title", Kind::Text),
    needed("kind", Kind::Text),
    optional("release", Kind::Text),
    optional("host", Kind::Text),
    needed("crash_time", Kind::Time),
    optional("log_whole", Kind::Flag),
    optional("complete", Kind::Flag),
    optional("format", Kind::Text),
    optional("level", Kind::Number),
    optional("size_bytes", Kind::Number),
];
const PAGES: &[Column] = &[needed("class", Kind::Text), needed("pages", Kind::Pages)];
const MEMORY: &[Column] = &[
    needed("node", Kind::Number),
    needed("zone", Kind::Text),
    needed("item", Kind::Text),
    needed("value", Kind::Number),
];
const TASKS: &[Column] = &[needed("state", Kind::Text)];
const RUNS: &[Column] = &[optional("host", Kind::Text), needed("started", Kind::Time)];
const DUMP_FILES: &[Column] = &[
    needed("crash_id", Kind::Text),
    needed("run_id", Kind::Text),
    needed("host", Kind::Text),
    needed("time", Kind::Time),
    needed("extracted", Kind::Time),
    needed("path", Kind::Text),
    needed("error", Kind::Text),
    needed("rows", Kind::Number),
];

/// Returns the columns of a table that are read, its key first. Of a table of the user's own, that is the key.
pub(crate) fn of(table: &str) -> impl Iterator<Item = Column> {
    let columns = match table {
        "dumps" => DUMPS,
        "page_classes" => PAGES,
        "memory_state" => MEMORY,
        "tasks" => TASKS,
        "reclaim_runs" | "latency_runs" => RUNS,
        MANIFEST => DUMP_FILES,
        _ => &[],
    };
    let first = [needed(key_column(table), Kind::Text), optional("schema_version", Kind::Number)];
    first.into_iter().chain(columns.iter().copied())
}

impl Column {
    /// Checks the kind of a column in a file, `None` if it is absent.
    ///
    /// # Errors
    /// Fails if it is of another kind, or absent and needed.
    pub(crate) fn check(self, found: Option<&Values>) -> anyhow::Result<()> {
        let Self { name, kind, needed } = self;
        let Some(found) = found else {
            ensure!(!needed, "column {name}: expected {}, found no such column", kind.about());
            return Ok(());
        };
        let fits = match kind {
            Kind::Text => matches!(found, Values::Text(_)),
            Kind::Texts => matches!(found, Values::Texts(_)),
            Kind::Number | Kind::Pages => matches!(found, Values::Int(_) | Values::Long(_)),
            Kind::Time => matches!(found, Values::Time(_)),
            Kind::Flag => matches!(found, Values::Bool(_)),
        };
        ensure!(fits, "column {name}: expected {}, found {}", kind.about(), about(found));
        Ok(())
    }

    /// Whether some values cannot be.
    pub(crate) fn has_limits(self) -> bool {
        self.kind == Kind::Pages
    }

    /// Checks the values of a column.
    ///
    /// # Errors
    /// Fails if one cannot be.
    pub(crate) fn check_values(self, values: &Values) -> anyhow::Result<()> {
        if !self.has_limits() {
            return Ok(());
        }
        let mut numbers = (0..values.len()).filter_map(|row| values.number_at(row));
        match numbers.find(|pages| !(0..=MAX_PAGES).contains(pages)) {
            Some(pages) => bail!("column {}: expected 0 to {MAX_PAGES}, found {pages}", self.name),
            None => Ok(()),
        }
    }
}

impl Kind {
    fn about(self) -> &'static str {
        match self {
            Self::Text => "texts",
            Self::Texts => "lists of texts",
            Self::Number | Self::Pages => "whole numbers",
            Self::Time => "times",
            Self::Flag => "true or false",
        }
    }

    /// An empty column of this kind.
    pub(crate) fn empty(self) -> Values {
        match self {
            Self::Text => Values::Text(Vec::new()),
            Self::Texts => Values::Texts(Vec::new()),
            Self::Number | Self::Pages => Values::Long(Vec::new()),
            Self::Time => Values::Time(Vec::new()),
            Self::Flag => Values::Bool(Vec::new()),
        }
    }
}

fn about(found: &Values) -> &'static str {
    match found {
        Values::Text(_) => "texts",
        Values::Int(_) => "whole numbers of 32 bits",
        Values::Long(_) => "whole numbers of 64 bits",
        Values::Time(_) => "times",
        Values::Bool(_) => "true or false",
        Values::Double(_) => "floating-point numbers",
        Values::Texts(_) => "lists of texts",
    }
}
