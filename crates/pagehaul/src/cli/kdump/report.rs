//! `pagehaul kdump report`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::bail;
use clap::Args;
use pagehaul_kdump_setup::{Facts, Root, Target, pstore};
use pagehaul_kernel::Kernel;
use pagehaul_physmem::{MapPolicy, OpenError};
use pagehaul_present::number::bytes;
use pagehaul_present::time::{seconds, utc};
use pagehaul_vmcore::Source;
use serde::Serialize;

use super::test::Test;
use crate::cli::options::{Json, RootDirectory};
use crate::exit;
use crate::sandbox::{self, Sandbox};

/// Say whether the last crash was dumped, and how long each phase took
///
/// Finds the newest dump in the configured directory, checks that it is complete, and compares its size and time with what
/// `kdump test` planned. Times are those of the files, so whole seconds at best. Names the records of a kernel log in pstore, which may
/// be all that is left of a crash without a dump. An encrypted dump is read if the environment variable PAGEHAUL_IDENTITY names the file
/// of a secret key.
///
/// Exit status: 0, the dump is complete; 1, there is none; 2, the command line is wrong; 3, it is incomplete; 4, it is encrypted, and
/// whether it is complete is not known.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul kdump report
  pagehaul kdump report --json")]
pub(crate) struct ReportArguments {
    #[command(flatten)]
    root: RootDirectory,
    #[command(flatten)]
    json: Json,
}

/// What became of a crash. Times are seconds since 1970.
#[derive(Debug, Serialize)]
struct Report {
    dump: PathBuf,
    /// Unknown of an encrypted dump without its key.
    complete: Option<bool>,
    encrypted: bool,
    /// Why no page of it can be read.
    unreadable: Option<String>,
    release: Option<String>,
    dump_bytes: u64,
    crashed: Option<u64>,
    capture_began: Option<u64>,
    capture_ended: Option<u64>,
    booted: Option<u64>,
    planned: Option<Test>,
    pstore: Vec<PathBuf>,
    /// When the newest of these was written.
    pstore_written: Option<u64>,
    /// The command that reads them.
    #[serde(skip)]
    read_pstore: String,
}

pub(super) fn run(arguments: &ReportArguments) -> anyhow::Result<ExitCode> {
    let root = arguments.root.open()?;
    let facts = Facts::read(&root);
    let (mut records, written) = pstore::records(&root, pagehaul_facts::is_pstore);
    let read_pstore = read_records(&root, &records);
    let mut kept = match records.is_empty() {
        true => String::new(),
        false => format!("; pstore has the end of a kernel's log, written {}: `{read_pstore}`", utc(written)),
    };
    let Some(config) = &facts.config else { bail!("no kdump of a distribution is installed{kept}") };
    let Target::Directory(directory) = &config.target else {
        bail!("dumps do not go to a local directory; look at the target: `pagehaul info DUMP`{kept}");
    };
    let planned = Test::last(&root)?;
    let since = planned.as_ref().map_or(0, |test| test.time);
    if written < since {
        records.clear();
        kept.clear();
    }
    let Some((dump, ended)) = newest(&root, directory, since) else {
        let after = if since > 0 { format!(" since `kdump test` at {}", utc(since)) } else { String::new() };
        bail!("no dump in {}{after}; the console's log shows why{kept}", directory.display());
    };
    let booted = root.read("/proc/stat").unwrap_or_default();
    let booted = String::from_utf8_lossy(&booted);
    let booted = booted.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok());
    let meta = fs::metadata(&dump).ok();
    let began = created(&dump);
    // Nothing of it can be read, with or without a key.
    let is_cut = pagehaul_encryption::ends_in_header(&dump);
    let is_encrypted = pagehaul_encryption::is_encrypted(&dump);
    let mut is_refused = false;
    if !is_cut && let Err(error) = pagehaul_encryption::hold(None, std::slice::from_ref(&dump)) {
        if !is_encrypted {
            return Err(error.into());
        }
        // With another's key it is as good as without one.
        tell!("pagehaul: {:#}", anyhow::Error::from(error));
        is_refused = true;
    }
    let is_locked = is_refused || pagehaul_encryption::is_locked(&dump);
    // The dump is untrusted: from here on only it is read.
    sandbox::enter(Sandbox::reading(std::slice::from_ref(&dump)))?;
    let opened = (!is_locked).then(|| Source::open(&dump, MapPolicy::default())).transpose();
    let (source, unreadable) = match opened {
        Ok(_) if is_cut => (None, Some("it ends in the header of an encrypted file".to_owned())),
        Ok(source) => (source, None),
        Err(error) => (None, Some(unreadable(&dump, error)?)),
    };
    let kernel = source.as_ref().and_then(|source| Kernel::discover(source.memory()).ok());
    let crashed = kernel.as_ref().and_then(|kernel| kernel.space().crash_time());
    let after = crashed.or_else(|| planned.as_ref().map(|test| test.time));
    let report = Report {
        complete: match &source {
            Some(source) => Some(!source.lacks_pages()),
            None if unreadable.is_some() => Some(false),
            // Debian's scripts rename it once it is written.
            None => is_named_incomplete(&dump).then_some(false),
        },
        encrypted: is_encrypted,
        unreadable,
        release: kernel.as_ref().map(|kernel| kernel.space().release().to_owned()),
        dump_bytes: meta.map_or(0, |meta| meta.len()),
        // A file that was copied here has the time of that.
        capture_began: began.filter(|began| after.is_some_and(|after| after <= *began) && *began <= ended),
        capture_ended: Some(ended),
        // The time of a later boot, if the machine has booted again since.
        booted: booted.filter(|booted| *booted >= ended),
        crashed,
        planned,
        dump,
        pstore_written: (!records.is_empty()).then_some(written),
        pstore: records.iter().map(|path| root.path(path)).collect(),
        read_pstore,
    };
    arguments.json.print(&report, text)?;
    Ok(match report.complete {
        Some(true) => ExitCode::SUCCESS,
        Some(false) => ExitCode::from(exit::INCOMPLETE),
        None => ExitCode::from(exit::ENCRYPTED),
    })
}

