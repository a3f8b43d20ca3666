//! Whether KVM works here. A /dev/kvm that opens does not mean that guests run.

use crate::kernels::Kernel;
use crate::socket_directory;
use crate::tools::Tools;
use crate::vm::{Accelerator, Machine};
use anyhow::{Context, Result, bail};
use std::fs;
use std::time::Duration;

/// Fails unless a guest boots with KVM.
pub(super) fn probe(tools: &Tools, kernel: &Kernel) -> Result<()> {
    let directory = socket_directory::make()?;
    let empty = directory.path().join("initramfs");
    fs::write(&empty, crate::cpio::Archive::default().finish()).context("writing an empty initramfs")?;
    let mut vm = Machine {
        tools,
        kernel: &kernel.image()?,
        initramfs: &empty,
        // Without an init the kernel panics: getting that far is the test.
        command_line: "console=ttyS0 panic=-1",
        memory_mib: 512,
        cpus: 1,
        cpu: "host",
        accelerator: Accelerator::Kvm,
        disks: &[],
        network: false,
        clock: None,
        devices: &[],
        arguments: &[],
        directory: directory.path(),
        silence: Duration::from_secs(15),
        limit: Duration::from_secs(30),
        boot: Duration::MAX,
    }
    .start()?;
    let mut booted = false;
    let result = vm.next_message(|_| {
        booted = true;
        Ok(())
    });
    match (booted, result) {
        (true, _) => Ok(()),
        (false, Err(why)) => Err(why.context("--accel kvm: KVM does not run guests on this machine")),
        (false, Ok(_)) => bail!("--accel kvm: KVM does not run guests on this machine{}", vm.console_tail()),
    }
}
