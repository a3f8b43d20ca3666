//! `pagehaul capture`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use pagehaul_capture::{KnownPages, Limits};
use pagehaul_codec::FrameCompressor;
use pagehaul_encryption::encrypt;
use pagehaul_erase::Subject;
use pagehaul_kernel::{DumpLevel, PageClass};
use pagehaul_output::{CreateOptions, Naming, NewFile, Special};
use pagehaul_physmem::{Access, MapPolicy};
use pagehaul_present::number::parse_bytes;
use pagehaul_present::sentence;
use pagehaul_present::time::parse_duration;
use pagehaul_upload::is_remote;
use pagehaul_vmcore::Source;

use crate::cli::dump_output::{DumpOutput, PageSelection, means};
use crate::cli::erase::Erase;
use crate::cli::keep::Keep;
use crate::cli::options::ImageLayout;
use crate::{clock, crash_report, files, printed, signals, usage};

/// Time to find what is erased, and whose pages are kept.
const FIND_TIME: Duration = Duration::from_secs(60);

/// Time for the report that finds the pages to write first.
const TRIAGE_TIME: Duration = Duration::from_secs(5);

/// Capture a dump of a crashed kernel's memory, without the pages that the dump level excludes
///
/// SOURCE is /proc/vmcore in a capture kernel, a saved ELF64 vmcore, QEMU's dump-guest-memory, or a kdump-compressed or
/// flattened dump, or an image of memory (`--layout`). crash, drgn and everything that uses libkdumpfile open the result.
///
/// Exit status: 0, the dump is complete; 1, there is no dump; 2, the command line is wrong; 3, the dump is incomplete and
/// marked so (disk full, I/O error, signal, limit): it holds the most important pages.
///
/// Uses fewer threads than CPUs where memory is short (MemAvailable).
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul capture /proc/vmcore /var/crash/dump
  pagehaul capture -d cache,cache-private,free -c zlib vmcore dump
  pagehaul capture /proc/vmcore /disk1/dump.1 /disk2/dump.2
  pagehaul capture /proc/vmcore ssh://host/var/crash/dump.flat
  pagehaul capture --facts /proc/vmcore s3://crashes/host7/dump.flat
  pagehaul capture --triage --facts /proc/vmcore /var/crash/dump
  pagehaul capture --encrypt-to /etc/pagehaul/recipients /proc/vmcore /var/crash/dump.age
  pagehaul capture --erase keys /proc/vmcore /var/crash/dump
  pagehaul capture --keep-cgroup /system.slice/postgresql.service /proc/vmcore /var/crash/dump
  pagehaul capture --dry-run /proc/vmcore")]
