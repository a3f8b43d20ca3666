//! Workloads: boots a kernel, runs scripts in a Debian tree with pagehaul, and collects the files they write.

use crate::cache;
use crate::disk::{self, Disk};
use crate::kernels::Kernel;
use crate::socket_directory;
use crate::tools::Tools;
use crate::vm::{Accelerator, Machine, Vm};
use crate::{build, initramfs, tree};
use anyhow::{Context, Result, bail};
use lab_guest::plan::message;
use lab_guest::workload::{self, Workload};
pub use lab_guest::workload::{Step, StepReport, WorkloadReport};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The machine to boot and the scripts to run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of a kernel series.
    pub kernel: String,
    /// Guest memory in MiB.
    pub memory_mib: u64,
    /// CPUs.
    pub cpus: u32,
    /// Size of the scratch disk in MiB. The image is sparse.
    pub scratch_mib: u64,
    /// Size of the swap disk in MiB. 0: no such disk.
    pub swap_mib: u64,
    /// Appended to the kernel's command line.
    pub append: String,
    /// Debian packages to unpack into the tree, with their dependencies.
    pub packages: Vec<String>,
    /// Host files, with their paths in the guest.
    pub files: Vec<(PathBuf, String)>,
    /// The scripts.
    pub steps: Vec<Step>,
    /// The pagehaul for /usr/local/bin. By default the lab builds it from this workspace.
    pub pagehaul: Option<PathBuf>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            kernel: "6.12".into(),
            memory_mib: 768,
            cpus: 2,
            scratch_mib: 4096,
            swap_mib: 512,
            append: String::new(),
            packages: Vec::new(),
            files: Vec::new(),
            steps: Vec::new(),
            pagehaul: None,
        }
    }
}

/// Size of the disk for results.
const OUT_BYTES: u64 = 1 << 30;
/// Time for the boot and between steps.
const SLACK: Duration = Duration::from_secs(180);

/// Boots the guest, runs the steps, and copies the files in the guest's `/out` and the console log to the directory
/// `out`, which is replaced.
pub fn run(config: &Config, out: &Path) -> Result<WorkloadReport> {
    let kernel = Kernel::get(&config.kernel)?;
    let tools = Tools::with_qemu_for(kernel.architecture)?;
    let guest = build::guest(kernel.architecture)?;
    let pagehaul = match &config.pagehaul {
        Some(path) => path.clone(),
        None => build::pagehaul_for_running(kernel.architecture)?,
    };
    let packages: Vec<&str> = config.packages.iter().map(String::as_str).collect();
    let tree = tree::get(kernel.architecture, &packages)?;
    if out.exists() {
        fs::remove_dir_all(out).with_context(|| format!("removing the old {}", out.display()))?;
    }
    cache::make(out)?;
    let draft = draft()?;
    let path = draft.path().join("initramfs");
    let workload = Workload { steps: config.steps.clone() };
    let initramfs = initramfs::build_for_workload(&kernel, &tools, &guest, &workload)?;
    fs::write(&path, initramfs).context("writing the initramfs")?;
    let disks = disks(config, &tools, &tree, &pagehaul, draft.path())?;
    let sockets = socket_directory::make()?;
    let longest = config.steps.iter().map(|step| step.time_limit).max().unwrap_or(0);
    let total: u64 = config.steps.iter().map(|step| step.time_limit).sum();
    let mut vm = Machine {
        tools: &tools,
        kernel: &kernel.image()?,
        initramfs: &path,
        command_line: format!(
            "console={} panic=-1 nowatchdog no_timer_check random.trust_cpu=on {}",
            kernel.architecture.console(),
            config.append
        )
        .trim(),
        memory_mib: config.memory_mib,
        cpus: config.cpus,
        cpu: kernel.architecture.cpu(),
        accelerator: Accelerator::Tcg,
        disks: &disks,
        network: false,
        clock: None,
        devices: &[],
        arguments: &[],
        directory: sockets.path(),
        silence: Duration::from_secs(longest) + SLACK,
        limit: Duration::from_secs(total) + SLACK,
        boot: Duration::MAX,
    }
    .start()?;
    let result = follow(&mut vm);
    drop(vm);
    fs::copy(sockets.path().join("console.log"), out.join("console.log"))
        .context("copying the console log")?;
    result.with_context(|| format!("a workload on {}", kernel.release))?;
    let disk = disks.iter().find(|disk| disk.serial == workload::disk::OUT).context("a disk of the guest")?;
    disk::extract_all(&tools, disk, out)?;
    let path = out.join(workload::REPORT);
    let text = fs::read(&path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| path.display().to_string())
}

/// Makes the disk with a Debian tree, pagehaul, and files with their paths in the guest.
pub(crate) fn root_disk(
    tools: &Tools,
    tree: &Path,
    pagehaul: Option<&Path>,
    files: &[(PathBuf, String)],
    draft: &Path,
) -> Result<Disk> {
    let root = draft.join("tree");
    tree::share(tree, &root)?;
    let mut bytes = directory_bytes(tree);
    let place = pagehaul.map(|path| (path.to_owned(), "/usr/local/bin/pagehaul".to_owned()));
    for (from, to) in place.iter().chain(files) {
        let to = root.join(to.trim_start_matches('/'));
        if let Some(directory) = to.parent() {
            cache::make(directory)?;
        }
        bytes += fs::copy(from, &to).with_context(|| format!("copying {}", from.display()))?;
    }
    let disk =
        disk::ext4(tools, draft, workload::disk::ROOT, bytes * 5 / 4 + (128 << 20), 4096, Some(&root))?;
    fs::remove_dir_all(&root).with_context(|| root.display().to_string())?;
    Ok(disk)
}

fn disks(config: &Config, tools: &Tools, tree: &Path, pagehaul: &Path, draft: &Path) -> Result<Vec<Disk>> {
    let mut disks = vec![
        root_disk(tools, tree, Some(pagehaul), &config.files, draft)?,
        disk::ext4(tools, draft, workload::disk::OUT, OUT_BYTES, 4096, None)?,
        disk::ext4(tools, draft, workload::disk::SCRATCH, config.scratch_mib << 20, 4096, None)?,
    ];
    if config.swap_mib > 0 {
        disks.push(disk::raw(draft, workload::disk::SWAP, config.swap_mib << 20)?);
    }
    Ok(disks)
}

fn follow(vm: &mut Vm) -> Result<()> {
    loop {
        let Some((what, detail)) = vm.next_message(|panic| bail!("{panic}"))? else {
            bail!("the guest ended before its workload{}", vm.console_tail());
        };
        eprintln!("{:6.1} s  {what} {detail}", vm.seconds());
        if what == message::DONE {
            return Ok(());
        }
    }
}

/// Returns the size of a directory tree in blocks of 4 KiB.
fn directory_bytes(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    let of_one = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => 4096 + directory_bytes(&entry.path()),
        Ok(metadata) => metadata.len().next_multiple_of(4096),
        Err(_) => 0,
    };
    entries.flatten().map(of_one).sum()
}

/// Makes a directory in the cache for disks, which is removed when dropped.
fn draft() -> Result<tempfile::TempDir> {
    let parent = cache::directory()?.join("workloads");
    cache::make(&parent)?;
    tempfile::tempdir_in(&parent).with_context(|| parent.display().to_string())
}
