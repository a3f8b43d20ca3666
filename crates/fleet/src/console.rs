//! What commands print.

use std::io::Write;

/// Writes a line to standard error. Ignores a failure to write: the exit status still tells the result.
pub(crate) fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", pagehaul_present::printable(line));
}

/// Writes to standard output. Ignores a closed pipe, as `head` leaves it.
pub(crate) fn say(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
