//! Validates cores of processes on arm64: the tests of `pagehaul core` run in a guest, since QEMU's emulation of single programs
//! has no ptrace, and drgn on the host reads cores made there.

use crate::apt::{Apt, unpack};
use crate::cpio::Archive;
use crate::kernels::Kernel;
use crate::socket_directory;
use crate::tools::Tools;
use crate::vm::{Accelerator, Machine, Vm};
use crate::{Architecture, build, cache, disk, modules, oracle};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Where Debian's shell and its commands come from.
const SUITE: &str = "bookworm";
/// Pointer authentication, and vectors of the Scalable Vector Extension. QEMU's own cipher is faster than the architected one.
const CPU: &str = "max,pauth-impdef=on";
/// Tests that call setpriv(1) of util-linux, which busybox has not; that expect libraries in the subject, which is static here; and
/// of a user's limit on threads, which may not open its earlier core in the guest.
const SKIPPED: [&str; 4] = [
    "other_users_processes_are_refused",
    "a_snapshot_that_could_not_be_killed_is_not_made",
    "kinds_are_included_and_excluded",
    "cores_are_written_with_the_threads_there_are",
];
const CORES_BYTES: u64 = 256 << 20;
const TIME_LIMIT: Duration = Duration::from_secs(3600);
/// Without output: the longest test takes a minute.
const SILENCE: Duration = Duration::from_secs(900);

/// Validates `pagehaul core` in a guest with a kernel of the lab, and its cores with the `pagehaul` of this machine.
pub fn validate(kernel: &str, pagehaul: &Path) -> Result<()> {
    let kernel = Kernel::get(kernel)?;
    let architecture = kernel.architecture;
    ensure!(
        architecture == Architecture::Arm64,
        "{} runs on {}: choose an arm64 kernel",
        kernel.release,
        architecture.debian()
    );
    let tools = Tools::with_qemu_for(architecture)?;
    let sockets = socket_directory::make()?;
    let directory = sockets.path();
    let path = directory.join("initramfs");
    fs::write(&path, initramfs(&kernel, &tools)?).context("writing the initramfs")?;
    let disks = [disk::raw(directory, "cores", CORES_BYTES)?];
    let mut vm = Machine {
        tools: &tools,
        kernel: &kernel.image()?,
        initramfs: &path,
        command_line: &format!("console={} panic=-1 nowatchdog quiet", architecture.console()),
        memory_mib: 2048,
        cpus: 2,
        cpu: CPU,
        accelerator: Accelerator::Tcg,
        disks: &disks,
        network: false,
        clock: None,
        devices: &[],
        arguments: &[],
        directory,
        silence: SILENCE,
        limit: TIME_LIMIT,
        boot: Duration::MAX,
    }
    .start()?;
    let result = follow(&mut vm);
    drop(vm);
    result.with_context(|| format!("cores on {}", kernel.release))?;
    let cores = directory.join("cores");
    cache::make(&cores)?;
    let untar =
        Command::new("tar").arg("-xf").arg(directory.join("cores.disk")).arg("-C").arg(&cores).status();
    ensure!(untar.context("running tar")?.success(), "the guest's cores cannot be unpacked");
    let mut command = oracle::script("process_arm64.py")?;
    ensure!(
        command.arg(pagehaul).arg(&cores).status().context("running process_arm64.py")?.success(),
        "see above"
    );
    Ok(())
}

fn initramfs(kernel: &Kernel, tools: &Tools) -> Result<Vec<u8>> {
    let programs = build::process_tests()?;
    let read = |path: &Path| fs::read(path).with_context(|| path.display().to_string());
    let mut archive = Archive::default();
    archive.console();
    let skipped: String = SKIPPED.iter().map(|name| format!(" --skip {name}")).collect();
    let init = include_str!("process_arm64.sh").replace("{skipped}", &skipped);
    archive.file("/init", init.as_bytes());
    archive.file("/bin/busybox", &busybox()?);
    for (number, module) in
        modules::load_order(kernel, tools, &["virtio_pci", "virtio_blk"])?.iter().enumerate()
    {
        archive.file(&format!("/modules/{number:02}-{}.ko", module.name), &module.content);
    }
    // The test looks for its subject there, and for pagehaul where it was built.
    archive.file("/test/deps/core", &read(&programs.test)?);
    archive.file("/test/examples/subject", &read(&programs.subject)?);
    let pagehaul = read(&programs.pagehaul)?;
    archive.file(&programs.pagehaul.display().to_string(), &pagehaul);
    archive.file("/bin/pagehaul", &pagehaul);
    Ok(archive.finish())
}

/// Returns Debian's shell and its commands in one static program.
fn busybox() -> Result<Vec<u8>> {
    let tree = cache::directory()?.join("tools").join("busybox-arm64");
    cache::once(&tree, |draft| {
        let apt = Apt::with_packages_for(Architecture::Arm64, &[SUITE], false)?;
        unpack(&apt.download("busybox-static")?, draft)
    })
    .context("fetching busybox-static")?;
    let found =
        ["bin/busybox", "usr/bin/busybox"].into_iter().find_map(|path| fs::read(tree.join(path)).ok());
    found.context("the package busybox-static has no busybox")
}

fn follow(vm: &mut Vm) -> Result<()> {
    loop {
        let Some((what, detail)) = vm.next_message(|panic| bail!("{panic}"))? else {
            bail!("the guest ended before its tests{}", vm.console_tail());
        };
        match what.as_str() {
            "test" => println!("     {detail}"),
            "done" if detail == "0" => return Ok(()),
            _ => bail!("the tests failed: see above"),
        }
    }
}
