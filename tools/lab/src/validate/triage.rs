//! Validates `pagehaul triage`: `oracle/triage.py`.

use crate::{Config, crash, oracle};
use anyhow::{Context, Result, bail};
use std::path::Path;

/// What the first finding of each scenario has to say, or the deadlock's own.
const SCENARIOS: [(&str, &str); 11] = [
    ("null", "NULL pointer dereference in scene_null_dereference"),
    ("bug", "kernel BUG in scene_bug"),
    ("use-after-free", "kernel BUG in scene_use_after_free"),
    ("stack-overflow", "stack overflow in scene_overflow_stack"),
    ("deadlock", "deadlock: scene-"),
    ("rwsem", "rw_semaphore scene_table [crash_scenes], held by scene-writer/"),
    ("lockup", "in scene_spin"),
    ("oom", "the machine ran out of memory"),
    ("vmalloc", "of vmalloc areas are freed but not purged"),
    ("reclaim", "tasks reclaim memory"),
    ("suspended", "dm-0 is suspended"),
];

/// Names of the scenarios.
pub fn names() -> [&'static str; SCENARIOS.len()] {
    SCENARIOS.map(|(name, _)| name)
}

/// Validates `pagehaul` on a crash by SysRq c, then on one of each scenario.
pub fn validate(kernel: &str, pagehaul: &Path, scenarios: &[String]) -> Result<()> {
    run(&Config { kernel: kernel.into(), ..Config::default() }, pagehaul, "crashed the machine on purpose")?;
    for name in scenarios {
        let Some((_, expected)) = SCENARIOS.iter().find(|(known, _)| known == name) else {
            bail!("scenario {name} is unknown: expected one of {}", names().join(", "));
        };
        // The capture kernel has to start on the boot CPU, whichever task panics.
        let config = Config {
            kernel: kernel.into(),
            cpus: 1,
            fill: 20,
            scenario: Some(name.clone()),
            ..Config::default()
        };
        run(&config, pagehaul, expected)?;
    }
    Ok(())
}

fn run(config: &Config, pagehaul: &Path, expected: &str) -> Result<()> {
    println!("== {} {}", config.kernel, config.scenario.as_deref().unwrap_or("sysrq"));
    let crash = crash(config)?;
    let mut command = oracle::script("triage.py")?;
    command.args([crash.vmcore(), crash.vmlinux()?]).arg(pagehaul).arg(expected);
    if !command.status().context("running triage.py")?.success() {
        bail!("validation failed: see above");
    }
    Ok(())
}
