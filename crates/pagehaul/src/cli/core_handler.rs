//! `pagehaul core-handler`.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use pagehaul_encryption::Recipients;
use pagehaul_process::handler::{self, Config, Crash, Handled, Saved};
use pagehaul_process::{Outcome, ProcessError, Target};
use pagehaul_upload::{Uploading, encrypted};

use super::dump_output::means;
use crate::{exit, run, usage};

/// The name of the command, and of the program that is this command.
pub(crate) const NAME: &str = "core-handler";

/// Take the cores of processes that crash, as the program of kernel.core_pattern
///
/// The kernel starts it for each process that dumps core (core(5), "Piping core dumps to a program"). It copies the memory,
/// lets the kernel end the process, then compresses and writes the copy as `pagehaul core` does. So the parent of the
/// process waits for one copy of its memory, not for the disk. The journal gets an entry with the fields of systemd-coredump,
/// so that coredumpctl lists the core and opens it in gdb.
///
/// Settings are in /etc/pagehaul/core.conf, KEY = VALUE a line. What is wrong there is journalled, and the default holds. A line about
/// recipients that is wrong means that there is no core, as does a file that cannot be read.
///
/// Exit status: 0, there is a core; 1, there is none; 2, the command line is wrong; 3, the core is incomplete and marked so.
#[derive(Debug, Args)]
#[command(after_help = "Settings and their defaults:
  directory = /var/lib/pagehaul/core   where cores are written
  compress = zstd:3                    zstd, zstd:LEVEL, or none for plain ELF
  max_core = none                      most bytes of memory in a core; stacks come first
  max_total = 10%                      most that all cores take; the oldest are removed
  keep_free = 15%                      least that stays free on the disk; the oldest are removed
  max_age = 14                         days until a core is removed, or none
  rate = 10                            most cores of an executable in a minute, or none
  max_memory = auto                    most memory for the copies of all crashes at once [auto: half of what is available]
  threads = auto                       threads that copy and compress [auto: one for each CPU]
  read = process                       memory comes from the process, or from the kernel's pipe (pipe)
  recipients = /etc/pagehaul/recipients   who can read cores (age), if the file exists; or none
  upload = none                        where cores are uploaded to, too: s3://BUCKET/PREFIX, ssh://[USER@]HOST[:PORT]/DIRECTORY
  after_upload = keep                  keep the file, or remove it
  journal = /run/systemd/journal/socket   without it, messages go to the kernel's log
  runtime = /run/pagehaul/core         what handlers that run at once share

Sizes are bytes, or 64K, 4M, 20G; shares are of the disk.

Example (/etc/sysctl.d):
  kernel.core_pattern = |/usr/lib/pagehaul/core-handler %P %I %u %g %s %t %c %h %e
  kernel.core_pipe_limit = 16")]
pub(crate) struct CoreHandlerArguments {
    /// Configuration file, which has to exist [default: /etc/pagehaul/core.conf, if it exists]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// What the kernel puts for %P %I %u %g %s %t %c %h %e of core_pattern; the core comes on standard input
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "CRASH", num_args = 1..)]
    crash: Vec<OsString>,
}

pub(crate) fn run(arguments: &CoreHandlerArguments) -> anyhow::Result<ExitCode> {
    let (config, complaints) = Config::read(arguments.config.as_deref());
    let crash = Crash::parse(&arguments.crash).map_err(|why| {
        handler::complain(&config, &format!("kernel.core_pattern is wrong: {why}"));
        usage::wrong(format!("the arguments are not those of kernel.core_pattern: {why}"))
    })?;
    // Nobody reads standard error.
    let (print, settings) = (std::panic::take_hook(), config.clone());
    std::panic::set_hook(Box::new(move |panic| {
        handler::complain(&settings, &format!("the core handler failed, which is a mistake in it: {panic}"));
        print(panic);
    }));
    let input = take_stdin()?;
    let (handled, _) = run::cancellable(true, |progress| {
        let write = |path: &Path, save: &mut dyn FnMut(&Target) -> Result<Saved, ProcessError>| match &config
            .recipients
        {
            None => save(&Target::New { path: path.to_owned() }).map_err(|error| error.to_string()),
            Some(file) => encrypt(path, file, save),
        };
        let handled = handler::handle(&crash, &config, &complaints, input, progress, &write);
        if let Handled::Core(path, _) = &handled {
            let send = |file: &File, url: &Path| {
                pagehaul_upload::put_file(url, file, &means(None)).map_err(|error| error.to_string())
            };
            handler::upload(&config, path, &send).iter().for_each(|why| tell!("pagehaul: {why}"));
        }
        handled
    })?;
    // Only who tries it by hand reads this: the kernel gives it no terminal.
    Ok(match handled {
        Handled::Core(_, saved) if saved.outcome == Outcome::Complete => ExitCode::SUCCESS,
        Handled::Core(path, saved) => {
            let why = saved.outcome.why().unwrap_or_default();
            tell!("pagehaul: {} is incomplete: {why}", path.display());
            ExitCode::from(exit::INCOMPLETE)
        }
        Handled::None(why) => {
            tell!("pagehaul: no core was written: {why}");
            ExitCode::FAILURE
        }
    })
}

/// The kernel's pipe, open nowhere else: the process waits until it is closed.
fn take_stdin() -> io::Result<File> {
    let stdin = io::stdin();
    let input = stdin.as_fd().try_clone_to_owned()?;
    let null = File::open("/dev/null")?;
    // SAFETY: descriptor 0 stays open, as what is always readable and empty.
    if unsafe { libc::dup2(null.as_raw_fd(), 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(File::from(input))
}

/// Writes a core that only the recipients in `file` can read. An incomplete one lacks the last chunk of the age format.
fn encrypt(
    path: &Path,
    file: &Path,
    save: &mut dyn FnMut(&Target) -> Result<Saved, ProcessError>,
) -> Result<Saved, String> {
    let clear = |why: String| format!("nothing is written in the clear: {why}");
    let keys = [file.to_str().ok_or_else(|| clear(format!("{} is not UTF-8", file.display())))?.to_owned()];
    let recipients =
        Recipients::parse(&keys).map_err(|error| clear(format!("{}: {error}", file.display())))?;
    let recipients = recipients.ok_or_else(|| clear(format!("{} has no recipients", file.display())))?;
    let mut output = encrypted::new_file(path, false, &[]).map_err(|error| error.to_string())?;
    let encrypting =
        Uploading::encrypt(output.file().clone(), path, &recipients).map_err(|error| error.to_string());
    let sent = encrypting.and_then(|encrypting| {
        let target = Target::Pipe { name: path.to_owned(), pipe: encrypting.pipe() };
        let saved = save(&target);
        // The pipe ends with its last copy.
        drop(target);
        let is_whole = saved.as_ref().is_ok_and(|saved| saved.outcome.is_success());
        // What could not be written is why the pipe is broken.
        match (saved, encrypting.finish(is_whole)) {
            (saved, Ok(_)) => saved.map_err(|error| error.to_string()),
            (Ok(saved), Err(why)) => Ok(Saved { outcome: Outcome::WriteFailed(why.to_string()), ..saved }),
            (Err(_), Err(why)) => Err(why.to_string()),
        }
    });
    let saved = sent.inspect_err(|_| output.discard())?;
    let kept = if saved.outcome.is_success() { output.commit() } else { output.keep() };
    kept.map_err(|error| error.to_string())?;
    Ok(saved)
}
