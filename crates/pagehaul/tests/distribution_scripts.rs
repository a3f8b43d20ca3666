//! The scripts that Fedora's kdump-utils and openSUSE's kdump run in the capture kernel, unmodified, with pagehaul as makedumpfile.
//!
//! They are GPL and not part of this tree: `PAGEHAUL_KDUMP_UTILS` and `PAGEHAUL_SUSE_KDUMP` name directories with their sources.
//! Without them, nothing is tested. What the tests put in place of the initramfs is in `scripts/initramfs.sh`.

mod common {
    pub mod loop_device;
    pub mod setup;
}

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::loop_device::LoopDevice;
use common::setup::{BINARY, Setup};
use pagehaul_synth::{Era, Machine, Message};

const RUN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scripts/initramfs.sh");

/// What dracut's library has of what kdump.sh calls.
const DRACUT_LIB: &str =
    "getarg() { [ \"$1\" = kdump_remote_ip= ] && echo 192.0.2.1; }\nmake_trace_mem() { :; }\n";

/// The directory that an environment variable names.
fn sources(variable: &str) -> Option<PathBuf> {
    let found = std::env::var_os(variable).map(PathBuf::from);
    if found.is_none() {
        eprintln!("skipped: {variable} names no directory with the sources");
    }
    found
}

/// A vmcore of a kernel that panicked, and the root directory of its capture kernel.
struct Initramfs {
    setup: Setup,
    /// What the root has as /dev/raw.
    device: Option<PathBuf>,
}

impl Initramfs {
    fn new() -> Self {
        let mut machine = Machine::new(Era::V6_12);
        machine.sampler(0x4000);
        let text = "Kernel panic - not syncing: sysrq triggered crash";
        machine.log(0x6000, &[Message { nanoseconds: 1_500_000_000, level: 0, caller: 7, text }]);
        let setup = Setup::new(&mut machine);
        fs::create_dir(setup.path("root")).unwrap();
        Self { setup, device: None }
    }

    fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.setup.path("root").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn put_source(&self, path: &str, source: &Path) {
        self.put(path, fs::read(source).unwrap_or_else(|error| panic!("{}: {error}", source.display())));
    }

    /// Runs a command, expects success, and returns what it said.
    fn run(&self, command: &[&str]) -> String {
        let output = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "sh", RUN])
            .arg(self.setup.path("root"))
            .args([BINARY.as_ref(), self.setup.path("vmcore").as_os_str()])
            .args(command)
            .envs(self.device.as_ref().map(|device| ("RAW_DEVICE", device)))
            .output()
            .unwrap();
        let console = fs::read(self.setup.path("root/dev/console")).unwrap_or_default();
        let said: Vec<String> = [output.stdout, output.stderr, console]
            .iter()
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
            .collect();
        let said = said.join("\n");
        assert!(output.status.success(), "{command:?}: {said}");
        said
    }

    /// The files below a directory of the root, by name.
    fn files(&self, directory: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut rest = vec![self.setup.path("root").join(directory)];
        while let Some(directory) = rest.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() { rest.push(path) } else { found.push(path) }
            }
        }
        found.sort();
        found
    }

    fn file(&self, directory: &str, name: &str) -> PathBuf {
        let files = self.files(directory);
        let found = files.iter().find(|path| path.file_name().is_some_and(|found| found == name));
        found.unwrap_or_else(|| panic!("no {name} in {files:?}")).clone()
    }

    /// Checks that a dump is complete and has the log.
    fn complete(&self, dump: &Path) {
        let dump = dump.to_str().unwrap();
        let info = self.setup.succeeds(&["info", "--json", dump]);
        assert!(info.contains("\"complete\": true"), "{info}");
        assert!(self.setup.succeeds(&["dmesg", dump]).contains("sysrq triggered crash"));
    }
}

fn fedora(configuration: &str, shell: &str) -> Option<(Initramfs, String)> {
    fedora_in(Initramfs::new(), configuration, shell)
}

fn fedora_in(initramfs: Initramfs, configuration: &str, shell: &str) -> Option<(Initramfs, String)> {
    let sources = sources("PAGEHAUL_KDUMP_UTILS")?;
    initramfs.put("lib/dracut-lib.sh", DRACUT_LIB);
    for name in ["kdump-logger.sh", "kdump-lib-initramfs.sh"] {
        initramfs.put_source(&format!("lib/{name}"), &sources.join(name));
    }
    initramfs.put_source("kdump.sh", &sources.join("dracut/99kdumpbase/kdump.sh"));
    initramfs.put("etc/kdump.conf", configuration);
    let said = initramfs.run(&[shell, "/kdump.sh"]);
    Some((initramfs, said))
}

