//! Writing the core of a process: what happens before the process is stopped, and after it goes on.

use std::time::Instant;

use pagehaul_output::WriteError;
use pagehaul_run::{Outcome, Phase, Progress};

use crate::error::ProcessError;
use crate::filter::Kinds;
use crate::job::Job;
use crate::options::{Mode, Options};
use crate::output::{Output, Target};
use crate::report::CoreReport;
use crate::transfer::Transferred;
use crate::units::Pid;
use crate::{oom, procfs};

/// Writes a core of a process. A core that could not be completed is marked incomplete, and the report says why. An error
/// means that there is no core.
pub fn core(
    pid: Pid,
    target: &Target,
    options: &Options,
    progress: &Progress,
) -> Result<CoreReport, ProcessError> {
    let begun = Instant::now();
    procfs::examine(pid)?;
    oom::end_this_program_first();
    let name = procfs::read_text(pid, "comm")?.trim_end().to_owned();
    let kinds = Kinds::of_process(pid).with(options.include).without(options.exclude);
    let mut output = Output::open(target, options.level)?;
    let job = Job { pid, kinds, options, progress };
    let report = job.run(&mut output, begun);
    if report.is_err() {
        // It holds nothing of use.
        output.discard();
    }
    Ok(CoreReport { name, ..report? })
}

impl Job<'_> {
    fn run(&self, output: &mut Output, begun: Instant) -> Result<CoreReport, ProcessError> {
        let prepared = self.prepare()?;
        let arena = &prepared.arena;
        let prepare = begun.elapsed().as_secs_f64();
        let transferred = self.transfer(output, &prepared)?;
        let Transferred { totals, missing, mut seconds, .. } = transferred;
        seconds.prepare = prepare;
        let mut outcome = transferred.outcome.unwrap_or(Outcome::Complete);
        if !outcome.is_success() && totals.placed <= transferred.header.len() as u64 {
            return Err(self.nothing(outcome));
        }
        let mut output_bytes = output.appended();
        self.progress.enter(Phase::Finish);
        let finishing = Instant::now();
        if outcome.is_success() {
            match output.finish(transferred.size, &transferred.header) {
                Ok(bytes) => output_bytes = bytes,
                Err(error) => outcome = WriteError::from(error).outcome(&output.name()),
            }
        }
        // An output that cannot get its name is of no use.
        if outcome.is_success() {
            output.commit()?
        } else {
            output.keep()?
        }
        seconds.finish = finishing.elapsed().as_secs_f64();
        Ok(CoreReport {
            outcome,
            pid: self.pid,
            name: String::new(),
            mode: self.options.mode.name(),
            threads_saved: transferred.threads,
            output: output.name(),
            codec: self.options.level.map_or("none".into(), |level| format!("zstd:{level}")),
            threads: transferred.copiers,
            kinds: self.kinds.to_string(),
            mapped_bytes: transferred.mapped,
            excluded_bytes: transferred.excluded,
            core_bytes: transferred.size,
            page_bytes: totals.counts.pages,
            zero_bytes: totals.counts.zeros,
            output_bytes,
            unreadable_pages: missing.0,
            buffer_bytes: arena.capacity() as u64,
            buffer_was_short: self.options.mode == Mode::Stopped && arena.was_starved(),
            seconds,
            warnings: self.warnings(missing, transferred.blind, transferred.shared),
        })
    }

    /// Why there is no core.
    fn nothing(&self, outcome: Outcome) -> ProcessError {
        match outcome {
            Outcome::Cancelled => ProcessError::Cancelled(self.pid),
            Outcome::DiskFull(why) | Outcome::WriteFailed(why) => ProcessError::NotWritten(why),
            Outcome::ReadFailed(why) if procfs::path(self.pid, "stat").exists() => ProcessError::Refused(why),
            _ => ProcessError::Ended(self.pid),
        }
    }

    fn warnings(&self, missing: (u64, u64), blind: bool, shared: bool) -> Vec<String> {
        let mut warnings = Vec::new();
        if missing.0 > 0 {
            warnings.push(format!(
                "{} pages could not be read and read as zeros, the first at {:#x}: beyond the end of a mapped file, \
                 guard pages, or taken away meanwhile",
                missing.0, missing.1
            ));
        }
        if blind {
            warnings.push(
                "shared memory that this process has not touched is excluded: only root may find it (map_files)"
                    .into(),
            );
        }
        if shared && self.options.mode == Mode::Snapshot {
            warnings.push("shared memory was copied while the process ran: a fork does not copy it".into());
        }
        if self.options.mode == Mode::Live {
            warnings.push("the process ran while its memory was copied: it is not of one moment".into());
        }
        warnings
    }
}
