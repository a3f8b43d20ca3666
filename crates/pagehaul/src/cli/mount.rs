//! `pagehaul mount`.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use pagehaul_elfcore::notes;
use pagehaul_kernel::{AddressSpace, KernelLog};
use pagehaul_mount::{Absent, CoreFile, Options, check_directory, detach, mount};
use pagehaul_vmcore::Source;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::cli::options::{Identity, ImageLayout, Threads};
use crate::cli::{completeness, dmesg, info};
use crate::{printed, signals};

/// Mount a dump as a directory with a plain ELF vmcore in it
///
/// DIR then holds `vmcore`, an ELF64 file with the layout of /proc/vmcore, for drgn, crash, gdb, cp --sparse and anything
/// else that reads or maps vmcores; also `dmesg`, `vmcoreinfo` and `info.json`. Pages are decompressed as they are read;
/// nothing is unpacked to disk. Ends when DIR is unmounted. On SIGINT, SIGTERM and SIGHUP it unmounts DIR; files that are
/// open are served until they are closed. A second signal, 3 seconds or more after the first, ends it at once.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul mount dump /mnt
  pagehaul mount --background part.1 part.2 part.3 /mnt && drgn -c /mnt/vmcore; umount /mnt")]
pub(crate) struct MountArguments {
    /// The dump, or the parts of a split set in any order, files or URLs; last, an empty directory
    #[arg(required = true, num_args = 2.., value_names = ["DUMP", "DIR"])]
    files: Vec<PathBuf>,
    /// What reads of excluded pages return; reads of missing and damaged pages always fail
    #[arg(long, value_enum, value_name = "AS", default_value = "error")]
    excluded: Excluded,
    /// Continue in the background once mounted
    #[arg(short, long)]
    background: bool,
    /// Marks the process that --background starts
    #[arg(long = IN_BACKGROUND, hide = true)]
    in_background: bool,
    /// Let other users read it
    #[arg(long)]
    allow_other: bool,
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    identity: Identity,
    #[command(flatten)]
    layout: ImageLayout,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Excluded {
    /// I/O errors
    Error,
    /// Zeros
    Zero,
}

/// The option of a process in the background that says that it is there.
const IN_BACKGROUND: &str = "in-background";
/// What the process in the background says once it is mounted.
const MOUNTED: &str = "mounted on ";

pub(crate) fn run(arguments: &MountArguments) -> anyhow::Result<ExitCode> {
    let Some((directory, dumps)) = arguments.files.split_last() else { bail!("name a dump and a directory") };
    check_directory(directory)?;
    if arguments.background && !arguments.in_background {
        return in_background(directory, &arguments.identity);
    }
    arguments.identity.hold(dumps)?;
    // For as long as the process lives: the file system's threads use it.
    let source: &'static Source = Box::leak(Box::new(arguments.layout.open(dumps)?));
    completeness::tell_warnings(source);
    let memory = source.memory();
    let platform = memory.platform();
    if platform.big_endian || !platform.wide {
        bail!(
            "{}: this dump is of a {}-bit {} machine ({}), and only little-endian 64-bit ones can be mounted; use read",
            source.path().display(),
            if platform.wide { 64 } else { 32 },
            if platform.big_endian { "big-endian" } else { "little-endian" },
            platform.name()
        );
    }
    let space = AddressSpace::discover(memory).ok();
    let absent = match arguments.excluded {
        Excluded::Error => Absent::Error,
        Excluded::Zero => Absent::Zeros,
    };
    let core = CoreFile::new(memory, space.as_ref().and_then(AddressSpace::direct_map), absent);
    let mut files = Vec::new();
    if let Ok(log) = KernelLog::read(memory) {
        files.push(("dmesg".to_owned(), dmesg::lines(&log)));
    }
    if let Some((_, text)) = notes::vmcoreinfo(memory.notes()) {
        files.push(("vmcoreinfo".to_owned(), text.to_vec()));
    }
    files.push(("info.json".to_owned(), info::json(source)?.into_bytes()));
    let options = Options {
        threads: arguments.threads.count(),
        allow_other: arguments.allow_other,
        name: source.path().display().to_string(),
        time: space.as_ref().and_then(AddressSpace::crash_time),
    };
    // Before anything is mounted, so that no signal leaves it behind.
    let mut caught = Signals::new([SIGHUP, SIGINT, SIGTERM]).context("cannot set up signal handlers")?;
    let mut mounted = mount(core, files, directory, &options)?;
    // It is mounted, whether anybody hears of it or not.
    let _ = say!("{MOUNTED}{}", directory.display());
    let mut detached: Option<Instant> = None;
    while !mounted.is_over() {
        if caught.pending().next().is_some() {
            match detached {
                None => mounted.detach()?,
                // Asked again: files that are open can no longer be read.
                Some(since) if since.elapsed() > signals::GRACE => return Ok(ExitCode::FAILURE),
                Some(_) => {}
            }
            detached.get_or_insert_with(Instant::now);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    mounted.end()?;
    Ok(ExitCode::SUCCESS)
}

/// Starts this program again and waits until it has mounted.
fn in_background(directory: &Path, identity: &Identity) -> anyhow::Result<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    // Right behind `mount`: --background may be written in many ways, and options may have ended.
    command.args(arguments.next()).arg(format!("--{IN_BACKGROUND}")).args(arguments);
    // Nobody has read the key from standard input before.
    let stdin = if identity.reads_stdin() { Stdio::inherit() } else { Stdio::null() };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    // Of its own, so that what ends the shell's jobs does not end it.
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    let mut child = command.spawn().context("cannot start the process in the background")?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line)?;
    }
    if line.starts_with(MOUNTED) {
        // What is wrong with the dump. The process lives on, so that this does not end.
        if let Some(mut error) = child.stderr.take() {
            rustix::io::ioctl_fionbio(&error, true)?;
            let mut said = Vec::new();
            let _ = error.read_to_end(&mut said);
            if !said.is_empty() {
                printed::tell_lines(String::from_utf8_lossy(&said).trim_end());
            }
        }
        // The mount answers once this does. The serving process must not ask: killed meanwhile, it would wait for itself.
        let file = directory.join("vmcore");
        if let Err(error) = std::fs::metadata(&file) {
            // Its process has ended.
            let _ = detach(directory);
            return Err(error).with_context(|| format!("cannot read {}", file.display()));
        }
        // It is mounted, whether anybody hears of it or not.
        let _ = printed::text(&line);
        return Ok(ExitCode::SUCCESS);
    }
    let mut said = String::new();
    if let Some(mut error) = child.stderr.take() {
        error.read_to_string(&mut said)?;
    }
    printed::tell_lines(said.trim_end());
    child.wait()?;
    Ok(ExitCode::FAILURE)
}
