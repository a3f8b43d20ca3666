use serde::Serialize;

/// A table of figures.
#[derive(Debug, Clone, Serialize)]
pub struct Table {
    /// Its heading.
    pub title: &'static str,
    /// What it shows, in a sentence or two.
    pub about: &'static str,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Rows of as many cells.
    pub rows: Vec<Vec<Datum>>,
    /// Further rows, which are not shown.
    pub omitted_rows: usize,
}

/// A column.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Column {
    /// Its heading, with the unit.
    pub name: &'static str,
    /// Whether its cells are numbers.
    pub number: bool,
}

/// A cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Datum {
    /// Words.
    Text(String),
    /// A whole number.
    Count(u64),
    /// A number with a fraction.
    Number(f64),
    /// Unknown, or not applicable.
    None,
}

impl From<String> for Datum {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Datum {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for Datum {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for Datum {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl<T: Into<Self>> From<Option<T>> for Datum {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

/// The rows of tables that could have thousands.
const MAX_ROWS: usize = 15;

impl Table {
    /// Creates a table. `columns` are separated by commas; names of columns that end in `:` hold words.
    pub(super) fn new(title: &'static str, about: &'static str, columns: &'static str) -> Self {
        let column =
            |name: &'static str| Column { name: name.trim_end_matches(':'), number: !name.ends_with(':') };
        Self {
            title,
            about,
            columns: columns.split(", ").map(column).collect(),
            rows: Vec::new(),
            omitted_rows: 0,
        }
    }

    /// Appends a row.
    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = Datum>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Omits rows that are too many to show.
    pub(super) fn truncated(mut self) -> Self {
        self.omitted_rows = self.rows.len().saturating_sub(MAX_ROWS);
        self.rows.truncate(MAX_ROWS);
        self
    }
}

/// Builds an array of [`Datum`] of values that convert to it.
macro_rules! cells {
    ($($value:expr),* $(,)?) => { [$(Datum::from($value)),*] };
}
pub(super) use cells;
