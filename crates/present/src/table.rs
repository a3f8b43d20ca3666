use std::fmt;

use comfy_table::{CellAlignment, presets};

use crate::printable;

/// How a cell is to be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tone {
    /// Nothing special.
    #[default]
    Plain,
    /// Less important than the rest of its row: a note, a value that does not exist.
    Soft,
    /// What the user hopes for.
    Good,
    /// What the user should look into.
    Bad,
}

/// A cell of a [`Table`]. Text output has only the text of it.
#[derive(Debug, Clone, Default)]
pub struct Cell {
    pub text: String,
    /// How it is to be read.
    pub tone: Tone,
    /// Shown by web pages while the pointer is on the cell.
    pub title: Option<String>,
    /// CSS colour of a square that web pages show before the text.
    pub swatch: Option<&'static str>,
    /// CSS colour that web pages show behind the text.
    pub background: Option<String>,
    /// Place on the same web page that the text leads to: the `id` of an element.
    pub place: Option<String>,
}

impl Cell {
    /// Creates a cell with a tone.
    pub fn new(text: impl Into<String>, tone: Tone) -> Self {
        Self { text: text.into(), tone, ..Self::default() }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::new(text, Tone::Plain)
    }
}

/// A table without rules, as text or for a web page. The first column holds text and the others numbers, aligned right,
/// unless [`Table::left`] says otherwise.
#[derive(Debug, Clone)]
pub struct Table {
    /// The first row; may be empty.
    pub header: Vec<Cell>,
    /// The other rows.
    pub rows: Vec<Vec<Cell>>,
    left: Vec<usize>,
}

impl Table {
    /// Creates a table. An empty header is omitted.
    pub fn new<C: Into<Cell>>(header: impl IntoIterator<Item = C>) -> Self {
        Self { header: header.into_iter().map(Into::into).collect(), rows: Vec::new(), left: vec![0] }
    }

    /// Aligns these columns left, and all others right.
    #[must_use]
    pub fn left(mut self, columns: impl IntoIterator<Item = usize>) -> Self {
        self.left = columns.into_iter().collect();
        self
    }

    /// Appends a row.
    pub fn row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Appends rows.
    pub fn rows<C: Into<Cell>, R: IntoIterator<Item = C>>(&mut self, rows: impl IntoIterator<Item = R>) {
        rows.into_iter().for_each(|row| self.row(row));
    }

    /// Returns whether the cells of a column are aligned left.
    pub(crate) fn is_left(&self, column: usize) -> bool {
        self.left.contains(&column)
    }
}

/// Writes one line for each row, without trailing spaces. Cells are made [`printable`].
impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts =
            |cells: &[Cell]| cells.iter().map(|cell| printable(&cell.text).into_owned()).collect::<Vec<_>>();
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        if !self.header.is_empty() {
            table.set_header(texts(&self.header));
        }
        table.add_rows(self.rows.iter().map(|row| texts(row)));
        for (at, column) in table.column_iter_mut().enumerate() {
            if !self.is_left(at) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        if self.header.is_empty() && self.rows.is_empty() {
            return Ok(());
        }
        table.lines().try_for_each(|line| writeln!(out, "{}", line.trim_end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_aligned_right() {
        let mut table = Table::new(["class", "pages", ""]).left([0, 2]);
        table.rows([["slab", "7", "kept"], ["cache", "12,530", ""]]);
        assert_eq!(table.to_string(), " class   pages\n slab        7  kept\n cache  12,530\n");
        assert_eq!(Table::new([""; 0]).to_string(), "");
    }
}