/// The command that reads records of pstore.
fn read_records(root: &Root, records: &[PathBuf]) -> String {
    let directory = records.first().and_then(|path| path.parent()).unwrap_or(Path::new("/"));
    let is_dmesg = |name: &OsString| name.as_encoded_bytes().starts_with(b"dmesg-");
    // The pattern may be that of other files and directories, too.
    let names = root.names(directory).into_iter().filter(is_dmesg).count();
    let is_in_one = records.iter().all(|path| path.parent() == Some(directory));
    let words: Vec<String> = match records {
        [_, _, ..] if names == records.len() && is_in_one => {
            vec![format!("{}/dmesg-*", word(&root.path(directory)))]
        }
        _ => records.iter().map(|path| word(&root.path(path))).collect(),
    };
    format!("pagehaul triage {}", words.join(" "))
}

/// Whether the scripts of Debian or Fedora had not yet given a dump its name.
fn is_named_incomplete(dump: &Path) -> bool {
    let names: [&[u8]; 2] = [b"dump-incomplete", b"vmcore-incomplete"];
    dump.file_name().is_some_and(|name| names.iter().any(|begin| name.as_encoded_bytes().starts_with(begin)))
}

/// Why no page of an incomplete dump can be read. Fails with the error if the dump may be complete.
fn unreadable(dump: &Path, error: OpenError) -> Result<String, OpenError> {
    let is_empty = fs::metadata(dump).is_ok_and(|meta| meta.len() == 0);
    match error {
        _ if is_empty => Ok("it is empty".into()),
        OpenError::Format { what, .. } if is_named_incomplete(dump) => {
            Ok(format!("it ends in its headers, and has no page that can be read ({what})"))
        }
        OpenError::Format { what, .. } => Ok(format!("no page of it can be read ({what})")),
        error => Err(error),
    }
}

/// The word of a shell that names a file.
fn word(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    if path.chars().all(is_plain) { path } else { format!("'{}'", path.replace('\'', "'\\''")) }
}

/// The newest dump in a directory or one below it, with the time of its last change, as the distributions' scripts name dumps.
fn newest(root: &Root, directory: &Path, since: u64) -> Option<(PathBuf, u64)> {
    let paths = |directory: &Path| {
        let names = root.names(directory).into_iter();
        names.map(|name| directory.join(name)).collect::<Vec<_>>()
    };
    let below = paths(directory).into_iter().flat_map(|path| paths(&path));
    let dumps = paths(directory).into_iter().chain(below).filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let is_log = name.starts_with("vmcore-dmesg");
        ["dump.", "dump-", "vmcore"].iter().any(|prefix| name.starts_with(prefix)) && !is_log
    });
    let dated = dumps.filter_map(|path| {
        let modified = root.file(&path).and_then(|file| file.metadata()?.modified()).ok();
        // The path without links does not lead out of the root.
        Some((root.path(root.canonical(&path)?), unix(modified?)?))
    });
    dated.filter(|(_, time)| *time >= since).max_by_key(|(_, time)| *time)
}

/// When a file was created, if its file system knows. The standard library asks only where it is built for glibc.
fn created(path: &Path) -> Option<u64> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::BTIME).ok()?;
    let known = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
    u64::try_from(found.stx_btime.tv_sec).ok().filter(|_| known)
}

fn unix(time: SystemTime) -> Option<u64> {
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}

fn text(report: &Report) -> String {
    let complete = match report.complete {
        Some(true) => "complete",
        Some(false) => "INCOMPLETE",
        None => "encrypted, so that only a holder of a secret key can say whether it is complete",
    };
    let mut out = format!("{}: {complete}, {}\n", report.dump.display(), bytes(report.dump_bytes));
    if let Some(why) = &report.unreadable {
        out += &format!("{why}\n");
    }
    if let (Some(release), Some(crashed)) = (&report.release, report.crashed) {
        out += &format!("Linux {release} crashed {}\n", utc(crashed));
    }
    let between = |from: Option<u64>, to: Option<u64>| Some(to?.checked_sub(from?)? as f64);
    for (phase, time) in [
        ("crash to first byte of the dump", between(report.crashed, report.capture_began)),
        ("capture", between(report.capture_began, report.capture_ended)),
        ("reboot", between(report.capture_ended, report.booted)),
        ("crash to boot", between(report.crashed, report.booted)),
    ] {
        if let Some(time) = time {
            out += &format!("{phase}: {}\n", seconds(time));
        }
    }
    if let Some(written) = report.pstore_written {
        let (written, read) = (utc(written), &report.read_pstore);
        out += &format!("pstore has the end of a kernel's log, too, written {written}: `{read}`\n");
    }
    if let Some(test) = &report.planned {
        let ratio = report.dump_bytes as f64 / test.dump_bytes.max(1) as f64;
        out += &format!(
            "planned: {} at level {} in {}; the dump has {ratio:.2} times that size\n",
            bytes(test.dump_bytes),
            test.level,
            seconds(test.seconds)
        );
    }
    out
}
