use serde::Serialize;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The next crash is likely not dumped.
    Problem,
    /// The dump is made, but later, larger or less surely than it could be.
    Warning,
}

/// What is wrong with a set-up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A stable name for scripts.
    pub id: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What was found.
    pub what: String,
    /// What it leads to.
    pub why: &'static str,
    /// The command or change that fixes it.
    pub fix: String,
}

impl Finding {
    pub(crate) fn problem(
        id: &'static str,
        what: impl Into<String>,
        why: &'static str,
        fix: impl Into<String>,
    ) -> Self {
        Self { id, severity: Severity::Problem, what: what.into(), why, fix: fix.into() }
    }

    pub(crate) fn warning(
        id: &'static str,
        what: impl Into<String>,
        why: &'static str,
        fix: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, ..Self::problem(id, what, why, fix) }
    }
}
