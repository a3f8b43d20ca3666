//! This program called as makedumpfile.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::mpsc::Receiver;

use pagehaul_makedumpfile::{Host, HostError};
use pagehaul_run::Progress;

use crate::{printed, run};

/// Does what makedumpfile's arguments ask for.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    if pagehaul_makedumpfile::run(arguments, &Program) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

struct Program;

impl Host for Program {
    fn print(&self, text: &[u8]) -> Result<(), HostError> {
        printed::out(|out| out.write_all(text)).map_err(|error| match error.is::<printed::Closed>() {
            true => HostError::Closed,
            false => HostError::Failed(error.into()),
        })
    }

    fn run(
        &self,
        show: &(dyn Fn(&Progress, &Receiver<()>) + Sync),
        work: &mut dyn FnMut(&Progress),
    ) -> Result<(), HostError> {
        let ran = run::cancellable_with(show, work);
        ran.map(drop).map_err(|error| HostError::Failed(error.into()))
    }
}
