//! The distribution's own kdump: guests with Debian's kdump-tools crash with and without pagehaul-kdump installed, and
//! Debian's scripts capture the dump.

mod encrypted;
mod findings;

use crate::apt::{self, Apt};
use crate::debuginfo;
use crate::disk::{self, Disk};
use crate::guest_tree;
use crate::kernels::Kernel;
use crate::nfs::Nfs;
use crate::server::{Server, inbox};
use crate::socket_directory;
use crate::sshd::Sshd;
use crate::tools::Tools;
use crate::validate::process::as_root;
use crate::vm::{Accelerator, Machine, Vm, with_second_try};
use crate::{build, cache, oracle};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A Debian release.
pub(crate) struct Release {
    pub(crate) suite: &'static str,
    /// The lab's kernel of the same package, for debug symbols.
    pub(crate) series: &'static str,
    /// What kdump-tools reserves by default.
    pub(crate) crashkernel: &'static str,
    /// Faults that check.sh injects.
    faults: usize,
}

/// What apt installs after the kernel, and the size of the disk.
const PACKAGES: [&str; 4] = ["kexec-tools", "makedumpfile", "kdump-tools", "openssh-client"];
const SIZE: &str = "3G";

pub(crate) const RELEASES: [Release; 2] = [
    Release { suite: "bookworm", series: "6.1", crashkernel: "128M", faults: 28 },
    Release { suite: "trixie", series: "6.12", crashkernel: "192M", faults: 26 },
];

/// The scripts, which are part of the cache's keys.
pub(crate) const IMAGE: &str = include_str!("../kdump-tools/image.sh");
const PREPARE: &str = include_str!("../kdump-tools/prepare.sh");
pub(crate) const CRASH: &str = include_str!("../kdump-tools/crash.sh");
const CHECK: &str = include_str!("../kdump-tools/check.sh");
pub(crate) const UNIT: &str = include_str!("../kdump-tools/lab.service");

/// What `kdump check` wants reserved on Debian: kdump-tools 1.8 reserves less, with which 4 CPUs ran out of memory.
const CHECKED_CRASHKERNEL: &str = "192M";

/// Offset of the size of a flattened stream's first record.
const FIRST_SIZE: u64 = 4096 + 8;
/// pagehaul writes the status word of the header, at this offset, last: the first record ends before it.
const STATUS_OFFSET: u64 = 424;

/// Where the guests' dumps go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Target {
    /// To the guest's disk, with the package installed and with it removed.
    Local,
    /// Over ssh to the host, with the package installed.
    Ssh,
    /// To the host's NFS server, with the package installed.
    Nfs,
    /// To the guest's disk, encrypted, with the package installed, and in the clear with it removed.
    Encrypted,
    /// First to the disk, then over ssh, then to the disk without the package. The others are left out: each takes
    /// another crash.
    All,
}

/// What is done to a guest before it crashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Install,
    Ssh,
    Nfs,
    /// As [`Install`](Verb::Install), with a file of recipients.
    Encrypt,
    Remove,
}

impl Verb {
    fn all(target: Target) -> &'static [Verb] {
        match target {
            Target::Local => &[Verb::Install, Verb::Remove],
            Target::Ssh => &[Verb::Ssh],
            Target::Nfs => &[Verb::Nfs],
            Target::Encrypted => &[Verb::Encrypt, Verb::Remove],
            Target::All => &[Verb::Install, Verb::Ssh, Verb::Remove],
        }
    }

    /// Its name in crash.sh.
    fn name(self) -> &'static str {
        match self {
            Verb::Install => "install",
            Verb::Ssh => "ssh",
            Verb::Nfs => "nfs",
            Verb::Encrypt => "encrypt",
            Verb::Remove => "remove",
        }
    }

    /// Who writes the dump.
    fn writer(self) -> &'static str {
        if self == Verb::Remove { "makedumpfile" } else { "pagehaul" }
    }

    /// Where the dump goes.
    fn target(self) -> &'static str {
        match self {
            Verb::Install | Verb::Remove => "local disk",
            Verb::Ssh => "ssh to the host",
            Verb::Nfs => "the host's NFS server",
            Verb::Encrypt => "local disk, encrypted",
        }
    }

    /// What the guest reserves: enough for `kdump check`, where that runs.
    fn crashkernel(self, release: &Release) -> &'static str {
        match self {
            Verb::Install | Verb::Nfs | Verb::Encrypt => CHECKED_CRASHKERNEL,
            Verb::Ssh | Verb::Remove => release.crashkernel,
        }
    }
}

