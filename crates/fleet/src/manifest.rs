//! The manifest: a table with a row for each dump, whatever was made of it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use pagehaul_facts::{Missing, SCHEMA_VERSION};
use pagehaul_physmem::file::{is_url, shown};
use pagehaul_redact::Redaction;
use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::names::MANIFEST;
use crate::read::{TableFile, files};
use crate::table::{Key, Table, Values};
use crate::written::put;

/// Files of the manifest that tell whether it is redacted.
const SAMPLE: usize = 32;
/// This program, in the tables.
pub(crate) const EXTRACTOR: &str = concat!("pagehaul-fleet ", env!("CARGO_PKG_VERSION"));

/// What was made of a dump.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The dump, as it was named; the first part of a split set. In JSON, bytes that are not UTF-8 are escapes.
    #[serde(serialize_with = "escaped")]
    pub(crate) path: PathBuf,
    /// Why there are no tables, or not all: some could not be written, or a server kept them back; null otherwise.
    pub(crate) error: Option<String>,
    /// Whether a server kept back what a stage reads. Only rows of stages say it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) refused: bool,
    /// Whether the dump is damaged where a stage read it. Only rows of stages say it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) damaged: bool,
    /// Whether a stage left tables of an equal dump as they are until the others have read this one. Only rows of stages say it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) deferred: bool,
    /// Identifies the crash.
    pub(crate) crash_id: Option<String>,
    /// Identifies the recording.
    pub(crate) run_id: Option<String>,
    /// Name of the host, as its tables have it.
    pub(crate) host: Option<String>,
    /// Seconds since 1970 of the crash, or of the start of the recording.
    pub(crate) time: Option<u64>,
    /// Bytes of the files.
    pub(crate) size_bytes: Option<u64>,
    /// Whether the dump has all its pages; null if that cannot be known.
    pub(crate) complete: Option<bool>,
    /// Names and numbers of rows of its tables.
    pub(crate) tables: Vec<(String, usize)>,
    /// What is absent, and why.
    pub(crate) missing: Vec<Missing>,
    /// Whether `error` is that a table could not be written, which says nothing about the dump.
    #[serde(skip)]
    pub(crate) is_unwritten: bool,
    /// What is lost of a dump that is damaged or incomplete, and has tables.
    #[serde(skip)]
    pub(crate) lost: Vec<String>,
}

impl Row {
    /// Returns the row of a dump without tables.
    pub(crate) fn new(path: &Path, error: Option<String>) -> Self {
        Self {
            path: shown(path),
            error,
            refused: false,
            damaged: false,
            deferred: false,
            crash_id: None,
            run_id: None,
            host: None,
            time: None,
            size_bytes: None,
            complete: None,
            tables: Vec::new(),
            missing: Vec::new(),
            is_unwritten: false,
            lost: Vec::new(),
        }
    }

    /// Notes why tables are absent.
    pub(crate) fn lacks(&mut self, tables: &[&str], reason: &str) {
        self.missing.extend(
            tables.iter().map(|what| Missing { what: (*what).to_owned(), reason: reason.to_owned() }),
        );
    }
}

impl Row {
    /// Adds what a stage lacks. Each says what is wrong with the whole dump.
    pub(crate) fn add_missing(&mut self, mut missing: Vec<Missing>) {
        missing.retain(|missing| !self.missing.contains(missing));
        self.missing.append(&mut missing);
    }
}

fn escaped<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&text(path))
}

