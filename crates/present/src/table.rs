use std::fmt;

use comfy_table::{CellAlignment, presets};

/// A cell of a [`Table`].
#[derive(Debug, Clone, Default)]
pub struct Cell {
    text: String,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into() }
    }
}

/// A table without rules. The first column holds text and the others numbers, aligned right,
/// unless [`Table::left`] says otherwise.
#[derive(Debug, Clone)]
pub struct Table {
    header: Vec<Cell>,
    rows: Vec<Vec<Cell>>,
    left: Vec<usize>,
}

impl Table {
    /// Creates a table. An empty header is left out.
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
}

/// Writes one line for each row, without trailing spaces.
impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = |cells: &[Cell]| cells.iter().map(|cell| cell.text.clone()).collect::<Vec<_>>();
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING);
        if !self.header.is_empty() {
            table.set_header(texts(&self.header));
        }
        table.add_rows(self.rows.iter().map(|row| texts(row)));
        for (at, column) in table.column_iter_mut().enumerate() {
            if !self.left.contains(&at) {
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
