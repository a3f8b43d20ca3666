//! A crash from beginning to end: fetch, build, boot, panic, capture, bring out.

use crate::cache::{self, Key};
use crate::disk::{self, Disk};
use crate::initramfs;
use crate::kernels::Kernel;
use crate::outcome::Crash;
use crate::tools::Tools;
use crate::vm::{Accelerator, Machine, Vm};
use crate::{build, vm};
use anyhow::{Context, Result, bail};
use lab_guest::order::{self, Fill, Order, Run, say};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// What to crash, and what to run in the capture kernel.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of a kernel series, as in [`kernels::SERIES`](crate::kernels::SERIES).
    pub kernel: String,
    /// MiB of guest memory.
    pub memory_mib: u64,
    /// CPUs, of the capture kernel too.
    pub cpus: u32,
    /// QEMU's CPU model. `Haswell-noTSX` works with every kernel here; `max` has 5-level page tables.
    pub cpu: String,
    /// See [`Accelerator`].
    pub accelerator: Accelerator,
    /// Added to the first kernel's command line.
    pub append: String,
    /// Value of `crashkernel=`.
    pub crashkernel: String,
    /// Percent of available memory to fill with stamps.
    pub fill: u32,
    /// Arguments of each run of `pagehaul capture` in the capture kernel, without source and output. Where
    /// an argument is `{out}` they stand for the whole command line instead.
    pub captures: Vec<Vec<String>>,
    /// The pagehaul to run; by default it is built from this workspace.
    pub pagehaul: Option<PathBuf>,
    /// Seconds a run may take.
    pub time_limit: u64,
    /// Runs after the captures, of any program.
    pub runs: Vec<Run>,
    /// Folders copied to the disk for results, and what they are called there.
    pub tools: Vec<(PathBuf, &'static str)>,
    /// Bytes per second that the disks for results and dumps write at most.
    pub write_rate: Option<u64>,
    /// MiB of the raw disk for dumps; none where it is 0.
    pub dump_disk_mib: u64,
    /// Whether the whole of /proc/vmcore is saved.
    pub save_vmcore: bool,
    /// Whether to keep what the disks for results and dumps were before the runs, and all that they were told since.
    pub record: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            kernel: "6.12".into(),
            memory_mib: 640,
            cpus: 2,
            cpu: "Haswell-noTSX".into(),
            accelerator: Accelerator::default(),
            append: String::new(),
            crashkernel: "256M".into(),
            fill: 60,
            captures: Vec::new(),
            pagehaul: None,
            time_limit: 300,
            runs: Vec::new(),
            tools: Vec::new(),
            write_rate: None,
            dump_disk_mib: 0,
            save_vmcore: true,
            record: false,
        }
    }
}

/// Results that other versions of the programs made stay for so long after their last use: somebody may be at work with
/// them.
const IN_USE: Duration = Duration::from_secs(3600);
/// Any result stays for so long after its last use.
const WANTED: Duration = Duration::from_secs(7 * 24 * 3600);
/// The panic that the guest is to have.
const ORDERED_PANIC: &str = "sysrq triggered crash";
/// Room for a manifest.
const MANIFEST_BYTES: u64 = 16 << 20;