pub(crate) struct CaptureArguments {
    /// Memory to capture
    source: PathBuf,
    /// File to write. ssh://[USER@]HOST[:PORT]/PATH and s3://BUCKET/KEY get a flattened stream, and so does standard output
    /// (`-`). Several files, each on its own disk, become the parts of a split set: faster disks take more, and what a full or
    /// failing disk leaves the others take; with --encrypt-to, shares are equal and do not change. Give crash all of them, or join
    /// them with `convert`
    #[arg(required_unless_present = "dry_run")]
    output: Vec<PathBuf>,
    /// Pages to exclude: 0 to 31 (1 zero, 2 cache, 4 private cache, 8 user, 16 free), or names separated by commas (zero,
    /// cache, cache-private, user, free, all, none) [default: 31; with --keep-cgroup or --keep-pid, 17]
    #[arg(short, long, value_name = "LEVEL")]
    dump_level: Option<DumpLevel>,
    #[command(flatten)]
    dump: DumpOutput,
    #[command(flatten)]
    keep: Keep,
    #[command(flatten)]
    erase: Erase,
    /// Finish within this time, with the most important pages: 90s, 10m, 1h30m. Pages are written by priority: kernel data,
    /// stacks and page tables; slab; kernel text; struct pages; other kernel memory; page cache; processes; free memory.
    /// Streams, ELF dumps, split sets and raw disks are written in order of PFN. Pages are written until 2 seconds or a fifth of
    /// the time before its end, whichever is longer, or until later; until half of it where the output was measured to be so
    /// slow that the tables take as long
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    time_limit: Option<Duration>,
    /// Take no more disk space than this, for the most important pages: 500M, 20G. Until the end, 24 bytes more per page
    /// kept. With several outputs, the limit is per output. A size without room for a page is refused with the smallest that has
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    size_limit: Option<u64>,
    /// Explain the crash first: write what `triage` prints to OUTPUT.triage and to standard error, within this time [default:
    /// 5s]. A fault in it changes nothing about the dump. The pages that it is made of are written first, as they are with
    /// a limit
    #[arg(long, value_name = "TIME", value_parser = parse_duration, num_args = 0..=1, require_equals = true,
        default_missing_value = "5s", conflicts_with = "dry_run")]
    triage: Option<Duration>,
    /// Write the facts of the crash (`facts`) to OUTPUT.facts.json.zst first, within this time [default: 5s]. A fault in it
    /// changes nothing about the dump
    #[arg(long, value_name = "TIME", value_parser = parse_duration, num_args = 0..=1, require_equals = true,
        default_missing_value = "5s", conflicts_with = "dry_run")]
    facts: Option<Duration>,
    /// Exclude free pages on per-CPU lists too, with level 16. Their struct pages look like those of pages in use, so they are
    /// found from the kernel's symbols and types (BTF); lists that a CPU was changing are kept. Needs x86_64
    #[arg(long, conflicts_with = "dry_run")]
    exclude_per_cpu_lists: bool,
    /// Classify pages and estimate the size, but write nothing
    #[arg(long)]
    dry_run: bool,
    /// Map the source, this much at a time per thread: a power of two from 4K to 1G [default: 4M of /proc/vmcore; other
    /// files are read]
    #[arg(long, value_name = "SIZE", value_parser = map_size)]
    map_size: Option<u64>,
    /// Read the source instead of mapping it, even /proc/vmcore
    #[arg(long, conflicts_with = "map_size")]
    no_mmap: bool,
    #[command(flatten)]
    layout: ImageLayout,
}

pub(crate) fn run(arguments: &CaptureArguments) -> anyhow::Result<ExitCode> {
    let level = arguments.keep.level(arguments.dump_level, DumpLevel::ALL)?;
    if arguments.exclude_per_cpu_lists && !level.excludes(PageClass::Free) {
        return Err(usage::wrong("--exclude-per-cpu-lists needs a dump level that excludes free pages (16)"));
    }
    arguments.refuse_reports_of_erased()?;
    // Before anything is read.
    arguments.dump.recipients()?;
    arguments.dump.spare_keys(&arguments.output, None)?;
    pagehaul_encryption::hold(None, std::slice::from_ref(&arguments.source))?;
    let mut source =
        arguments.layout.open_quietly(std::slice::from_ref(&arguments.source), arguments.map_policy())?;
    let outputs = if arguments.dry_run { &[] } else { &*arguments.output };
    let limits = Limits { time: arguments.time_limit, size: arguments.size_limit };
    let mut selection = PageSelection {
        level,
        keep_all: false,
        owners: None,
        limits,
        known: KnownPages::default(),
        warnings: source.remarks().to_vec(),
    };
    if outputs.iter().any(|output| is_remote(output)) {
        clock::correct(&source);
    }
    let start = Instant::now();
    if !outputs.is_empty() {
        signals::cancel_on_signals(&signals::cancelled()).context("cannot set up signal handlers")?;
    }
    // Before anything is written.
    selection.owners = arguments.keep.apply_from_other(
        &mut source,
        &arguments.dump_source(),
        arguments.within_limit(FIND_TIME),
        arguments.dump.is_quiet(),
    )?;
    arguments.erase.apply_from_other(
        &mut source,
        &arguments.dump_source(),
        arguments.within_limit(FIND_TIME),
        arguments.dump.is_quiet(),
    )?;
    if !outputs.is_empty() {
        for prepare in [CaptureArguments::write_facts, CaptureArguments::explain, CaptureArguments::find_free]
        {
            prepare(arguments, &source, &mut selection);
            if signals::cancelled().is_cancelled() {
                bail!("stopped by a signal before the dump was begun; there is none");
            }
        }
    }
    selection.limits.time = selection.limits.time.map(|limit| limit.saturating_sub(start.elapsed()));
    arguments.dump.write(&source, outputs, selection)
}

