//! Several validations at a time, each in another process of this program: while one crashes a guest, another checks its dumps,
//! which takes longer and keeps one CPU busy. Only one guest runs at any moment.

use crate::child::end_with_parent;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

const AT_A_TIME: usize = 2;

/// A command of this program.
pub(super) struct Job {
    /// What failures name.
    pub name: String,
    pub arguments: Vec<OsString>,
}

/// Runs all jobs, and prints what each has printed when it ends.
pub(super) fn run(jobs: &[Job]) -> Result<()> {
    let (next, failed) = (Mutex::new(jobs.iter()), Mutex::new(Vec::new()));
    let take = || next.lock().unwrap_or_else(PoisonError::into_inner).next();
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(job) = take() {
                    if let Err(why) = run_one(job) {
                        println!("FAIL {}: {why:#}", job.name);
                        failed.lock().unwrap_or_else(PoisonError::into_inner).push(job.name.clone());
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if !failed.is_empty() {
        bail!("validation failed: {}", failed.join(", "));
    }
    Ok(())
}

/// Runs a job, then prints all its output.
fn run_one(job: &Job) -> Result<()> {
    let started = Instant::now();
    let (mut reader, writer) = std::io::pipe().context("making a pipe")?;
    let mut command = Command::new(std::env::current_exe().context("finding this program")?);
    command.args(&job.arguments);
    command.stdout(writer.try_clone().context("making a pipe")?).stderr(writer);
    end_with_parent(&mut command, libc::SIGTERM);
    let mut child = command.spawn().context("starting the lab again")?;
    // Closes this end of the pipe: the output ends when the other process does.
    drop(command);
    let mut output = Vec::new();
    reader.read_to_end(&mut output).context("reading the lab's output")?;
    let status = child.wait().context("waiting for the lab")?;
    let mut out = std::io::stdout().lock();
    out.write_all(&output).and_then(|()| out.flush()).context("printing")?;
    if !status.success() {
        bail!("see above");
    }
    writeln!(out, "     {}: {} s", job.name, started.elapsed().as_secs()).context("printing")
}
