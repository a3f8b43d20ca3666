//! Validates `pagehaul triage`: `oracle/triage.py`.

use super::several::{self, Job};
use crate::kernels::Kernel;
use crate::{Config, crash, debuginfo, oracle};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitStatus;

/// What the first finding of each scenario has to say, or the deadlock's own.
const SCENARIOS: [(&str, &str); 25] = [
    ("null", "NULL pointer dereference in scene_null_dereference"),
    ("null-call", "called a NULL pointer from scene_call_null"),
    ("bug", "kernel BUG in scene_bug"),
    ("use-after-free", "kernel BUG in scene_use_after_free"),
    ("stack-overflow", "stack overflow in scene_overflow_stack"),
    ("deadlock", "deadlock: scene-"),
    ("rwsem", "rw_semaphore scene_table [crash_scenes], held by scene-writer/"),
    ("rtlock", "spinlock scene_counter [crash_scenes], held by scene-holder/"),
    ("irqs-off", "CPU 1 spins with interrupts off in scene_spin_without_interrupts"),
    ("work", "scene_work_function"),
    ("lockup", "in scene_spin"),
    ("oom", "the machine ran out of memory"),
    ("vmalloc", "of vmalloc areas are freed but not purged"),
    ("reclaim", "tasks reclaim memory"),
    ("suspended", "dm-0 is suspended"),
    // For `lab/tests/erase.rs`.
    ("keys", "crashed the machine on purpose"),
    // For `lab/tests/keep.rs`.
    ("patterns", "crashed the machine on purpose"),
    // The largest owners of memory.
    ("owners", "crashed the machine on purpose"),
    // For `tools/scale/src/bin/scale-owners`.
    ("crowd", "crashed the machine on purpose"),
    ("oom-tmpfs", "the machine ran out of memory: tmpfs /scene "),
    ("oom-deleted", "deleted files held by scene-logger/1"),
    ("oom-slab", "the machine ran out of memory: slab cache "),
    ("oom-vmalloc", " BPF maps scene_map "),
    ("oom-page-tables", " processes scene-tables "),
    ("oom-cgroup", "the memory cgroup /scene is full: "),
];

/// Crashes of a scenario that depends on the moment. Of the first five, two came when kswapd alone reclaimed memory.
const ATTEMPTS: u32 = 4;
/// Exit status of the script if the kernel was not doing at the crash what the scenario is about.
const OTHER_MOMENT: i32 = 3;

/// Kernels and their scenarios among `all`; `make test-full` tries others.
const AMONG_ALL: [(&str, &[&str]); 4] = [
    // The longest first.
    ("6.12", &["null", "deadlock", "vmalloc"]),
    ("5.10", &[]),
    ("6.1", &[]),
    ("7.2", &["oom", "owners"]),
];

/// CPUs of a scenario. With one, the capture kernel starts on the boot CPU as it has to, whichever task panics.
pub fn cpus(scenario: &str) -> u32 {
    if scenario == "irqs-off" { 2 } else { 1 }
}

/// Names of the scenarios.
pub fn names() -> [&'static str; SCENARIOS.len()] {
    SCENARIOS.map(|(name, _)| name)
}

/// Validates `pagehaul` on a crash by SysRq c, then on one of each scenario.
/// `all` kernels have scenarios of their own.
pub fn validate(kernel: &str, pagehaul: &Path, scenarios: &[String]) -> Result<()> {
    if kernel == "all" {
        return validate_all(pagehaul);
    }
    run(&Config { kernel: kernel.into(), ..Config::default() }, pagehaul, "crashed the machine on purpose")?;
    for name in scenarios {
        let Some((_, expected)) = SCENARIOS.iter().find(|(known, _)| known == name) else {
            bail!("scenario {name} is unknown: expected one of {}", names().join(", "));
        };
        let config = Config {
            kernel: kernel.into(),
            cpus: cpus(name),
            fill: 20,
            scenario: Some(name.clone()),
            ..Config::default()
        };
        match name.as_str() {
            "reclaim" => reclaim(&config, pagehaul, expected)?,
            "owners" => owners(&config, pagehaul)?,
            _ => run(&config, pagehaul, expected)?,
        }
    }
    Ok(())
}

/// Crashes until tasks reclaim memory at that moment, which drgn decides.
fn reclaim(config: &Config, pagehaul: &Path, expected: &str) -> Result<()> {
    for attempt in 1..=ATTEMPTS {
        // The kernel ignores the parameter, but each attempt is a crash of its own in the cache.
        let append = if attempt > 1 { format!("lab.attempt={attempt}") } else { String::new() };
        let config = Config { append, ..config.clone() };
        let status = script(&config, pagehaul, expected, &["reclaim"])?;
        match status.code() {
            Some(0) => return Ok(()),
            Some(OTHER_MOMENT) => println!("attempt {attempt}: too few tasks reclaimed memory at the crash"),
            _ => bail!("validation failed: see above"),
        }
    }
    bail!("in {ATTEMPTS} crashes, too few tasks reclaimed memory")
}

/// Compares the owners of memory with what the guest took, and with its /proc/meminfo.
fn owners(config: &Config, pagehaul: &Path) -> Result<()> {
    println!("== {} owners", config.kernel);
    let crash = crash(config)?;
    let mut command = oracle::script("owners.py")?;
    command.arg(pagehaul).arg(crash.vmcore()).arg(crash.console());
    match crash.vmlinux() {
        Ok(vmlinux) => drop(command.arg(vmlinux)),
        Err(why) => println!("     without drgn: {why:#}"),
    }
    if !command.status().context("running owners.py")?.success() {
        bail!("validation failed: see above");
    }
    Ok(())
}

fn validate_all(pagehaul: &Path) -> Result<()> {
    let job = |(kernel, scenarios): (&str, &[&str])| {
        let scenarios = scenarios.iter().flat_map(|name| ["--scenario", name]);
        let words = ["validate-triage", "--kernel", kernel].into_iter().chain(scenarios);
        let mut arguments: Vec<OsString> = words.map(OsString::from).collect();
        arguments.extend(["--pagehaul".into(), pagehaul.into()]);
        Job { name: format!("triage on {kernel}"), arguments }
    };
    for (kernel, _) in AMONG_ALL {
        debuginfo::get(&Kernel::get(kernel)?)?;
    }
    oracle::python()?;
    several::run(&AMONG_ALL.map(job))
}

fn run(config: &Config, pagehaul: &Path, expected: &str) -> Result<()> {
    if !script(config, pagehaul, expected, &[])?.success() {
        bail!("validation failed: see above");
    }
    Ok(())
}

fn script(config: &Config, pagehaul: &Path, expected: &str, moment: &[&str]) -> Result<ExitStatus> {
    println!("== {} {}", config.kernel, config.scenario.as_deref().unwrap_or("sysrq"));
    let crash = crash(config)?;
    let mut command = oracle::script("triage.py")?;
    command.args([crash.vmcore(), crash.vmlinux()?]).arg(pagehaul).arg(expected).args(moment);
    command.status().context("running triage.py")
}
