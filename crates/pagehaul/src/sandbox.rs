//! The sandbox of commands that parse files from elsewhere.

use std::sync::OnceLock;

use pagehaul_sandbox::Gap;
pub(crate) use pagehaul_sandbox::Sandbox;

static GAPS: OnceLock<Vec<Gap>> = OnceLock::new();

/// Confines this process, for good. Must precede its first thread.
pub(crate) fn enter(sandbox: Sandbox) -> anyhow::Result<()> {
    let gaps = sandbox.enter()?;
    GAPS.get_or_init(|| gaps);
    Ok(())
}

/// Prints what the kernel could not enforce, for --verbose.
pub(crate) fn tell_gaps() {
    for gap in GAPS.get().into_iter().flatten() {
        tell!("pagehaul: sandbox: {gap}");
    }
}
