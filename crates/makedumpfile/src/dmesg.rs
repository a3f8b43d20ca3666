//! --dump-dmesg, and what debug messages say about the vmcore.

use std::ffi::c_char;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use pagehaul_elfcore::notes;
use pagehaul_encryption::encrypt;
use pagehaul_kernel::{Caller, KernelLog, Record, VmcoreInfo};
use pagehaul_physmem::MapPolicy;
use pagehaul_sandbox::Sandbox;
use pagehaul_vmcore::Source;

use crate::done::Done;
use crate::error::Error;
use crate::host::Host;
use crate::messages::{COMMON, DEBUG, Messages};
use crate::options::Options;
use crate::recipients;

/// Writes the kernel log of `source` to a new file or standard output, as text.
pub(crate) fn save(
    options: &Options,
    source: &Path,
    output: Option<&Path>,
    host: &dyn Host,
    messages: &mut Messages,
) -> Result<Done, Error> {
    let recipients = recipients::of(source)?;
    Sandbox::reading([&source.to_owned()]).writing(&output.map(Path::to_owned)).enter()?;
    let source = Source::open(source, MapPolicy::default())?;
    describe(&source, messages);
    let memory = source.memory();
    let log = KernelLog::read(memory)
        .map_err(|error| Error::Log { path: source.path().display().to_string(), source: error })?;
    if options.partial_dmesg {
        messages.alarm("makedumpfile: --partial-dmesg: the whole log is written");
    }
    let text: Vec<u8> = log.records.iter().flat_map(line).collect();
    let text = match &recipients {
        Some(recipients) => encrypt(&text, recipients)?,
        None => text,
    };
    let name = match output {
        None => {
            host.print(&text)?;
            "STDOUT".to_owned()
        }
        Some(path) => {
            let name = path.display().to_string();
            let mut open = std::fs::OpenOptions::new();
            open.write(true).mode(0o600);
            // The sandbox refuses O_TRUNC.
            let open =
                if options.overwrite { open.create(true).truncate(false) } else { open.create_new(true) };
            let mut file = open.open(path).map_err(Error::system(format!("cannot create {name}")))?;
            let is_file = file.metadata().is_ok_and(|meta| meta.is_file());
            let emptied = if is_file { file.set_len(0) } else { Ok(()) };
            emptied
                .and_then(|()| file.write_all(&text))
                .and_then(|()| file.sync_all())
                .map_err(Error::system(format!("cannot write to {name}")))?;
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
pub(crate) fn describe(source: &Source, messages: &mut Messages) {
    let Some((_, text)) = notes::vmcoreinfo(source.memory().notes()) else { return };
    for (key, value) in VmcoreInfo::parse(text).iter() {
        messages.say(DEBUG, &format!("  {key}={value}"));
    }
}

/// Formats a record as makedumpfile 1.7.5 and newer: time and caller once, later lines of the text indented by their width.
fn line(record: &Record) -> Vec<u8> {
    let (seconds, micros) = (record.nanoseconds / 1_000_000_000, record.nanoseconds % 1_000_000_000 / 1000);
    let caller = match record.caller {
        Some(Caller::Task(pid)) => format!("[{:>8}] ", format!("T{pid}")),
        Some(Caller::Cpu(number)) => format!("[{:>8}] ", format!("C{number}")),
        None => String::new(),
    };
    let mut line = format!("[{seconds:5}.{micros:06}] {caller}").into_bytes();
    let indentation = line.len();
    for &byte in record.bytes() {
        match byte {
            b'\n' => {
                line.push(b'\n');
                line.resize(line.len() + indentation, b' ');
            }
            b' '..=b'~' | b'\t' | 0x0b | 0x0c | b'\r' => line.push(byte),
            // C's char is signed on some machines: x86_64's makedumpfile writes 0xff as \xffffffff.
            _ => line.extend_from_slice(format!("\\x{:02x}", i32::from(byte as c_char)).as_bytes()),
        }
    }
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_lines_are_indented_by_the_width_of_time_and_caller() {
        let text = |caller, bytes: &[u8]| {
            let record = Record {
                sequence: None,
                nanoseconds: 1_317_168_999,
                level: 4,
                facility: 0,
                caller,
                text: String::from_utf8_lossy(bytes).into_owned(),
                raw: Some(bytes.to_vec()),
                device: None,
            };
            String::from_utf8(line(&record)).unwrap()
        };
        let message = b"Unstable clock detected\nIf you want to keep it:\n  \"trace_clock=local\"";
        let task = "[    1.317168] [      T1] Unstable clock detected
                          If you want to keep it:
                            \"trace_clock=local\"
";
        assert_eq!(text(Some(Caller::Task(1)), message), task);
        let without = "[    1.317168] Unstable clock detected
               If you want to keep it:
                 \"trace_clock=local\"
";
        assert_eq!(text(None, message), without);
        assert_eq!(text(Some(Caller::Cpu(15)), b""), "[    1.317168] [     C15] \n");
        let escaped = match c_char::MIN {
            0 => "[    1.317168] a\t\\x07\\x7f\\xc3\\xa9\n",
            _ => "[    1.317168] a\t\\x07\\x7f\\xffffffc3\\xffffffa9\n",
        };
        assert_eq!(text(None, b"a\t\x07\x7f\xc3\xa9"), escaped);
    }
}
