//! `pagehaul info`.
use crate::args::InfoArguments;
use std::process::ExitCode;
pub(crate) fn run(_: &InfoArguments) -> anyhow::Result<ExitCode> {
    anyhow::bail!("not yet")
}
