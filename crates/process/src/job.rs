use pagehaul_run::Progress;

use crate::filter::Kinds;
use crate::options::Options;
use crate::units::Pid;

/// The core to be written.
pub(crate) struct Job<'a> {
    pub(crate) pid: Pid,
    pub(crate) kinds: Kinds,
    pub(crate) options: &'a Options,
    pub(crate) progress: &'a Progress,
}
