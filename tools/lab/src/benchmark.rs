//! Makes large vmcores for benchmarks: QEMU dumps a guest whose memory holds the contents of real files.

use crate::build;
use crate::cache::{self, Key};
use crate::disk;
use crate::initramfs;
use crate::kernels::Kernel;
use crate::socket_directory;
use crate::tools::Tools;
use crate::vm::{Accelerator, Machine, Vm};
use anyhow::{Context, Result, bail};
use lab_guest::plan::{self, Fill, Plan, message};
use serde_json::json;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The guest to dump.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of a kernel series.
    pub kernel: String,
    /// Guest memory in MiB.
    pub memory_mib: u64,
    /// Directory whose files fill the guest's memory.
    pub files: PathBuf,
    /// How QEMU executes the guest's instructions.
    pub accelerator: Accelerator,
}

/// Dumps a guest as configured, or finds the dump in the cache, and returns the vmcore's path. The cache key does not
/// include the contents of `files`.
pub fn dump_guest(config: &Config) -> Result<PathBuf> {
    if config.memory_mib < 1024 {
        bail!("a benchmark input of {} MiB: the minimum is 1024", config.memory_mib);
    }
    let tools = Tools::get()?;
    let kernel = Kernel::get(&config.kernel)?;
    kernel.require_host_architecture()?;
    let guest = build::guest(kernel.architecture)?;
    let plan = Plan {
        // The rest holds the kernel, and stays free.
        fill: Fill::Files { cache_mib: config.memory_mib * 40 / 100, anon_mib: config.memory_mib * 35 / 100 },
        capture_command_line: String::new(),
        save_vmcore: false,
        runs: Vec::new(),
        scenario: None,
        crash_cpu: 0,
        before: Vec::new(),
        whole_iomem: false,
        images: false,
        prepare: Vec::new(),
        after: Vec::new(),
    };
    // The key does not include the guest program: other builds fill memory the same way, and large inputs are kept.
    let key = Key::default()
        .with(&kernel.release)
        .with(serde_json::to_vec(&plan).context("writing the guest's plan")?)
        .with(config.files.display().to_string())
        .short();
    let name = format!("{}-{}M-{key}", config.kernel, config.memory_mib);
    let directory = cache::directory()?.join("benchmark").join(name);
    cache::once(&directory, |draft| {
        let image = initramfs::build(&kernel, &tools, &guest, None, None, &plan, &[])?;
        let path = draft.join("initramfs");
        fs::write(&path, image).context("writing the initramfs")?;
        boot(config, &tools, &kernel, draft)?;
        fs::remove_file(path).context("removing the initramfs")
    })
    .with_context(|| format!("dumping a guest with {}", kernel.release))?;
    Ok(directory.join("vmcore"))
}

fn boot(config: &Config, tools: &Tools, kernel: &Kernel, draft: &Path) -> Result<()> {
    let wanted = config.memory_mib << 20;
    let source = draft.join("files");
    let bytes = gather(&config.files, &source, wanted / 100 * 85)?;
    eprintln!("{} MiB of files from {}", bytes >> 20, config.files.display());
    let files =
        disk::ext4(tools, draft, plan::disk::FILES, bytes + bytes / 10 + (256 << 20), 4096, Some(&source))?;
    fs::remove_dir_all(&source).context("removing the gathered files")?;
    let sockets = socket_directory::make()?;
    let mut vm = Machine {
        tools,
        kernel: &kernel.image()?,
        initramfs: &draft.join("initramfs"),
        command_line: "console=ttyS0 panic=-1 nowatchdog no_timer_check random.trust_cpu=on",
        memory_mib: config.memory_mib,
        cpus: 2,
        cpu: "Haswell-noTSX",
        accelerator: config.accelerator,
        disks: std::slice::from_ref(&files),
        network: false,
        clock: None,
        devices: &["vmcoreinfo"],
        arguments: &[],
        directory: sockets.path(),
        silence: Duration::from_secs(900),
        limit: Duration::from_secs(1800),
        boot: Duration::MAX,
    }
    .start()?;
    wait_until_filled(&mut vm)?;
    let vmcore = draft.join("vmcore");
    let mut qmp = vm.qmp()?;
    qmp.limit(Duration::from_secs(900))?;
    let protocol = format!("file:{}", vmcore.display());
    qmp.execute("dump-guest-memory", &json!({ "paging": false, "protocol": protocol, "format": "elf" }))?;
    eprintln!("{:6.1} s  dumped", vm.seconds());
    drop(vm);
    let kept = fs::copy(sockets.path().join("console.log"), draft.join("console.log"));
    kept.context("keeping the console's log")?;
    fs::remove_file(&files.path).context("removing the disk of files")
}

fn wait_until_filled(vm: &mut Vm) -> Result<()> {
    loop {
        let Some((what, detail)) = vm.next_message(|panic| bail!("{panic}"))? else {
            bail!("the guest ended before it was filled{}", vm.console_tail());
        };
        eprintln!("{:6.1} s  {what} {detail}", vm.seconds());
        if what == message::FILLED {
            return Ok(());
        }
    }
}

/// Copies files from the tree `from` until there are `wanted` bytes, as numbered files in directories of a thousand.
/// Skips unreadable files.
fn gather(from: &Path, into: &Path, wanted: u64) -> Result<u64> {
    let mut paths = Vec::new();
    let device = fs::metadata(from).with_context(|| from.display().to_string())?.dev();
    list(from, device, &mut paths);
    // The order depends only on the names, and mixes file types.
    paths.sort_by_key(|path| Key::default().with(path.as_os_str().as_encoded_bytes()).short());
    let mut bytes = 0;
    for (i, path) in paths.iter().enumerate() {
        if bytes >= wanted {
            break;
        }
        let directory = into.join(format!("{:03}", i / 1000));
        cache::make(&directory)?;
        bytes += fs::copy(path, directory.join(format!("{:03}", i % 1000))).unwrap_or(0);
    }
    if bytes < wanted {
        bail!(
            "{} holds {} MiB of files, fewer than the {} needed: name another directory with --files",
            from.display(),
            bytes >> 20,
            wanted >> 20
        );
    }
    Ok(bytes)
}

/// Lists non-empty files of a directory tree, on one file system.
fn list(directory: &Path, device: u64, paths: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.dev() != device {
            continue;
        }
        if metadata.is_dir() {
            list(&entry.path(), device, paths);
        } else if metadata.is_file() && (1..1 << 30).contains(&metadata.len()) {
            paths.push(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_copied_until_there_are_enough() {
        let from = tempfile::tempdir().unwrap();
        for i in 0..20 {
            fs::write(from.path().join(format!("file{i}")), vec![1; 100]).unwrap();
        }
        fs::write(from.path().join("empty"), "").unwrap();
        let into = from.path().join("gathered");
        assert_eq!(gather(from.path(), &into, 950).unwrap(), 1000);
        assert_eq!(fs::read_dir(into.join("000")).unwrap().count(), 10);
        let error = gather(from.path(), &into, 1 << 40).unwrap_err().to_string();
        assert!(error.contains("--files"), "{error}");
    }
}
