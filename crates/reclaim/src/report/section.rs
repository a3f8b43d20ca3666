use serde::Serialize;

/// Rows under a heading.
#[derive(Debug, Clone, Serialize)]
pub struct Section {
    /// The heading.
    pub title: &'static str,
    /// The rows.
    pub rows: Vec<Row>,
}

/// A figure of every run.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: Unit,
    /// Which way it should go.
    pub better: Better,
    /// Values by run; one if no command was recorded, none if the figure is unavailable.
    pub values: Vec<f64>,
    /// Why the figure is unavailable, or where else it comes from.
    pub note: Option<String>,
}

impl Row {
    /// Returns the mean over runs; none if the figure is unavailable.
    pub fn mean(&self) -> Option<f64> {
        (!self.values.is_empty()).then(|| self.values.iter().sum::<f64>() / self.values.len() as f64)
    }
}

/// The unit of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Events.
    Count,
    /// Pages of the machine.
    Pages,
    /// Milliseconds.
    Ms,
    /// Seconds.
    Seconds,
    /// Percent.
    Percent,
    /// Pages per second.
    PagesPerSecond,
}

/// Which way a figure should go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Less is better.
    Lower,
    /// More is better.
    Higher,
    /// Neither is better by itself.
    Neither,
}