/// Returns a path as text. Bytes that are not UTF-8 become escapes such as `\xff`, so that names that differ in them differ.
pub(crate) fn text(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_encoded_bytes().utf8_chunks() {
        text += chunk.valid();
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Writes the row of a dump, the file or the parts of a split set. The file has a name made of the dump's path: the next try replaces it.
///
/// # Errors
/// Fails if the file cannot be written.
pub(crate) fn record(
    to: &Path,
    dump: &[PathBuf],
    row: &Row,
    redaction: Option<&Redaction>,
) -> anyhow::Result<()> {
    let mut places: Vec<String> = dump.iter().map(|path| text(&place(path))).collect();
    let mut row = row.clone();
    if let Some(redaction) = redaction {
        let names = spellings(to, dump, &places);
        let hide = |text: &str| redaction.places(text, &names);
        row.error = row.error.map(|error| hide(&error));
        row.missing.iter_mut().for_each(|missing| missing.reason = hide(&missing.reason));
        places.iter_mut().for_each(|place| *place = redaction.name("path", place));
    }
    let table = table(&places, &row, SystemTime::now());
    let id = dump_id(&places);
    put(&to.join(MANIFEST).join(format!("v={SCHEMA_VERSION}")).join(format!("{id}.parquet")), |out| {
        Ok(table.write(out)?)
    })
}

/// The URL or the absolute path of a file.
fn place(path: &Path) -> PathBuf {
    match is_url(path) {
        true => shown(path),
        false => std::path::absolute(path).unwrap_or_else(|_| path.to_owned()),
    }
}

/// How sentences call the files: as they were named, whole, or by the server.
fn spellings(to: &Path, dump: &[PathBuf], places: &[String]) -> Vec<String> {
    // Sentences of the system have bytes that are not UTF-8 replaced.
    let named = dump.iter().flat_map(|path| [shown(path), place(path)]);
    let named = named.flat_map(|path| [text(&path), path.to_string_lossy().into_owned()]);
    let servers = places.iter().filter_map(|place| {
        let server = place.split_once("://")?.1.split('/').next()?;
        Some(server.rsplit_once(':').map_or(server, |(name, _)| name).to_owned())
    });
    let to = [to.display().to_string(), place(to).display().to_string()];
    let mut names: Vec<String> = named.chain(places.iter().cloned()).chain(servers).chain(to).collect();
    // Longer ones first: one may hold another.
    names.sort_by_key(|name| std::cmp::Reverse(name.len()));
    names
}

/// Whether tables were made without redaction, by the paths in some files of the manifest: thousands are not read.
pub(crate) fn is_clear(to: &Path) -> bool {
    let files = files(to, MANIFEST).unwrap_or_default();
    files.iter().rev().take(SAMPLE).any(|path| {
        let Ok(file) = TableFile::open(path, MANIFEST) else { return false };
        (0..file.groups()).filter_map(|group| file.read(group, ["path"]).ok()).any(|[paths]| {
            let mut paths = (0..paths.len()).filter_map(|row| paths.text_at(row));
            paths.any(|path| !path.starts_with("path-"))
        })
    })
}

/// Identifies the files, not what is in them.
fn dump_id(places: &[String]) -> String {
    let hash = Sha256::digest(places.first().map_or("", String::as_str));
    hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn table(places: &[String], row: &Row, now: SystemTime) -> Table {
    let key = Key {
        column: "dump_id",
        id: dump_id(places),
        schema_version: SCHEMA_VERSION,
        extractor: EXTRACTOR.to_owned(),
    };
    let micros = |seconds: u64| i64::try_from(seconds).ok()?.checked_mul(1_000_000);
    let now = now.duration_since(SystemTime::UNIX_EPOCH).ok();
    let text = |text: &Option<String>| Values::text([text.clone()]);
    let rows: usize = row.tables.iter().map(|(_, rows)| rows).sum();
    let missing = row.missing.iter().map(|missing| format!("{}: {}", missing.what, missing.reason));
    let columns = [
        ("path", Values::text([places.first().cloned()])),
        ("parts", Values::texts([if places.len() > 1 { places.to_vec() } else { Vec::new() }])),
        ("crash_id", text(&row.crash_id)),
        ("run_id", text(&row.run_id)),
        ("host", text(&row.host)),
        ("time", Values::Time(vec![row.time.and_then(micros)])),
        ("size_bytes", Values::long([row.size_bytes])),
        ("complete", Values::Bool(vec![row.complete])),
        ("extracted", Values::Time(vec![now.and_then(|now| micros(now.as_secs()))])),
        ("error", text(&row.error)),
        ("tables", Values::texts([row.tables.iter().map(|(name, _)| name.clone()).collect()])),
        ("rows", Values::long([Some(rows as u64)])),
        ("missing", Values::texts([missing.collect()])),
    ];
    Table::new(MANIFEST, &key, columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redacted_rows_hold_no_path_server_or_directory() {
        let directory = tempfile::tempdir().unwrap();
        let key = directory.path().join("key");
        std::fs::write(&key, "0123456789abcdef").unwrap();
        let redaction = Redaction::from_file(&key).unwrap();
        let dump = ["s3://secret-bucket/secret/web1?x=1", "secret/part.1"].map(PathBuf::from);
        let to = directory.path().join("secret-tables");
        let mut row =
            Row::new(&dump[0], Some("s3://secret-bucket/secret/web1: no answer of secret-bucket:443".into()));
        row.lacks(&["tasks"], &format!("cannot write {}/tasks/x: /etc/secret is full", to.display()));
        row.lacks(&["stacks"], "secret/part.1: damaged at 0x10; https://secret.example/x redirects");
        record(&to, &dump, &row, Some(&redaction)).unwrap();
        let manifest = crate::read::files(&to, MANIFEST).unwrap();
        let file = TableFile::open(&manifest[0], MANIFEST).unwrap();
        let all = format!("{:?}", file.read_all(0).unwrap());
        assert!(!all.contains("secret") && !all.contains("web1"), "{all}");
        let [path, error] = file.read(0, ["path", "error"]).unwrap();
        assert!(path.text_at(0).unwrap().starts_with("path-"), "{all}");
        assert!(
            error.text_at(0).unwrap().ends_with(":443")
                && error.text_at(0).unwrap().contains(": no answer of"),
            "{all}"
        );
        // The same path gives the same row.
        record(&to, &dump, &row, Some(&redaction)).unwrap();
        assert_eq!(crate::read::files(&to, MANIFEST).unwrap().len(), 1);
        record(&to, &dump, &row, None).unwrap();
        assert_eq!(crate::read::files(&to, MANIFEST).unwrap().len(), 2);
    }
}