/// Crashes a kernel as described, or finds the same crash in the cache.
pub fn crash(config: &Config) -> Result<Crash> {
    check(config)?;
    let tools = Tools::get()?;
    let kernel = Kernel::get(&config.kernel)?;
    let guest = build::guest()?;
    let pagehaul = match (&config.pagehaul, config.captures.is_empty() && config.runs.is_empty()) {
        (_, true) => None,
        (Some(path), _) => Some(path.clone()),
        (None, _) => Some(build::pagehaul()?),
    };
    let order = order(config);
    let mut key = Key::default()
        .with(&kernel.release)
        .with_file(&guest)?
        .with(serde_json::to_vec(&order).context("writing the guest's order")?)
        .with(command_line(config))
        .with(format!("{} {} {} {:?}", config.memory_mib, config.cpus, config.cpu, config.accelerator))
        .with(format!("{:?} {} {}", config.write_rate, config.dump_disk_mib, config.record))
        .with(tools.qemu_version()?);
    if let Some(path) = &pagehaul {
        key = key.with_file(path)?;
    }
    let crashes = cache::folder()?.join("crashes");
    let name = name(config, &order.runs);
    let folder = crashes.join(format!("{name}-{}", key.short()));
    cache::once(&folder, |draft| {
        if config.accelerator == Accelerator::Kvm {
            probe(&tools, &kernel)?;
        }
        let initramfs = initramfs::build(&kernel, &tools, &guest, pagehaul.as_deref(), &order)?;
        let job = Job { config, tools: &tools, kernel: &kernel, draft };
        // The vmcore, dumps of about as much, and the rest: an estimate, since disks grow as they are written.
        cache::room(&crashes, (2 * config.memory_mib + 1024) << 20)?;
        job.run(&initramfs).inspect_err(|_| keep_console(draft, &crashes, &name)).map_err(|error| {
            // QEMU stops a guest whose disks find no room, which looks like a guest that hangs.
            match cache::room(&crashes, 64 << 20) {
                Ok(()) => error,
                Err(full) => error.context(full),
            }
        })
    })
    .with_context(|| format!("crashing {}", kernel.release))?;
    touch(&folder);
    forget(&crashes, &name, &folder);
    Crash::open(folder, kernel)
}

fn check(config: &Config) -> Result<()> {
    if config.memory_mib < 512 || config.memory_mib > 1 << 20 {
        bail!("guests of {} MiB: the lab's have from 512 MiB to 1 TiB", config.memory_mib);
    }
    if config.cpus == 0 || config.cpus > 64 {
        bail!("{} CPUs: the lab's guests have from 1 to 64", config.cpus);
    }
    if let Some(path) = &config.pagehaul
        && !path.is_file()
    {
        bail!("there is no program {}", path.display());
    }
    Ok(())
}

fn order(config: &Config) -> Order {
    let mut runs: Vec<Run> = Vec::new();
    for arguments in &config.captures {
        let mut name: String = arguments.join("-").replace(|c: char| !c.is_ascii_alphanumeric(), "-");
        name = name.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
        if name.is_empty() || runs.iter().any(|run| run.name == name) {
            name = format!("{name}-{}", runs.len()).trim_start_matches('-').to_owned();
        }
        let whole = arguments.iter().any(|a| a.contains("{out}"));
        let arguments = if whole {
            arguments.clone()
        } else {
            let ends = |words: [&str; 2]| words.map(str::to_owned);
            [vec!["capture".to_owned()], arguments.clone(), ends(["/proc/vmcore", "{out}"]).to_vec()].concat()
        };
        runs.push(Run { name, arguments, time_limit: config.time_limit, ..Run::default() });
    }
    runs.extend(config.runs.iter().cloned());
    Order {
        fill: Fill::Stamps(config.fill),
        // Off in both: under translation a CPU may seem stuck for longer than watchdogs like, and the timer missing to a
        // kernel that counts its ticks for a moment only.
        capture_command_line: format!(
            "console=ttyS0 panic=-1 nowatchdog no_timer_check reset_devices nr_cpus={} cgroup_disable=memory",
            config.cpus
        ),
        save_vmcore: config.save_vmcore,
        runs,
    }
}

fn command_line(config: &Config) -> String {
    let base = "console=ttyS0 panic=-1 nowatchdog no_timer_check random.trust_cpu=on";
    format!("{base} crashkernel={} {}", config.crashkernel, config.append).trim_end().to_owned()
}

/// What results that differ only by the programs that made them have in common.
fn name(config: &Config, runs: &[Run]) -> String {
    let mut parts = vec![config.kernel.clone(), format!("{}M", config.memory_mib)];
    if config.cpus != 2 {
        parts.push(format!("{}cpus", config.cpus));
    }
    parts.push(config.cpu.clone());
    if !config.append.is_empty() {
        parts.push(config.append.replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
    }
    if config.crashkernel != "256M" {
        parts.push(config.crashkernel.clone());
    }
    if !runs.is_empty() {
        // Other runs are another purpose.
        let lines = runs.iter().map(|run| format!("{} {}", run.name, run.arguments.join(" ")));
        let key = lines.fold(Key::default(), |key, line| key.with(line)).short();
        parts.push(format!("runs_{}", key.get(..4).unwrap_or_default()));
    }
    parts.join("-")
}

struct Job<'a> {
    config: &'a Config,
    tools: &'a Tools,
    kernel: &'a Kernel,
    draft: &'a Path,
}