/// Level of zstd for facts: their log has lines that repeat.
const FACTS_LEVEL: i32 = 9;

/// Writes what is known of the dump `output` to a file with its name and `suffix`.
fn write_report(
    output: &Path,
    suffix: &str,
    text: &[u8],
    overwrite: bool,
    sources: &[(u64, u64)],
) -> anyhow::Result<()> {
    if output.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        // The output is a disk or a pipe. Its directory is /dev or the like, where no report is written.
        return Ok(());
    }
    let options = CreateOptions {
        naming: Naming::WhenComplete,
        overwrite,
        special: Special::Disks,
        private: true,
        sources,
    };
    // A report of this crash next to the dump of another would mislead.
    NewFile::check(output, options)?;
    let mut path = output.as_os_str().to_owned();
    path.push(suffix);
    files::write_new(path.as_ref(), text, options)
}

impl CaptureArguments {
    /// Writes the facts of the crash next to the first output. An error here does not fail the capture.
    fn write_facts(&self, source: &Source, selection: &mut PageSelection) {
        let Some(budget) = self.facts else { return };
        let written = crash_report::facts(&self.dump_source(), self.within_limit(budget)).and_then(|facts| {
            let mut bytes = Vec::new();
            FrameCompressor::new(FACTS_LEVEL)?.compress(facts.as_bytes(), &mut bytes)?;
            self.put(source, ".facts.json.zst", &bytes)
        });
        if let Err(error) = written {
            selection.warnings.push(format!("no facts next to the dump: {}", sentence(error.chain())));
        }
    }

    /// Makes the report of the crash, and puts the pages that it is made of first. An error here does not fail the
    /// capture.
    fn explain(&self, source: &Source, selection: &mut PageSelection) {
        let Some(budget) = self.budget() else { return };
        let report = crash_report::report(&self.dump_source(), budget);
        match (report, self.triage.is_some()) {
            (Ok(report), wanted) => {
                if wanted && let Err(error) = self.publish(source, &report.text) {
                    let why = sentence(error.chain());
                    selection.warnings.push(format!("no triage report next to the dump: {why}"));
                }
                selection.known.first = report.pages;
            }
            (Err(error), true) => {
                selection.warnings.push(format!("no triage report: {}", sentence(error.chain())));
            }
            // No report was requested: without it, only the order of pages in a dump that ends early is worse.
            (Err(_), false) => {}
        }
    }

    /// Finds the free pages on per-CPU lists. Where that fails, they are kept.
    fn find_free(&self, _source: &Source, selection: &mut PageSelection) {
        if !self.exclude_per_cpu_lists {
            return;
        }
        let free = match crash_report::per_cpu_free(&self.dump_source(), self.within_limit(TRIAGE_TIME)) {
            Ok(free) => {
                selection.warnings.extend(free.skipped);
                free.pages
            }
            Err(error) => {
                let why = sentence(error.chain());
                selection.warnings.push(format!("free pages on per-CPU lists are kept: {why}"));
                Vec::new()
            }
        };
        selection.known.free = Some(free);
    }

