use serde::Serialize;

use crate::link::Link;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The next crash is likely not dumped.
    Problem,
    /// The dump is made, but later, larger or less surely than it could be.
    Warning,
    /// Nothing is wrong; something may be better.
    Advice,
}

/// What is wrong with a set-up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// A stable name for scripts.
    pub id: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What it is about.
    pub link: Link,
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
        // Where it belongs is known to the examination.
        let (severity, link) = (Severity::Problem, Link::Firmware);
        Self { id, severity, link, what: what.into(), why, fix: fix.into() }
    }

    pub(crate) fn warning(
        id: &'static str,
        what: impl Into<String>,
        why: &'static str,
        fix: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, ..Self::problem(id, what, why, fix) }
    }

    pub(crate) fn advice(
        id: &'static str,
        what: impl Into<String>,
        why: &'static str,
        fix: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Advice, ..Self::problem(id, what, why, fix) }
    }
}