/// Crashes a guest of `suite` (or of each: `all`) with the package `deb` installed, and again with it removed.
pub fn validate(suite: &str, target: Target, deb: &Path, pagehaul: &Path) -> Result<()> {
    let releases: Vec<_> =
        RELEASES.iter().filter(|release| suite == "all" || release.suite == suite).collect();
    ensure!(!releases.is_empty(), "no release {suite}: expected bookworm, trixie or all");
    for release in releases {
        with_second_try(|| validate_release(release, target, deb, pagehaul))
            .with_context(|| release.suite)?;
    }
    Ok(())
}

fn validate_release(release: &Release, target: Target, deb: &Path, pagehaul: &Path) -> Result<()> {
    let tools = Tools::get()?;
    let prepared = prepared(release, &tools)?;
    let scratch = cache::directory()?.join(format!("kdump-tools-{}", std::process::id()));
    let guest = Guest::copy(release, &tools, &prepared, &scratch)?;
    let result = guest.crash_each(Verb::all(target), deb, pagehaul, &scratch);
    // Kept on failure, to look at.
    if result.is_ok() {
        fs::remove_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
    }
    result.with_context(|| format!("the guest's disk is kept in {}", scratch.display()))
}

/// Returns the directory of a guest that has made its initramfs for the capture kernel.
pub(crate) fn prepared(release: &Release, tools: &Tools) -> Result<PathBuf> {
    let kernel = Kernel::get(release.series)?.release;
    let key = cache::Key::default()
        .with(IMAGE)
        .with(PACKAGES.concat())
        .with(PREPARE)
        .with(UNIT)
        .with(&kernel)
        .short();
    let directory = cache::directory()?.join("kdump-tools").join(format!("{}-{key}", release.suite));
    cache::once(&directory, |draft| {
        make_image(release, draft, SIZE, &PACKAGES)?;
        let guest = Guest { release, tools, directory: draft, disk: draft.join("root.disk") };
        guest.put(&[("run.sh", PREPARE.as_bytes())])?;
        let said = guest.run(Boot { crashkernel: release.crashkernel, ..Boot::default() })?;
        ensure!(
            said.iter().any(|(what, _)| what == "prepared"),
            "the guest ended before kdump-tools was ready"
        );
        disk::recover(tools, &guest.disk)
    })?;
    Ok(directory)
}

/// Makes the disk of a system with the release's kernel and packages, in their order, and what boots it.
pub(crate) fn make_image(release: &Release, draft: &Path, size: &str, packages: &[&str]) -> Result<()> {
    eprintln!("making a Debian {} system with {}", release.suite, packages.join(", "));
    let kernel = Kernel::get(release.series)?.release;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("kdump-tools/image.sh");
    let meta = fs::metadata(draft).with_context(|| draft.display().to_string())?;
    let owner = format!("{}:{}", meta.uid(), meta.gid());
    let output = as_root("sh")
        .arg(script)
        .args([release.suite, &apt::mirror()?])
        .args([draft.as_os_str(), owner.as_ref(), kernel.as_ref(), size.as_ref()])
        .args(packages)
        .output()
        .context("running image.sh")?;
    fs::write(draft.join("image.log"), [output.stdout, output.stderr].concat())
        .context("writing image.log")?;
    if !output.status.success() {
        let log = fs::read_to_string(draft.join("image.log")).unwrap_or_default();
        let tail: Vec<_> = log.lines().rev().take(5).collect();
        bail!("image.sh failed: {}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
    }
    Ok(())
}

/// A guest, and its disk.
pub(crate) struct Guest<'a> {
    pub(crate) release: &'a Release,
    pub(crate) tools: &'a Tools,
    /// Where its kernel and initramfs are.
    pub(crate) directory: &'a Path,
    pub(crate) disk: PathBuf,
}