#[test]
fn kdump_utils_saves_to_a_file_system() {
    for collector in ["-l --message-level 7 -d 31", "-z -d 31", "-F -c -d 17", "-E -d 31"] {
        for shell in ["sh", "bash"] {
            let configuration = format!("path /var/crash\ncore_collector makedumpfile {collector}\n");
            let Some((initramfs, said)) = fedora(&configuration, shell) else { return };
            let log = fs::read_to_string(initramfs.file("saved/var/crash", "vmcore-dmesg.txt")).unwrap();
            assert!(log.contains("sysrq triggered crash"), "{log}");
            let dump = initramfs.file("saved/var/crash", "vmcore");
            initramfs.complete(&dump);
            let is_elf = fs::read(&dump).unwrap().starts_with(b"\x7fELF");
            assert_eq!(is_elf, collector.contains("-E"), "{said}");
        }
    }
}

#[test]
fn kdump_utils_saves_over_ssh() {
    let configuration =
        "ssh user@192.0.2.1\npath /saved/crash\ncore_collector makedumpfile -l --message-level 1 -d 31\n";
    let Some((initramfs, _)) = fedora(configuration, "bash") else { return };
    initramfs.complete(&initramfs.file("saved/crash", "vmcore.flat"));
}

/// The dump goes to a device without a file system. `kdumpctl` fetches it from there at the next boot.
#[test]
fn kdump_utils_saves_to_a_raw_device() {
    if sources("PAGEHAUL_KDUMP_UTILS").is_none() {
        return;
    }
    let mut initramfs = Initramfs::new();
    let Some(device) = LoopDevice::new(&initramfs.setup.path("disk"), 256 << 20) else { return };
    // What was on it before follows the dump.
    fs::write(device.path(), vec![0xa5; 256 << 20]).unwrap();
    initramfs.device = Some(device.path().into());
    let configuration =
        "raw /dev/raw\npath /var/crash\ncore_collector makedumpfile -l --message-level 1 -d 31\n";
    let Some((initramfs, _)) = fedora_in(initramfs, configuration, "bash") else { return };
    let dump = initramfs.setup.path("vmcore.raw");
    let fetched = Command::new(BINARY)
        .args(["makedumpfile".as_ref(), "-R".as_ref(), dump.as_os_str()])
        .stdin(File::open(device.path()).unwrap())
        .output()
        .unwrap();
    assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
    initramfs.complete(&dump);
}

#[test]
fn suse_kdump_saves_in_every_format() {
    let Some(sources) = sources("PAGEHAUL_SUSE_KDUMP") else { return };
    for (format, target) in [
        ("compressed", "file"),
        ("lzo", "file"),
        ("snappy", "file"),
        ("zstd", "file"),
        ("ELF", "file"),
        ("zstd", "ssh"),
    ] {
        let initramfs = Initramfs::new();
        initramfs.put_source("kdump-save", &sources.join("dracut/kdump-save"));
        initramfs.put("etc/hostname.kdump", "guest\n");
        let directory = if target == "ssh" { "ssh://user@host/kdump/crash" } else { "/crash" };
        // It ends after the dump, before the script reboots.
        initramfs.put(
            "etc/kdump.conf",
            format!(
                "KDUMP_PROTO={target}\nKDUMP_SAVEDIR={directory}\nKDUMP_DUMPFORMAT={format}\nKDUMP_DUMPLEVEL=31\nKDUMP_VERBOSE=3\n\
                 KDUMP_CPUS=32\nKDUMP_NET_TIMEOUT=0\nKDUMP_KEEP_OLD_DUMPS=0\nKDUMP_FREE_DISK_SIZE=1\nMAKEDUMPFILE_OPTIONS=\n\
                 KDUMP_CONTINUE_ON_ERROR=true\nKDUMP_IMMEDIATE_REBOOT=true\nKDUMP_POSTSCRIPT='exit 0'\nKDUMP_TRANSFER=\n\
                 KDUMP_PRESCRIPT=\nKDUMP_FADUMP_SHELL=false\n"
            ),
        );
        let said = initramfs.run(&["bash", "/kdump-save"]);
        let readme = fs::read_to_string(initramfs.file("kdump", "README.txt")).unwrap();
        for line in
            ["dmesg status: saved successfully", "vmcore status: saved successfully", "Kernel version: 6.12"]
        {
            assert!(readme.contains(line), "{format} {target}: {readme}\n{said}");
        }
        let log = fs::read_to_string(initramfs.file("kdump", "dmesg")).unwrap();
        assert!(log.contains("sysrq triggered crash"), "{log}");
        initramfs.complete(&initramfs.file("kdump", "vmcore"));
    }
}
