use std::error::Error;
use std::sync::mpsc::Receiver;

use pagehaul_run::Progress;

/// What the program that is called as makedumpfile does for it.
pub trait Host {
    /// Writes text to standard output, with characters that would control a terminal escaped.
    fn print(&self, text: &[u8]) -> Result<(), HostError>;

    /// Runs `work`, which signals cancel. `show` shows its progress on another thread until its receiver is disconnected.
    fn run(
        &self,
        show: &(dyn Fn(&Progress, &Receiver<()>) + Sync),
        work: &mut dyn FnMut(&Progress),
    ) -> Result<(), HostError>;
}

/// Why the program could not do it.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The reader of standard output closed it.
    #[error("standard output was closed")]
    Closed,
    /// Anything else.
    #[error(transparent)]
    Failed(Box<dyn Error + Send + Sync>),
}
