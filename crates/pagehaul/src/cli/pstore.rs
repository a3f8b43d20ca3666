//! Records of a kernel log in pstore, in place of a dump.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use pagehaul_facts::{Facts, PstoreError, PstoreFile, PstoreRecords, Remark, is_pstore};
use pagehaul_physmem::file::is_url;
use pagehaul_render::pstore::About;
use pagehaul_vmcore::open_file;

use crate::exit;

/// Bytes of a file that are read. Records have 1 KiB (EFI) to a few MiB.
const MAX_FILE: u64 = 16 << 20;

/// Files that are named where all are meant.
const NAMED: usize = 10;

/// How far the clock of the machine that wrote a record may be ahead of this one's.
const AHEAD: Duration = Duration::from_secs(24 * 3600);

/// Whether a record has the name that the kernel gives to those that it could not decompress.
pub(crate) fn is_not_decompressed(path: &Path) -> bool {
    path.as_os_str().as_encoded_bytes().ends_with(b".enc.z")
}

/// Records that were read.
pub(crate) struct Records {
    pub(crate) facts: Facts,
    /// What they are, and what of them is missing.
    pub(crate) about: About,
}

/// Reads the facts in records of pstore. `None` if no file is a record, or if a large file that is none comes first. Remarks have the names
/// of files only if they are `named`, and numbers otherwise.
pub(crate) fn read(paths: &[PathBuf], named: bool) -> anyhow::Result<Option<Records>> {
    // A request to a server for each dump would be in vain.
    if paths.iter().any(|path| is_url(path)) {
        return Ok(None);
    }
    let (mut files, mut has_record) = (Vec::new(), false);
    let latest = SystemTime::now().checked_add(AHEAD);
    let mut in_future = Vec::new();
    for (number, path) in paths.iter().enumerate() {
        let file = open_file(path)?;
        let context = || format!("cannot read {}", file.path().display());
        let mut start = [0; 64];
        let count = file.read_at(0, &mut start).with_context(context)?;
        let compressed = is_not_decompressed(path);
        let is_record = is_pstore(start.get(..count).unwrap_or_default());
        // A smaller file can be a record that is cut.
        if !compressed && !is_record && file.size() > start.len() as u64 {
            if !has_record {
                return Ok(None);
            }
            bail!(
                "{} is not a record of pstore, but files before it are: name only the records of one crash",
                path.display()
            );
        }
        has_record |= compressed || is_record;
        let mut bytes = vec![0; file.size().min(MAX_FILE) as usize];
        file.read_exact_at(0, &mut bytes).with_context(context)?;
        let mut written = path.metadata().and_then(|found| found.modified()).ok();
        if written > latest {
            in_future.push(number);
            written = None;
        }
        let written = written.and_then(|time| Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs()));
        files.push(PstoreFile { bytes, written });
    }
    if !has_record {
        return Ok(None);
    }
    let path_of = |file: usize| paths.get(file).map(|path| path.display().to_string()).unwrap_or_default();
    let in_future = (!in_future.is_empty()).then(|| {
        let what = "written in the future, by this machine's clock: their times are not used".to_owned();
        Remark { files: in_future, what, other: None }
    });
    let records = Facts::from_pstore(&files, concat!("pagehaul ", env!("CARGO_PKG_VERSION")).to_owned());
    let PstoreRecords { facts, of_all, files, unknown, faults, mut left_out } = records.map_err(|error| {
        let named = match &error {
            PstoreError::Twice { files: [one, other], .. } if one != other => {
                format!("{} and {}", path_of(*one), path_of(*other))
            }
            PstoreError::Twice { files: [one, _], .. } => path_of(*one),
            _ => names_of(paths),
        };
        if let Some(remark) = &in_future {
            tell!("pagehaul: {}", remark.sentence(path_of));
        }
        anyhow::Error::from(error).context(named)
    })?;
    left_out.extend(in_future);
    let name = |file: usize| match paths.get(file) {
        Some(path) if named => path.display().to_string(),
        _ => format!("file {}", file + 1),
    };
    let sentences = |remarks: &[Remark]| remarks.iter().map(|remark| remark.sentence(name)).collect();
    let about = About {
        name: files.first().map(|file| name(*file)).unwrap_or_default(),
        others: files.len().saturating_sub(1),
        unknown,
        incomplete: sentences(&faults),
        left_out: sentences(&left_out),
        of_all,
    };
    Ok(Some(Records { facts, about }))
}

/// Names files, but not all of many.
fn names_of(paths: &[PathBuf]) -> String {
    let mut names: Vec<String> = paths.iter().take(NAMED).map(|path| path.display().to_string()).collect();
    if let more @ 1.. = paths.len().saturating_sub(NAMED) {
        names.push(format!("{more} more"));
    }
    names.join(", ")
}

impl Records {
    /// Says on standard error what is missing of them, where the output does not, or not in these words.
    pub(crate) fn tell(&self) {
        for fault in &self.about.incomplete {
            tell!("pagehaul: the records are incomplete: {fault}");
        }
        self.about.left_out.iter().for_each(|why| tell!("pagehaul: {why}"));
    }

    pub(crate) fn status(&self) -> ExitCode {
        match self.about.incomplete.is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(exit::INCOMPLETE),
        }
    }
}
