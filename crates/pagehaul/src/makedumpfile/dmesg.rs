//! --dump-dmesg, and what debug messages say about the vmcore.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use pagehaul_elfcore::notes;
use pagehaul_kernel::{KernelLog, VmcoreInfo};
use pagehaul_physmem::MapPolicy;
use pagehaul_vmcore::Source;

use super::Done;
use super::messages::{COMMON, DEBUG, Messages};
use super::options::Options;
use crate::cli::dmesg::lines;
use crate::printed;

/// Writes the kernel log of `source` to a new file or standard output, as text.
pub(super) fn save(
    options: &Options,
    source: &Path,
    output: Option<&Path>,
    messages: &mut Messages,
) -> anyhow::Result<Done> {
    let source = Source::open(source, MapPolicy::default())?;
    describe(&source, messages);
    let memory = source.memory();
    let log = KernelLog::read(memory).with_context(|| source.path().display().to_string())?;
    if options.partial_dmesg {
        messages.alarm("makedumpfile: --partial-dmesg: the whole log is written");
    }
    let text = lines(&log);
    let name = match output {
        None => {
            printed::out(|out| out.write_all(&text))?;
            "STDOUT".to_owned()
        }
        Some(path) => {
            let name = path.display().to_string();
            let mut open = std::fs::OpenOptions::new();
            open.write(true).mode(0o600);
            let open =
                if options.overwrite { open.create(true).truncate(true) } else { open.create_new(true) };
            let mut file = open.open(path).with_context(|| format!("cannot create {name}"))?;
            file.write_all(&text)
                .and_then(|()| file.sync_all())
                .with_context(|| format!("cannot write to {name}"))?;
            name
        }
    };
    if log.damaged > 0 {
        messages.alarm(&format!("makedumpfile: {} records of the log are damaged and missing", log.damaged));
    }
    messages.say(COMMON, &format!("The dmesg log is saved to {name}."));
    Ok(Done::Complete)
}

/// Lists VMCOREINFO as debug messages. openSUSE's kdump-save reads OSRELEASE and CRASHTIME from them.
pub(super) fn describe(source: &Source, messages: &mut Messages) {
    let Some((_, text)) = notes::vmcoreinfo(source.memory().notes()) else { return };
    for (key, value) in VmcoreInfo::parse(text).iter() {
        messages.say(DEBUG, &format!("  {key}={value}"));
    }
}