impl Job<'_> {
    /// Boots the guest on disks in the draft folder and leaves only results there.
    fn run(&self, initramfs: &[u8]) -> Result<()> {
        let path = self.draft.join("initramfs");
        fs::write(&path, initramfs).context("writing the initramfs")?;
        let disks = self.disks()?;
        let socket_folder = SocketFolder::new()?;
        let mut vm = Machine {
            tools: self.tools,
            kernel: &self.kernel.image()?,
            initramfs: &path,
            command_line: &command_line(self.config),
            memory_mib: self.config.memory_mib,
            cpus: self.config.cpus,
            cpu: &self.config.cpu,
            accelerator: self.config.accelerator,
            disks: &disks,
            devices: &["virtio-balloon-pci"],
            folder: &socket_folder.0,
            silence: Duration::from_secs(120.max(self.config.time_limit + 30)),
            limit: Duration::from_secs(600 + self.config.time_limit * self.runs() + self.longest_runs()),
        }
        .start()?;
        let result = self.follow(&mut vm);
        drop(vm);
        let kept = fs::copy(socket_folder.0.join("console.log"), self.draft.join("console.log"));
        result?;
        kept.context("keeping the console's log")?;
        self.collect(&disks)
    }

    /// How many captures there are.
    fn runs(&self) -> u64 {
        self.config.captures.len() as u64
    }

    /// Seconds that the other runs may take.
    fn longest_runs(&self) -> u64 {
        self.config.runs.iter().map(|run| run.time_limit).sum()
    }

    fn disks(&self) -> Result<Vec<Disk>> {
        let memory = self.config.memory_mib << 20;
        let (tools, folder) = (self.tools, self.draft);
        let kept = self.runs() + self.config.runs.iter().filter(|run| !run.discard).count() as u64;
        let discarded = u64::from(self.config.runs.iter().any(|run| run.discard));
        let out_bytes = (256 << 20) + (kept + discarded) * (memory + (64 << 20));
        let source = self.gather_tools()?;
        let mut out = match self.config.record {
            false => disk::ext4(tools, folder, order::disk::OUT, out_bytes, 4096, source.as_deref())?,
            true => disk::ext4_with_journal(tools, folder, order::disk::OUT, out_bytes)?,
        };
        out.write_rate = self.config.write_rate;
        if let Some(source) = source {
            fs::remove_dir_all(&source).with_context(|| source.display().to_string())?;
        }
        let mut disks = vec![
            out,
            disk::raw(folder, order::disk::VMCORE, memory + (256 << 20))?,
            disk::raw(folder, order::disk::MANIFEST, MANIFEST_BYTES)?,
            disk::ext4(tools, folder, order::disk::CACHE, memory.max(256 << 20), 4096, None)?,
            disk::ext4(tools, folder, order::disk::CACHE_PRIVATE, memory.max(256 << 20), 1024, None)?,
        ];
        if self.config.dump_disk_mib > 0 {
            let disk = disk::raw(folder, order::disk::DUMP, self.config.dump_disk_mib << 20)?;
            disks.push(Disk { write_rate: self.config.write_rate, ..disk });
        }
        if self.config.record {
            let recorded = |disk: &&mut Disk| [order::disk::OUT, order::disk::DUMP].contains(&disk.serial);
            disks.iter_mut().filter(recorded).try_for_each(Disk::record)?;
        }
        Ok(disks)
    }

    /// The tools in one folder, for the disk they go to.
    fn gather_tools(&self) -> Result<Option<PathBuf>> {
        if self.config.tools.is_empty() {
            return Ok(None);
        }
        let source = self.draft.join("tools");
        cache::make(&source)?;
        for (from, name) in &self.config.tools {
            crate::tree::share(from, &source.join(name))?;
        }
        Ok(Some(source))
    }

    /// Follows the guest through its crash until the capture kernel is done.
    fn follow(&self, vm: &mut Vm) -> Result<()> {
        let mut crashing = false;
        let mut captured = false;
        loop {
            let said = vm.listen(|panic| {
                if captured || !panic.contains(ORDERED_PANIC) {
                    bail!("{panic}");
                }
                // What the guest said last may be lost in the panic.
                crashing = true;
                Ok(())
            })?;
            let Some((what, detail)) = said else {
                let state = match (crashing, captured) {
                    (false, _) => "before it was to crash",
                    (true, false) => "instead of starting its capture kernel",
                    (true, true) => "in the capture kernel",
                };
                bail!("the guest ended {state}{}", vm.where_to_look());
            };
            let now = vm.seconds();
            match what.as_str() {
                say::DONE => {
                    eprintln!("{now:6.1} s  done");
                    return Ok(());
                }
                say::PANIC => crashing = true,
                say::CAPTURE => captured = true,
                say::BALLOON => {
                    let mib: u64 = detail.parse().with_context(|| format!("balloon of {detail} MiB"))?;
                    let rest = self.config.memory_mib.saturating_sub(mib) << 20;
                    vm.qmp()?.execute("balloon", &serde_json::json!({ "value": rest }))?;
                }
                _ => {}
            }
            eprintln!("{now:6.1} s  {what} {detail}");
        }
    }

    /// Turns the disks into results.
    fn collect(&self, disks: &[Disk]) -> Result<()> {
        let disk =
            |serial: &str| disks.iter().find(|disk| disk.serial == serial).context("a disk of the guest");
        let manifest = disk::open_box(disk(order::disk::MANIFEST)?)?;
        fs::write(self.draft.join("manifest.json"), manifest).context("keeping the manifest")?;
        let out = self.draft.join("out");
        cache::make(&out)?;
        disk::take_out(self.tools, disk(order::disk::OUT)?, &out)?;
        let report = crate::outcome::read_report(&out)?;
        // The disk is the vmcore, with room left at the end.
        let vmcore = self.draft.join("vmcore");
        fs::rename(&disk(order::disk::VMCORE)?.path, &vmcore)
            .and_then(|()| File::options().write(true).open(&vmcore)?.set_len(report.vmcore_bytes))
            .context("keeping the vmcore")?;
        if !self.config.save_vmcore {
            fs::remove_file(&vmcore).context("removing the empty vmcore")?;
        }
        for (_, name) in &self.config.tools {
            fs::remove_dir_all(out.join(name))
                .with_context(|| format!("removing {name} from the results"))?;
        }
        for disk in disks.iter().filter(|disk| disk.path.exists()) {
            fs::remove_file(&disk.path).with_context(|| disk.path.display().to_string())?;
        }
        fs::remove_file(self.draft.join("initramfs")).context("removing the initramfs")
    }
}

