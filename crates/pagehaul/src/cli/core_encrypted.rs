//! Encrypted cores.

use std::path::Path;

use pagehaul_encryption::Recipients;
use pagehaul_process::{CoreReport, Options, Pid, Target, core};
use pagehaul_run::{Outcome, Progress};
use pagehaul_upload::{Uploading, encrypted};

/// Writes an encrypted core. An incomplete one lacks the last chunk of the age format, so that decrypting it fails at its end.
pub(crate) fn write(
    pid: Pid,
    output: &Path,
    overwrite: bool,
    options: &Options,
    recipients: &Recipients,
    progress: &Progress,
) -> anyhow::Result<CoreReport> {
    if output == Path::new("-") {
        let (file, name) = encrypted::stdout()?;
        return send(pid, name, options, Uploading::encrypt(file, name, recipients)?, progress);
    }
    let mut file = encrypted::new_file(output, overwrite, &[])?;
    let encrypting = Uploading::encrypt(file.file().clone(), output, recipients);
    let sent = encrypting
        .map_err(anyhow::Error::from)
        .and_then(|encrypting| send(pid, output, options, encrypting, progress));
    let mut report = sent.inspect_err(|_| file.discard())?;
    if report.outcome.is_success() {
        file.commit()?
    } else {
        file.keep()?
    }
    report.output = file.path().display().to_string();
    report.output_bytes = file.file().metadata().map_or(report.output_bytes, |metadata| metadata.len());
    Ok(report)
}

fn send(
    pid: Pid,
    name: &Path,
    options: &Options,
    encrypting: Uploading,
    progress: &Progress,
) -> anyhow::Result<CoreReport> {
    let target = Target::Pipe { name: name.to_owned(), pipe: encrypting.pipe() };
    let written = core(pid, &target, options, progress);
    // The pipe ends with its last copy.
    drop(target);
    let is_whole = written.as_ref().is_ok_and(|report| report.outcome.is_success());
    let sent = encrypting.finish(is_whole);
    // What could not be written is why the pipe is broken.
    match (written, sent) {
        (written, Ok(_)) => Ok(written?),
        (Ok(report), Err(why)) => Ok(CoreReport { outcome: Outcome::WriteFailed(why.to_string()), ..report }),
        (Err(_), Err(why)) => Err(why.into()),
    }
}