/// How a guest boots.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Boot<'a> {
    pub(crate) crashkernel: &'a str,
    pub(crate) crashes: bool,
    pub(crate) network: bool,
    /// The time that its hardware clock has at first.
    pub(crate) clock: Option<&'a str>,
    /// How long its console may say nothing.
    pub(crate) silence: Duration,
    /// How long it may run.
    pub(crate) limit: Duration,
    pub(crate) memory_mib: u64,
    pub(crate) cpu: &'a str,
}

impl Default for Boot<'_> {
    fn default() -> Self {
        Self {
            crashkernel: "0M",
            crashes: false,
            network: false,
            clock: None,
            silence: SILENCE,
            limit: Duration::from_secs(2400),
            memory_mib: 1024,
            cpu: "Haswell-noTSX",
        }
    }
}

/// mkinitramfs says nothing for minutes.
pub(crate) const SILENCE: Duration = Duration::from_secs(900);

impl<'a> Guest<'a> {
    /// A guest with a copy of a disk in `scratch`.
    pub(crate) fn copy(
        release: &'a Release,
        tools: &'a Tools,
        prepared: &'a Path,
        scratch: &Path,
    ) -> Result<Guest<'a>> {
        cache::make(scratch)?;
        let guest = Guest { release, tools, directory: prepared, disk: scratch.join("root.disk") };
        let copied = Command::new("cp")
            .arg("--sparse=always")
            .args([prepared.join("root.disk"), guest.disk.clone()])
            .status();
        ensure!(copied.context("running cp")?.success(), "copying the guest's disk failed");
        Ok(guest)
    }

    fn crash_each(&self, verbs: &[Verb], deb: &Path, pagehaul: &Path, scratch: &Path) -> Result<()> {
        let package = fs::read(deb).with_context(|| deb.display().to_string())?;
        let checker = build::pagehaul_for_running(crate::Architecture::X86_64)?;
        let checker = fs::read(&checker).with_context(|| checker.display().to_string())?;
        let mut before = None;
        for &verb in verbs {
            let verb_line = format!("{}\n", verb.name());
            self.put(&[
                ("run.sh", CRASH.as_bytes()),
                ("check.sh", CHECK.as_bytes()),
                ("snapshot.sh", guest_tree::SNAPSHOT.as_bytes()),
                ("pagehaul", checker.as_slice()),
                ("pagehaul-kdump.deb", package.as_slice()),
                ("verb", verb_line.as_bytes()),
                ("recipients", encrypted::recipients()?.as_bytes()),
            ])?;
            let directory = scratch.join(verb.name());
            cache::make(&directory)?;
            let receiver = self.receiver(verb, &directory)?;
            let crashkernel = verb.crashkernel(self.release);
            let network = receiver.is_some();
            let said = self.run(Boot { crashkernel, crashes: true, network, ..Boot::default() })?;
            match verb {
                Verb::Install => findings::check(self, &said)?,
                Verb::Nfs => findings::check_good(self, &said)?,
                Verb::Encrypt => encrypted::check_findings(self, &said)?,
                Verb::Ssh | Verb::Remove => {}
            }
            if let Some(before @ (Verb::Install | Verb::Encrypt)) = before {
                self.check_report(&said, before)?;
            }
            self.check_set_up(verb, &said)?;
            disk::recover(self.tools, &self.disk)?;
            if verb == Verb::Install {
                guest_tree::check(self.release.suite, self, &directory)?;
            }
            let dump = match receiver {
                None => self.take_dump(&directory)?,
                Some((server, received)) => self
                    .newest_dump(&received)
                    .with_context(|| format!("the server's log: {}", server.log()))?,
            };
            let dump = if verb == Verb::Encrypt { encrypted::check(&dump, pagehaul)? } else { dump };
            self.check(&dump, verb, crashkernel, pagehaul)?;
            before = Some(verb);
        }
        Ok(())
    }

    /// Starts the server that gets the dump, if one does, and configures the guest for it. Returns the directory that gets
    /// it as well.
    fn receiver(&self, verb: Verb, directory: &Path) -> Result<Option<(Server, PathBuf)>> {
        let (server, received, settings) = match verb {
            Verb::Install | Verb::Encrypt | Verb::Remove => return Ok(None),
            Verb::Ssh => {
                let sshd = Sshd::start(directory)?;
                let received = inbox(directory)?;
                for (name, content) in sshd.client_files()? {
                    self.put(&[(name, content.as_slice())])?;
                }
                let settings = format!("SSH={}\nKDUMP_COREDIR={}\n", Sshd::target(), received.display());
                (sshd.server, received, settings)
            }
            Verb::Nfs => {
                let received = inbox(directory)?;
                let nfs = Nfs::start(directory, &received)?;
                let client = Apt::new(&[self.release.suite], false)?.download("nfs-common")?;
                let client = fs::read(&client).with_context(|| client.display().to_string())?;
                let options = nfs.mount_options();
                self.put(&[("nfs-common.deb", &client), ("nfsmount.conf", options.as_bytes())])?;
                (nfs.server, received, format!("NFS={}\n", Nfs::target()))
            }
        };
        self.put(&[("target.settings", settings.as_bytes())])?;
        Ok(Some((server, received)))
    }

    /// Checks that kdump is ready, and whose makedumpfile is installed.
    fn check_set_up(&self, verb: Verb, said: &[(String, String)]) -> Result<()> {
        let find =
            |what: &str| said.iter().find(|(name, _)| name == what).map_or("", |(_, detail)| detail.as_str());
        ensure!(find("status").contains("ready to kdump"), "kdump-config is not ready: {}", find("status"));
        let ours = find("version").contains("pagehaul");
        ensure!(
            ours == (verb.writer() == "pagehaul"),
            "after {}, makedumpfile is: {}",
            verb.name(),
            find("version")
        );
        let restored = find("verify").is_empty() && find("diverted").is_empty();
        ensure!(verb != Verb::Remove || restored, "removal leaves: {} {}", find("verify"), find("diverted"));
        Ok(())
    }

    /// Checks what `kdump report` says, once the guest is up again, of the crash by `kdump test`.
    fn check_report(&self, said: &[(String, String)], verb: Verb) -> Result<()> {
        let text = said.iter().find(|(what, _)| what == "report").map_or("", |(_, detail)| detail.as_str());
        let report: Value = serde_json::from_str(text).with_context(|| format!("kdump report: {text:?}"))?;
        let seconds = |from: &str, to: &str| report[to].as_u64()?.checked_sub(report[from].as_u64()?);
        let capture = seconds("capture_began", "capture_ended").context("kdump report has no times")?;
        // The guest has no key: it cannot know.
        let complete = if verb == Verb::Encrypt { Value::Null } else { Value::Bool(true) };
        ensure!(report["complete"] == complete, "kdump report: {text}");
        ensure!(report["encrypted"] == (verb == Verb::Encrypt), "kdump report: {text}");
        ensure!(report["planned"]["level"] == 31, "kdump report has no plan: {text}");
        let size = |of: &Value| of["dump_bytes"].as_u64().context("kdump report has no sizes");
        check_planned(size(&report["planned"])?, size(&report)?)?;
        println!(
            "ok   {}: kdump report: {} bytes, {} planned; capture kernel {} s, capture {capture} s, {:.1} s planned",
            self.release.suite,
            report["dump_bytes"],
            report["planned"]["dump_bytes"],
            seconds("crashed", "capture_began").map_or("?".into(), |seconds| seconds.to_string()),
            report["planned"]["seconds"].as_f64().unwrap_or_default()
        );
        Ok(())
    }

    /// Writes files to /lab on the disk.
    pub(crate) fn put(&self, files: &[(&str, &[u8])]) -> Result<()> {
        for (name, content) in files {
            let from = self.disk.with_file_name(format!("put-{name}"));
            fs::write(&from, content).with_context(|| from.display().to_string())?;
            for request in [format!("rm /lab/{name}"), format!("write {} /lab/{name}", from.display())] {
                let disk = self.disk.display().to_string();
                // debugfs exits with 0 even on errors; the guest's own messages show them.
                self.tools.run("debugfs", &["-w", "-R", &request, &disk])?;
            }
            fs::remove_file(&from).with_context(|| from.display().to_string())?;
        }
        Ok(())
    }

    /// Boots the guest until it powers off, or until its capture kernel reboots. Returns its messages.
    pub(crate) fn run(&self, boot: Boot<'_>) -> Result<Vec<(String, String)>> {
        let mut said = Vec::new();
        self.run_saying(boot, &mut said)?;
        Ok(said)
    }

    /// The same, with the messages of a guest that fails as well.
    pub(crate) fn run_saying(&self, boot: Boot<'_>, said: &mut Vec<(String, String)>) -> Result<()> {
        let Boot { crashkernel, crashes, network, clock, silence, limit, memory_mib, cpu } = boot;
        let sockets = socket_directory::make()?;
        let disk = Disk { serial: "root", path: self.disk.clone(), write_rate: None, log: None };
        let mut vm = Machine {
            tools: self.tools,
            kernel: &self.directory.join("vmlinuz"),
            initramfs: &self.directory.join("initrd.img"),
            command_line: &format!("root=/dev/vda rw console=ttyS0 crashkernel={crashkernel} panic=-1"),
            memory_mib,
            cpus: 2,
            cpu,
            accelerator: Accelerator::Tcg,
            disks: &[disk],
            network,
            clock,
            devices: &["virtio-rng-pci"],
            arguments: &[],
            directory: sockets.path(),
            silence,
            limit,
            boot: Duration::MAX,
        }
        .start()?;
        let mut panics = 0;
        let on_panic = |panics: &mut u32, line: &str| {
            *panics += 1;
            ensure!(crashes && *panics == 1 && line.contains("sysrq"), "unexpected panic: {line}");
            Ok(())
        };
        let mut talk = || -> Result<()> {
            while let Some(message) = vm.next_message(|line| on_panic(&mut panics, line))? {
                if message.0 == "throttle" {
                    throttle(&vm, &message.1)?;
                }
                said.push(message);
            }
            Ok(())
        };
        let ended = talk();
        let console = sockets.path().join("console.log");
        fs::copy(&console, self.disk.with_file_name("console.log")).context("keeping the console log")?;
        ended?;
        // Other messages may break the panic's line: the script's last one tells, and later the dump.
        let crashed = panics == 1 || said.iter().any(|(what, _)| what == "crash");
        ensure!(!crashes || crashed, "the guest did not crash{}", vm.console_tail());
        Ok(())
    }

    /// Copies /var/crash from the disk, and returns the newest dump in it.
    pub(crate) fn take_dump(&self, into: &Path) -> Result<PathBuf> {
        let disk = self.disk.display().to_string();
        self.tools.run("debugfs", &["-R", &format!("rdump /var/crash {}", into.display()), &disk])?;
        self.newest_dump(&into.join("crash"))
    }

    /// Returns the newest dump in the directories of `crash`, next to which is the log.
    fn newest_dump(&self, crash: &Path) -> Result<PathBuf> {
        let mut dumps = Vec::new();
        for entry in fs::read_dir(crash).with_context(|| crash.display().to_string())?.flatten() {
            let Ok(files) = fs::read_dir(entry.path()) else { continue };
            dumps.extend(files.flatten().map(|file| file.path()));
        }
        dumps.sort();
        let name = |path: &Path| {
            path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
        };
        ensure!(dumps.iter().any(|path| name(path).starts_with("dmesg.")), "kdump-tools saved no log");
        let console = self.disk.with_file_name("console.log");
        let dump = dumps.iter().rfind(|path| name(path).starts_with("dump.")).with_context(|| {
            format!("kdump-tools saved no dump; its messages are in {}", console.display())
        })?;
        Ok(dump.clone())
    }

    fn check(&self, dump: &Path, verb: Verb, crashkernel: &str, pagehaul: &Path) -> Result<()> {
        let expected = verb.writer();
        let mut size = [0; 8];
        fs::File::open(dump)
            .and_then(|file| file.read_exact_at(&mut size, FIRST_SIZE))
            .with_context(|| dump.display().to_string())?;
        let writer = if u64::from_be_bytes(size) == STATUS_OFFSET { "pagehaul" } else { "makedumpfile" };
        ensure!(writer == expected, "{} was written by {writer}, expected {expected}", dump.display());
        let mib = self.check_dump(dump, pagehaul)?;
        println!(
            "ok   {}: kdump-tools, {}, crashkernel={crashkernel}: {mib} MiB written by {writer}, complete, opened by drgn",
            self.release.suite,
            verb.target()
        );
        Ok(())
    }

    /// Checks that a dump is complete and that drgn finds the crash in it. Returns its size in MiB.
    pub(crate) fn check_dump(&self, dump: &Path, pagehaul: &Path) -> Result<u64> {
        let info =
            Command::new(pagehaul).args(["info", "--json"]).arg(dump).output().context("running pagehaul")?;
        let text = String::from_utf8_lossy(&info.stdout);
        ensure!(text.contains("\"complete\": true"), "{} is not complete: {text}", dump.display());
        let release =
            fs::read_to_string(self.directory.join("release")).context("the guest's kernel release")?;
        let kernel = Kernel::get(self.release.series)?;
        ensure!(
            kernel.release == release.trim(),
            "the guest runs {}, the lab's symbols are of {}: remove the older one from the cache",
            release.trim(),
            kernel.release
        );
        let shown = oracle::script("show.py")?
            .arg(dump)
            .arg(debuginfo::get(&kernel)?.vmlinux)
            .output()
            .context("running show.py")?;
        let answer = String::from_utf8_lossy(&shown.stdout);
        ensure!(
            shown.status.success() && answer.contains("sysrq") && answer.contains("tasks:"),
            "drgn does not open {}: {}",
            dump.display(),
            String::from_utf8_lossy(&shown.stderr)
        );
        Ok(fs::metadata(dump).map(|meta| meta.len() >> 20).unwrap_or_default())
    }
}

/// The share of its size by which a dump may differ from its plan. The goal is 0.05; free pages on per-CPU lists come and go.
const PLANNED_WITHIN: f64 = 0.25;

/// Checks what `kdump test` planned just before the crash.
pub(crate) fn check_planned(planned: u64, dump: u64) -> Result<()> {
    let off = planned as f64 / dump.max(1) as f64 - 1.0;
    ensure!(off.abs() <= PLANNED_WITHIN, "{planned} bytes were planned, and the dump has {dump}");
    Ok(())
}

/// Limits the bytes per second that a guest's disk takes. 0: as many as it can.
fn throttle(vm: &Vm, rate: &str) -> Result<()> {
    let rate: u64 = rate.trim().parse().with_context(|| format!("a disk of {rate} bytes per second"))?;
    let limits = json!({ "device": "root", "bps": 0, "bps_rd": 0, "bps_wr": rate, "iops": 0, "iops_rd": 0, "iops_wr": 0 });
    vm.qmp()?.execute("block_set_io_throttle", &limits)?;
    Ok(())
}