/// A folder with a path short enough for a socket; gone when dropped.
pub(crate) struct SocketFolder(pub(crate) PathBuf);

impl SocketFolder {
    pub(crate) fn new() -> Result<SocketFolder> {
        let path = std::env::temp_dir().join(format!("pagehaul-lab-{}", std::process::id()));
        cache::make(&path)?;
        Ok(SocketFolder(path))
    }
}

impl Drop for SocketFolder {
    fn drop(&mut self) {
        // What can't be removed is a few kilobytes in a temporary folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Keeps the console of a failed crash.
fn keep_console(draft: &Path, crashes: &Path, name: &str) {
    let to = crashes.join(format!("{name}.failed.log"));
    if fs::copy(draft.join("console.log"), &to).is_ok() {
        eprintln!("the console of the failed guest is kept in {}", to.display());
    }
}

/// Notes that a result is in use.
fn touch(folder: &Path) {
    // Where that fails it is forgotten early, and made again.
    let _ = File::open(folder).and_then(|file| file.set_modified(SystemTime::now()));
}

/// Removes results that programs since changed have made, but for those in use, and what nobody has asked for in a while.
/// The one just asked for stays.
fn forget(crashes: &Path, name: &str, asked: &Path) {
    let prefix = format!("{name}-");
    let Ok(entries) = fs::read_dir(crashes) else { return };
    for entry in entries.flatten().filter(|entry| entry.path() != asked) {
        let file = entry.file_name();
        // A key of twelve digits follows; "…-runs_…" has more.
        let key = file.to_str().and_then(|file| file.strip_prefix(&prefix));
        let older = key.is_some_and(|key| key.len() == 12 && !key.contains('-'));
        let kept = if older { IN_USE } else { WANTED };
        let used = entry.metadata().and_then(|metadata| metadata.modified());
        if used.is_ok_and(|used| used.elapsed().is_ok_and(|ago| ago > kept)) {
            // Somebody else may be removing it as well.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Sees whether KVM brings a guest as far as its kernel's first lines.
fn probe(tools: &Tools, kernel: &Kernel) -> Result<()> {
    let folder = SocketFolder::new()?;
    let empty = folder.0.join("initramfs");
    fs::write(&empty, crate::cpio::Archive::default().finish()).context("writing an empty initramfs")?;
    let mut vm = Machine {
        tools,
        kernel: &kernel.image()?,
        initramfs: &empty,
        // Without an init the kernel panics: that is how far it has to come.
        command_line: "console=ttyS0 panic=-1",
        memory_mib: 512,
        cpus: 1,
        cpu: "host",
        accelerator: vm::Accelerator::Kvm,
        disks: &[],
        devices: &[],
        folder: &folder.0,
        silence: Duration::from_secs(15),
        limit: Duration::from_secs(30),
    }
    .start()?;
    let mut booted = false;
    let result = vm.listen(|_| {
        booted = true;
        Ok(())
    });
    match (booted, result) {
        (true, _) => Ok(()),
        (false, Err(why)) => Err(why.context("KVM was asked for, and doesn't run guests here")),
        (false, Ok(_)) => bail!("KVM was asked for, and doesn't run guests here{}", vm.where_to_look()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_get_names_and_whole_command_lines() {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let captures =
            vec![words("-d 31 -c zstd:-3"), words("-d 31 -c zstd:3"), words(""), words("info {out}")];
        let order = order(&Config { captures, ..Config::default() });
        let names: Vec<&str> = order.runs.iter().map(|run| run.name.as_str()).collect();
        assert_eq!(names, ["d-31-c-zstd-3", "d-31-c-zstd-3-1", "2", "info-out"]);
        assert_eq!(order.runs[0].arguments, words("capture -d 31 -c zstd:-3 /proc/vmcore {out}"));
        assert_eq!(order.runs[3].arguments, words("info {out}"));
    }

    #[test]
    fn results_of_older_programs_go_once_nobody_uses_them() {
        let crashes = tempfile::tempdir().unwrap();
        let hours = |hours: u64| SystemTime::now() - Duration::from_secs(hours * 3600 + 60);
        for (name, age) in [
            ("6.12-a-0123456789aa", 0),
            ("6.12-a-0123456789ab", 5),
            ("6.12-a-0123456789ac", 0),
            ("6.12-a-runs_0123-0123456789ad", 5),
            ("6.12-a-0123456789ad", 2),
            ("6.1-b-0123456789ad", 8 * 24),
            ("6.1-b-0123456789ae", 6 * 24),
        ] {
            let path = crashes.path().join(name);
            fs::create_dir(&path).unwrap();
            File::open(&path).unwrap().set_modified(hours(age)).unwrap();
        }
        let asked = crashes.path().join("6.12-a-0123456789ac");
        touch(&asked);
        forget(crashes.path(), "6.12-a", &asked);
        let mut left: Vec<_> =
            fs::read_dir(crashes.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        let runs = "6.12-a-runs_0123-0123456789ad";
        assert_eq!(left, ["6.1-b-0123456789ae", "6.12-a-0123456789aa", "6.12-a-0123456789ac", runs]);
        // Hours without use, but the one that is asked for.
        forget(crashes.path(), "6.12-a-runs_0123", &crashes.path().join(runs));
        assert_eq!(fs::read_dir(crashes.path()).unwrap().count(), 4);
    }

    #[test]
    fn absurd_machines_are_refused() {
        for config in [
            Config { memory_mib: 64, ..Config::default() },
            Config { cpus: 0, ..Config::default() },
            Config { pagehaul: Some("/nonexistent/pagehaul".into()), ..Config::default() },
        ] {
            assert!(check(&config).is_err(), "{config:?}");
        }
        assert!(check(&Config::default()).is_ok());
    }
}