    /// The time for the report; none if there is to be none.
    fn budget(&self) -> Option<Duration> {
        let limited = self.time_limit.is_some() || self.size_limit.is_some();
        let budget = self.triage.or(limited.then_some(TRIAGE_TIME))?;
        Some(self.within_limit(budget))
    }

    /// At most a tenth of the time for the dump.
    fn within_limit(&self, budget: Duration) -> Duration {
        self.time_limit.map_or(budget, |limit| budget.min(limit / 10))
    }

    /// Prints the report, and writes it next to the first output.
    fn publish(&self, source: &Source, text: &str) -> anyhow::Result<()> {
        if !self.dump.is_quiet() {
            printed::tell_lines(text);
        }
        self.put(source, ".triage", text.as_bytes())
    }

    /// Writes a file next to the first output.
    fn put(&self, source: &Source, suffix: &str, text: &[u8]) -> anyhow::Result<()> {
        let Some(output) = self.output.first().filter(|path| path.as_os_str() != "-") else { return Ok(()) };
        let recipients = self.dump.recipients()?;
        let suffix = if recipients.is_some() { format!("{suffix}.age") } else { suffix.to_owned() };
        if is_remote(output) {
            let mut url = output.clone().into_os_string();
            url.push(suffix);
            return Ok(pagehaul_upload::put(url.as_ref(), text, means(recipients))?);
        }
        let text = recipients.map_or(Ok(text.to_owned()), |recipients| encrypt(text, &recipients))?;
        write_report(output, &suffix, &text, self.dump.may_overwrite(), &source.memory().files())
    }

    /// Refuses to write next to the dump what is erased in it.
    fn refuse_reports_of_erased(&self) -> anyhow::Result<()> {
        let has_names =
            self.erase.subjects().iter().any(|subject| matches!(subject, Subject::Log | Subject::Names));
        let report = if self.triage.is_some() { "--triage" } else { "--facts" };
        if has_names && (self.triage.is_some() || self.facts.is_some()) {
            return Err(usage::wrong(format!(
                "{report} would write the log and names next to a dump in which --erase overwrites them; leave one out"
            )));
        }
        Ok(())
    }

    /// The arguments of another run of this program on the source.
    fn dump_source(&self) -> Vec<OsString> {
        let layout = self.layout.to_arguments().into_iter().map(OsString::from);
        layout.chain(["--".into(), self.source.clone().into()]).collect()
    }

    fn map_policy(&self) -> MapPolicy {
        let default = MapPolicy::default();
        match self.map_size {
            Some(window) => MapPolicy { window, access: Access::Map },
            None if self.no_mmap => MapPolicy { access: Access::Read, ..default },
            None => default,
        }
    }
}

fn map_size(text: &str) -> Result<u64, String> {
    let size = parse_bytes(text)?;
    if size.is_power_of_two() && (4096..=1 << 30).contains(&size) {
        Ok(size)
    } else {
        Err("expected a power of two from 4K to 1G".into())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_report_is_written_only_where_its_dump_can_be() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        write_report(&path("dump"), ".triage", b"why", false, &[]).unwrap();
        assert_eq!(fs::read_to_string(path("dump.triage")).unwrap(), "why");
        let refused = write_report(&path("dump"), ".triage", b"other", false, &[]).unwrap_err().to_string();
        assert!(refused.contains("dump.triage exists"), "{refused}");
        write_report(&path("dump"), ".triage", b"other", true, &[]).unwrap();
        fs::write(path("old"), "a dump").unwrap();
        assert!(
            write_report(&path("old"), ".triage", b"why", false, &[]).is_err()
                && !path("old.triage").exists()
        );
        assert!(write_report(&path("none/dump"), ".triage", b"why", false, &[]).is_err());
        fs::create_dir(path("taken.triage")).unwrap();
        assert!(write_report(&path("taken"), ".triage", b"why", true, &[]).is_err());
        assert_eq!(fs::read_to_string(path("dump.triage")).unwrap(), "other");
    }
}
