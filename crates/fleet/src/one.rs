//! Makes the tables of one dump in a separate process. A dump that kills it is one failed row of the manifest.

use std::fs;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use pagehaul_codec::FrameDecompressor;
use pagehaul_facts::{Facts, Missing, SCHEMA_VERSION};
use pagehaul_physmem::MapPolicy;
use pagehaul_vmcore::{Source, SourceKind};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};

use crate::tables::{DumpFile, tables};

/// Memory that one dump may take.
const MOST_MEMORY: u64 = 1 << 30;
/// Bytes of a facts file, and of what it decompresses to.
const MOST_FACTS: u64 = 64 << 20;

#[derive(Debug, Args)]
pub(crate) struct OneArguments {
    dump: PathBuf,
    to: PathBuf,
}

/// A row of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Row {
    /// The dump, as it was named.
    pub(crate) path: PathBuf,
    /// Why there are no tables; null if there are.
    pub(crate) error: Option<String>,
    /// Identifies the crash.
    pub(crate) crash_id: Option<String>,
    /// Names and numbers of rows of its tables.
    pub(crate) tables: Vec<(String, usize)>,
    /// What is absent, and why.
    pub(crate) missing: Vec<Missing>,
}

impl Row {
    /// Returns the row of a dump without tables.
    pub(crate) fn failed(path: &Path, error: String) -> Self {
        Self {
            path: path.to_owned(),
            error: Some(error),
            crash_id: None,
            tables: Vec::new(),
            missing: Vec::new(),
        }
    }
}

pub(crate) fn run(arguments: &OneArguments) -> anyhow::Result<ExitCode> {
    let limit = |bytes| Rlimit { current: Some(bytes), maximum: Some(bytes) };
    // What cannot be limited ends with the time.
    let _ = setrlimit(Resource::Data, limit(MOST_MEMORY));
    let _ = setrlimit(Resource::Core, limit(0));
    let row = extract(&arguments.dump, &arguments.to)
        .unwrap_or_else(|error| Row::failed(&arguments.dump, format!("{error:#}")));
    crate::say(&serde_json::to_string(&row)?)?;
    Ok(ExitCode::SUCCESS)
}

fn extract(dump: &Path, to: &Path) -> anyhow::Result<Row> {
    let name = dump.as_os_str().to_string_lossy();
    let (facts, file) = if name.ends_with(".json") || name.ends_with(".json.zst") {
        (from_facts(dump)?, DumpFile { format: "facts", level: None, complete: None, size_bytes: None })
    } else {
        from_dump(dump)?
    };
    let mut row = Row {
        path: dump.to_owned(),
        error: None,
        crash_id: Some(facts.id.crash_id.clone()),
        tables: Vec::new(),
        missing: facts.missing.clone(),
    };
    let (month, id) = (month(facts.crash_time), facts.id.crash_id.clone());
    let path_of = |table: &str| {
        let directory = to.join(table).join(format!("v={SCHEMA_VERSION}")).join(format!("month={month}"));
        directory.join(format!("{id}.parquet"))
    };
    if facts.crash.is_none() && path_of("dumps").exists() {
        // A truncated dump must not replace what an intact one of the same crash has.
        let reason =
            "the log holds no crash, and another dump of this crash has tables: they stay".to_owned();
        row.missing.push(Missing { what: "tables".to_owned(), reason });
        return Ok(row);
    }
    for table in tables(facts, &file) {
        let (name, rows) = (table.name, table.rows);
        if rows == 0 {
            continue;
        }
        let path = path_of(name);
        put(&path, |out| Ok(table.write(out)?))?;
        row.tables.push((name.to_owned(), rows));
    }
    Ok(row)
}

fn from_dump(path: &Path) -> anyhow::Result<(Facts, DumpFile)> {
    let source = Source::open(path, MapPolicy::default())?;
    let facts =
        Facts::read(source.memory(), concat!("pagehaul-fleet ", env!("CARGO_PKG_VERSION")).to_owned());
    let format = match source.kind() {
        SourceKind::Elf(_) => "elf",
        SourceKind::Kdump(_) => "kdump",
        SourceKind::Flattened(_) => "flattened",
        SourceKind::Split(_) => "split",
        SourceKind::Simulated(_) => "simulated",
    };
    let file = DumpFile {
        format,
        // ELF files do not say it.
        level: source.dumps().first().and_then(|dump| i32::try_from(dump.dump_level()).ok()),
        complete: Some(!source.is_incomplete()),
        size_bytes: fs::metadata(path).ok().and_then(|metadata| i64::try_from(metadata.len()).ok()),
    };
    Ok((facts, file))
}

/// Reads what `capture --facts` or `facts` wrote.
fn from_facts(path: &Path) -> anyhow::Result<Facts> {
    let read = || format!("cannot read {}", path.display());
    let mut bytes = Vec::new();
    BufReader::new(fs::File::open(path).with_context(read)?)
        .take(MOST_FACTS)
        .read_to_end(&mut bytes)
        .with_context(read)?;
    if path.extension().is_some_and(|extension| extension == "zst") {
        let mut text = Vec::new();
        FrameDecompressor::new()?.decompress(&bytes, &mut text, MOST_FACTS as usize).with_context(read)?;
        bytes = text;
    }
    let facts: Facts =
        serde_json::from_slice(&bytes).with_context(|| format!("{} holds no facts", path.display()))?;
    if facts.schema_version != SCHEMA_VERSION {
        bail!(
            "{} has schema version {}; this program knows {SCHEMA_VERSION}",
            path.display(),
            facts.schema_version
        );
    }
    // It becomes the name of a file.
    if facts.id.crash_id.len() != 32 || !facts.id.crash_id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        bail!("{}: crash_id is not 32 hexadecimal digits", path.display());
    }
    Ok(facts)
}

/// `2026-11`, in UTC.
fn month(crash_time: Option<u64>) -> String {
    let time = crash_time.and_then(|time| jiff::Timestamp::from_second(i64::try_from(time).ok()?).ok());
    time.map_or_else(|| "unknown".to_owned(), |time| time.strftime("%Y-%m").to_string())
}

/// Writes a file. Readers see all of it or nothing, and another run that writes it at the same time does no harm.
pub(crate) fn put(
    path: &Path,
    write: impl FnOnce(&mut (dyn Write + Send)) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let context = || format!("cannot write {}", path.display());
    let directory = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(directory).with_context(context)?;
    let file = tempfile::NamedTempFile::new_in(directory).with_context(context)?;
    let mut out = BufWriter::new(file);
    write(&mut out).with_context(context)?;
    let file = out.into_inner().map_err(|error| error.into_error()).with_context(context)?;
    file.as_file().sync_data().with_context(context)?;
    file.persist(path).map_err(|error| error.error).with_context(context)?;
    Ok(())
}
