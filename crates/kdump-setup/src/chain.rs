//! What the capture kernel needs for a dump, link by link.

use serde::Serialize;

use crate::finding::{Finding, Severity};
use crate::link::Link;

/// What is known of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Everything that is checked of it holds.
    Proved,
    /// A problem was found.
    Broken,
    /// Something of it could not be checked, and nothing is known to be wrong.
    NotChecked,
}

/// A link with what proves it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Proof {
    pub link: Link,
    /// What is known of it.
    pub state: State,
    /// What was seen, and where.
    pub evidence: Vec<String>,
    /// What could not be checked, and why.
    pub not_checked: Vec<String>,
}

/// All links, and what is wrong with them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Chain {
    /// The links in their order.
    pub proofs: Vec<Proof>,
    /// Problems come first.
    pub findings: Vec<Finding>,
}

/// A chain that is being examined.
pub(crate) struct Examination {
    at: Link,
    chain: Chain,
}

impl Examination {
    pub(crate) fn new() -> Self {
        let proof =
            |link| Proof { link, state: State::NotChecked, evidence: Vec::new(), not_checked: Vec::new() };
        Self {
            at: Link::Firmware,
            chain: Chain { proofs: Link::ALL.map(proof).into(), findings: Vec::new() },
        }
    }

    /// What follows is about this link.
    pub(crate) fn link(&mut self, link: Link) -> &mut Self {
        self.at = link;
        self
    }

    pub(crate) fn push(&mut self, finding: Finding) {
        self.chain.findings.push(Finding { link: self.at, ..finding });
    }

    pub(crate) fn saw(&mut self, evidence: impl Into<String>) {
        let evidence = evidence.into();
        if let Some(proof) = self.proof() {
            proof.evidence.push(evidence);
        }
    }

    pub(crate) fn not_checked(&mut self, what: impl Into<String>) {
        let what = what.into();
        if let Some(proof) = self.proof() {
            proof.not_checked.push(what);
        }
    }

    fn proof(&mut self) -> Option<&mut Proof> {
        let at = self.at;
        self.chain.proofs.iter_mut().find(|proof| proof.link == at)
    }

    pub(crate) fn chain(mut self) -> Chain {
        self.chain.findings.sort_by_key(|finding| (finding.severity, finding.link));
        for proof in &mut self.chain.proofs {
            let of = |finding: &&Finding| finding.link == proof.link && finding.severity == Severity::Problem;
            if proof.evidence.is_empty() && proof.not_checked.is_empty() {
                proof.not_checked.push("nothing of it is readable here".into());
            }
            proof.state = match () {
                () if self.chain.findings.iter().any(|finding| of(&finding)) => State::Broken,
                () if !proof.not_checked.is_empty() => State::NotChecked,
                () => State::Proved,
            };
        }
        self.chain
    }
}
