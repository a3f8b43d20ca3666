//! A crash from start to finish: fetch a kernel, build the programs, boot, panic, capture, collect the results.

mod config;
mod disks;
mod images;
mod kvm;
mod outcome;
mod pstore;
mod retention;
mod run;

pub use config::Config;
pub use images::Images;
pub use outcome::{Crash, Dump};
pub use pstore::Pstore;

use crate::Architecture;
use crate::cache::{self, Key};
use crate::kernels::Kernel;
use crate::tools::Tools;
use crate::vm::Accelerator;
use crate::{build, initramfs, kmodule};
use anyhow::{Context, Result};
use lab_guest::plan;
use std::fs;
use std::path::Path;

/// Crashes a kernel as configured, or returns the same crash from the cache.
pub fn crash(config: &Config) -> Result<Crash> {
    config.check()?;
    let kernel = Kernel::get(&config.kernel)?;
    let tools = Tools::with_qemu_for(kernel.architecture)?;
    let guest = build::guest(kernel.architecture)?;
    let pagehaul = match (&config.pagehaul, config.captures.is_empty() && config.runs.is_empty()) {
        (_, true) => None,
        (Some(path), _) => Some(path.clone()),
        (None, _) => Some(build::pagehaul(kernel.architecture)?),
    };
    let plan = config.plan(kernel.architecture);
    let mut key = Key::default()
        .with(&kernel.release)
        .with_file(&guest)?
        .with(serde_json::to_vec(&plan).context("writing the guest's plan")?)
        .with(config.command_line(kernel.architecture))
        .with(format!("{} {} {} {:?}", config.memory_mib, config.cpus, config.cpu(), config.accelerator))
        .with(format!("{:?} {} {}", config.write_rate, config.dump_disk_mib, config.record))
        .with(tools.qemu_version()?);
    if let Some(path) = &pagehaul {
        key = key.with_file(path)?;
    }
    if let Some(pstore) = config.pstore {
        key = key.with(pstore.name());
    }
    if !config.after.is_empty() {
        let running = build::pagehaul_for_running(kernel.architecture)?;
        key = key.with(config.packages.join(" ")).with_file(&running)?;
    }
    if !config.prepare.is_empty() {
        key = key.with(config.packages.join(" ")).with(config.suite);
    }
    if config.nodes > 1 {
        key = key.with(format!("{} nodes", config.nodes));
    }
    if config.images {
        key = key.with("images before and after");
    }
    let crashes = cache::directory()?.join("crashes");
    let name = config.name(&plan.runs);
    let directory = crashes.join(format!("{name}-{}", key.short()));
    cache::once(&directory, |draft| {
        if config.accelerator == Accelerator::Kvm {
            kvm::probe(&tools, &kernel)?;
        }
        // Headers for modules are x86_64's; the scenario `owners` does without.
        let has_headers = kernel.architecture == Architecture::X86_64;
        let needs_module = |name: &&String| {
            !plan::WITHOUT_MODULE.contains(&name.as_str()) && (has_headers || name.as_str() != "owners")
        };
        let of_scenario = config.scenario.as_ref().filter(needs_module);
        let module = of_scenario.map(|_| kmodule::build(&kernel, kmodule::CRASH_SCENES)).transpose()?;
        let modules = config.pstore.map_or(&[][..], Pstore::modules);
        let initramfs = initramfs::build(
            &kernel,
            &tools,
            &guest,
            pagehaul.as_deref(),
            module.as_deref(),
            &plan,
            modules,
        )?;
        // The vmcore, dumps of about the same size, and the rest: an estimate, since disks grow as they are written.
        cache::room(&crashes, (if config.images { 7 } else { 2 } * config.memory_mib + 1024) << 20)?;
        run::run(config, &tools, &kernel, draft, &initramfs)
            .inspect_err(|_| keep_console(draft, &crashes, &name))
            .map_err(|error| {
                // QEMU stops a guest whose disks find no space, which looks like a guest that hangs.
                match cache::room(&crashes, 64 << 20) {
                    Ok(()) => error,
                    Err(full) => error.context(full),
                }
            })
    })
    .with_context(|| format!("crashing {}", kernel.release))?;
    retention::touch(&directory);
    retention::remove_old(&crashes, &name, &directory);
    Crash::open(directory, kernel)
}

/// Keeps the console log of a failed crash.
fn keep_console(draft: &Path, crashes: &Path, name: &str) {
    let to = crashes.join(format!("{name}.failed.log"));
    if fs::copy(draft.join("console.log"), &to).is_ok() {
        eprintln!("console log of the failed guest: {}", to.display());
    }
}
