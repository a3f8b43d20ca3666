//! Boots the guest, and follows it from the first kernel through the panic to the end of the capture.

use super::{Config, Images, disks};
use crate::Architecture;
use crate::kernels::Kernel;
use crate::socket_directory;
use crate::tools::Tools;
use crate::vm::{Machine, Vm, with_second_try};
use anyhow::{Context, Result, bail};
use lab_guest::plan::message;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The panic that the guest program triggers.
const EXPECTED_PANIC: &str = "sysrq triggered crash";

/// How long a kernel may take to boot: twenty times as long as it does on an idle host.
const BOOT: Duration = Duration::from_secs(240);

/// Runs the guest with its disks in `draft`, and leaves only results there.
pub(super) fn run(
    config: &Config,
    tools: &Tools,
    kernel: &Kernel,
    draft: &Path,
    initramfs: &[u8],
) -> Result<()> {
    with_second_try(|| run_once(config, tools, kernel, draft, initramfs))
}

fn run_once(config: &Config, tools: &Tools, kernel: &Kernel, draft: &Path, initramfs: &[u8]) -> Result<()> {
    let path = draft.join("initramfs");
    fs::write(&path, initramfs).context("writing the initramfs")?;
    let disks = disks::make(config, kernel, tools, draft)?;
    let socket_directory = socket_directory::make()?;
    let mut arguments =
        config.pstore.map_or_else(Vec::new, |pstore| pstore.arguments(socket_directory.path()));
    arguments.extend(config.node_arguments());
    if !config.after.is_empty() {
        arguments.extend(["-action", "reboot=reset"].map(str::to_owned));
    }
    let mut vm = Machine {
        tools,
        kernel: &kernel.image()?,
        initramfs: &path,
        command_line: &config.command_line(kernel.architecture),
        memory_mib: config.memory_mib,
        cpus: config.cpus,
        cpu: config.cpu(),
        accelerator: config.accelerator,
        disks: &disks,
        network: false,
        clock: None,
        devices: &["virtio-balloon-pci"],
        arguments: &arguments,
        directory: socket_directory.path(),
        silence: Duration::from_secs(120.max(config.longest_time_limit() + 30)),
        limit: Duration::from_secs(600 + config.total_time_limit()),
        boot: BOOT,
    }
    .start()?;
    let images = config.images.then(|| Images::within(&draft.join("images")));
    let result = follow(config, kernel.architecture, images.as_ref(), &mut vm);
    drop(vm);
    let kept = fs::copy(socket_directory.path().join("console.log"), draft.join("console.log"));
    result?;
    kept.context("copying the console log")?;
    disks::collect(config, tools, draft, &disks)
}

/// Follows the guest's messages until the capture kernel has finished, and what runs after it.
fn follow(config: &Config, architecture: Architecture, images: Option<&Images>, vm: &mut Vm) -> Result<()> {
    let mut crashing = false;
    let mut captured = false;
    loop {
        let received = vm.next_message(|panic| {
            if captured || config.scenario.is_none() && !panic.contains(EXPECTED_PANIC) {
                bail!("{panic}");
            }
            // The panic can swallow the guest's last message.
            crashing = true;
            Ok(())
        })?;
        let Some((what, detail)) = received else {
            let state = match (crashing, captured) {
                (false, _) => "before the crash",
                (true, false) => "without starting its capture kernel",
                (true, true) => "in the capture kernel",
            };
            bail!("the guest ended {state}{}", vm.console_tail());
        };
        let now = vm.seconds();
        match what.as_str() {
            message::DONE => {
                eprintln!("{now:6.1} s  done");
                return Ok(());
            }
            message::FILLED => {
                images.map_or(Ok(()), |images| images.before().save(vm, config.memory_mib, architecture))?;
            }
            message::PANIC => crashing = true,
            message::CAPTURE => {
                captured = true;
                images.map_or(Ok(()), |images| images.save(vm, config.memory_mib, architecture))?;
            }
            message::BALLOON => {
                let mib: u64 = detail.parse().with_context(|| format!("balloon of {detail} MiB"))?;
                let rest = config.memory_mib.saturating_sub(mib) << 20;
                vm.qmp()?.execute("balloon", &serde_json::json!({ "value": rest }))?;
            }
            _ => {}
        }
        eprintln!("{now:6.1} s  {what} {detail}");
    }
}
