//! Each fault of a set-up is found, and a set-up without faults has no findings.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

use pagehaul_kdump_setup::{Expected, Facts, Root, Severity, check};
use tempfile::TempDir;

const RELEASE: &str = "6.1.0-50-amd64";

/// A machine with a set-up that has no faults.
struct Machine(TempDir);

impl Machine {
    fn new() -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        machine.write("/proc/cmdline", "root=/dev/sda1 crashkernel=512M-:192M quiet");
        machine.write(
            "/proc/meminfo",
            "MemTotal: 8000000 kB\nMemFree: 7000000 kB\nBuffers: 0 kB\nCached: 900000 kB\n",
        );
        machine.write("/proc/cpuinfo", "processor\t: 0\napicid\t\t: 0\n\nprocessor\t: 1\napicid\t\t: 2\n");
        machine.write(
            "/proc/self/mountinfo",
            "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 22 8:2 / /var rw - ext4 /dev/sdb1 rw\n",
        );
        machine.write("/proc/sys/kernel/osrelease", RELEASE);
        for name in ["panic_on_oops", "hung_task_panic", "softlockup_panic"] {
            machine.write(&format!("/proc/sys/kernel/{name}"), "1\n");
        }
        machine.write("/proc/sys/kernel/kexec_load_disabled", "0\n");
        machine.write("/sys/kernel/kexec_crash_size", "201326592\n");
        machine.write("/sys/kernel/kexec_crash_loaded", "1\n");
        machine.write("/sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
        machine.write("/sys/devices/system/cpu/online", "0-7\n");
        machine.write("/etc/fstab", "/dev/sda1 / ext4 defaults 0 1\n/dev/sdb1 /var ext4 defaults 0 2\n");
        machine.write("/usr/bin/pagehaul", "the word pagehaul is in the binary");
        machine.link("/usr/bin/makedumpfile", "pagehaul");
        fs::create_dir_all(machine.path("/var/crash")).unwrap();
        machine
    }

    fn debian() -> Self {
        let machine = Self::new();
        machine.write("/etc/default/kdump-tools", "USE_KDUMP=1\nKDUMP_COREDIR=\"/var/crash\"\n");
        machine.age("/etc/default/kdump-tools");
        machine.write(&format!("/var/lib/kdump/initrd.img-{RELEASE}"), "image");
        machine.link("/var/lib/kdump/initrd.img", &format!("/var/lib/kdump/initrd.img-{RELEASE}"));
        machine
    }

    fn fedora() -> Self {
        let machine = Self::new();
        machine.write("/proc/cmdline", "root=/dev/sda1 crashkernel=256M");
        machine.write("/sys/kernel/kexec_crash_size", "268435456\n");
        machine.write(
            "/etc/kdump.conf",
            "path /var/crash\ncore_collector makedumpfile -l --message-level 7 -d 31\n",
        );
        machine.age("/etc/kdump.conf");
        machine.age("/usr/bin/pagehaul");
        machine.write(&format!("/boot/initramfs-{RELEASE}kdump.img"), "image");
        machine
    }

    fn suse() -> Self {
        let machine = Self::new();
        machine.write("/sys/kernel/kexec_crash_size", "536870912\n");
        machine.write("/etc/sysconfig/kdump", "KDUMP_SAVEDIR=\"file:///var/crash\"\nKDUMP_CPUS=\"8\"\n");
        machine.age("/etc/sysconfig/kdump");
        machine.age("/usr/bin/pagehaul");
        machine.write("/var/lib/kdump/initrd", "image");
        machine
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.0.path().join(path.trim_start_matches('/'))
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        let _ = fs::remove_file(self.path(path));
        symlink(target, self.path(path)).unwrap();
    }

    fn remove(&self, path: &str) {
        fs::remove_file(self.path(path)).or_else(|_| fs::remove_dir_all(self.path(path))).unwrap();
    }

    /// Makes a file an hour older than those written now.
    fn age(&self, path: &str) {
        let file = fs::File::options().write(true).open(self.path(path)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(3600)).unwrap();
    }

    fn facts(&self) -> Facts {
        Facts::read(&Root::new(self.0.path()))
    }

    fn findings(&self, expected: Expected) -> Vec<&'static str> {
        check(&self.facts(), &expected).iter().map(|finding| finding.id).collect()
    }
}

#[test]
fn set_ups_without_faults_have_no_findings() {
    for machine in [Machine::debian(), Machine::fedora(), Machine::suse()] {
        let facts = machine.facts();
        assert_eq!(check(&facts, &Expected::default()), [], "{facts:?}");
    }
}

/// What is done to a machine, and the finding it must lead to.
type Fault = (&'static str, fn(&Machine));

const DEBIAN: &[Fault] = &[
    ("no-kexec", |m| m.remove("/sys/kernel/kexec_crash_size")),
    ("no-reservation", |m| m.write("/sys/kernel/kexec_crash_size", "0")),
    ("small-reservation", |m| m.write("/sys/kernel/kexec_crash_size", "134217728")),
    ("several-crashkernel", |m| m.write("/proc/cmdline", "crashkernel=192M crashkernel=512M-:192M")),
    ("not-loaded", |m| m.write("/sys/kernel/kexec_crash_loaded", "0")),
    ("no-panic-on-oops", |m| m.write("/proc/sys/kernel/panic_on_oops", "0")),
    ("no-panic-on-hang", |m| {
        m.write("/proc/sys/kernel/hung_task_panic", "0");
        m.write("/proc/sys/kernel/softlockup_panic", "0");
    }),
    ("no-kdump", |m| m.remove("/etc/default/kdump-tools")),
    ("disabled", |m| configure(m, "USE_KDUMP=0")),
    ("no-compressor", |m| configure(m, "USE_KDUMP=1\nKDUMP_COMPRESSION=xz")),
    ("compressed-twice", |m| {
        configure(m, "USE_KDUMP=1\nKDUMP_COMPRESSION=xz");
        m.write("/usr/bin/xz", "");
    }),
    ("no-collector", |m| m.remove("/usr/bin/makedumpfile")),
    ("not-pagehaul", |m| {
        m.remove("/usr/bin/makedumpfile");
        m.write("/usr/bin/makedumpfile", "another program");
    }),
    ("refused-option", |m| configure(m, "USE_KDUMP=1\nMAKEDUMP_ARGS=\"-c -d 31 --config /etc/erase\"")),
    ("no-disable-cpu-apicid", |m| configure(m, "USE_KDUMP=1\nKDUMP_CMDLINE_APPEND=\"nr_cpus=4 irqpoll\"")),
    ("wrong-disable-cpu-apicid", |m| {
        configure(m, "USE_KDUMP=1\nKDUMP_CMDLINE_APPEND=\"nr_cpus=4 disable_cpu_apicid=2\"");
    }),
    ("reservation-limits-threads", |m| {
        configure(m, "USE_KDUMP=1\nKDUMP_CMDLINE_APPEND=\"nr_cpus=64 disable_cpu_apicid=0\"");
        m.write("/sys/devices/system/cpu/online", "0-63");
    }),
    ("no-initramfs", |m| m.remove(&format!("/var/lib/kdump/initrd.img-{RELEASE}"))),
    ("old-initramfs", |m| {
        m.write("/etc/default/kdump-tools", "USE_KDUMP=1");
        m.age(&format!("/var/lib/kdump/initrd.img-{RELEASE}"));
    }),
    ("other-kernel", |m| m.write("/proc/sys/kernel/osrelease", "6.1.0-51-amd64")),
    ("target-not-mounted", |m| m.write("/proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw")),
    ("no-target", |m| m.remove("/var/crash")),
    // The kernel of this machine has more memory than any disk has room.
    ("target-full", |m| m.write("/proc/meminfo", "MemTotal: 9000000000000000 kB\nMemFree: 1000 kB\n")),
    ("no-ssh-key", |m| {
        configure(m, "USE_KDUMP=1\nSSH=\"kdump@host\"");
        m.write("/root/.ssh/known_hosts", "host ssh-ed25519 AAAA");
    }),
    ("unknown-host", |m| {
        configure(m, "USE_KDUMP=1\nSSH=\"kdump@host\"");
        m.write("/root/.ssh/kdump_id_rsa", "key");
        m.write("/root/.ssh/known_hosts", "other,10.0.0.1 ssh-ed25519 AAAA");
    }),
];

const FEDORA: &[Fault] = &[
    ("no-flattened", |m| {
        m.write("/etc/kdump.conf", "ssh kdump@host\ncore_collector makedumpfile -l -d 31\n");
        m.age("/etc/kdump.conf");
        m.write("/root/.ssh/kdump_id_rsa", "key");
        m.write("/root/.ssh/known_hosts", "host ssh-ed25519 AAAA");
    }),
    ("old-collector", |m| {
        m.age(&format!("/boot/initramfs-{RELEASE}kdump.img"));
        m.write("/usr/bin/pagehaul", "a newer pagehaul");
    }),
];

fn configure(machine: &Machine, text: &str) {
    machine.write("/etc/default/kdump-tools", text);
    machine.age("/etc/default/kdump-tools");
}

#[test]
fn each_fault_is_found_alone() {
    let debian = DEBIAN.iter().map(|fault| (Machine::debian(), fault));
    let fedora = FEDORA.iter().map(|fault| (Machine::fedora(), fault));
    for (machine, (id, inject)) in debian.chain(fedora) {
        inject(&machine);
        let mut found = machine.findings(Expected::default());
        // A machine with that much memory is not what the reservation was made for.
        found.retain(|found| !(*id == "target-full" && *found == "small-reservation"));
        assert_eq!(found, [*id]);
    }
}

#[test]
fn what_is_planned_is_compared() {
    let machine = Machine::debian();
    assert_eq!(machine.findings(Expected { cpus: Some(4), dump_bytes: None }), ["few-cpus"]);
    assert_eq!(machine.findings(Expected { cpus: Some(1), dump_bytes: Some(u64::MAX) }), ["target-full"]);
}

#[test]
fn a_locked_down_kernel_explains_why_nothing_is_loaded() {
    let machine = Machine::debian();
    machine.write("/sys/kernel/kexec_crash_loaded", "0");
    machine.write("/sys/kernel/security/lockdown", "none [integrity] confidentiality");
    let found = check(&machine.facts(), &Expected::default());
    assert!(found[0].what.contains("Secure Boot") && found[0].fix.contains("kexec -s"), "{found:?}");
}

#[test]
fn pagehaul_in_the_initramfs_alone_counts_too() {
    let machine = Machine::fedora();
    machine.remove("/usr/bin/makedumpfile");
    machine.write("/usr/bin/makedumpfile", "another program");
    machine.age("/usr/bin/makedumpfile");
    assert_eq!(machine.findings(Expected::default()), ["not-pagehaul"]);
    machine.write("/usr/lib/dracut/modules.d/99pagehaul-kdump/module-setup.sh", "");
    assert_eq!(machine.findings(Expected::default()), Vec::<&str>::new());
}

#[test]
fn problems_come_first() {
    let machine = Machine::debian();
    machine.write("/proc/sys/kernel/panic_on_oops", "0");
    machine.remove("/var/crash");
    let found = check(&machine.facts(), &Expected::default());
    assert_eq!(
        found.iter().map(|finding| finding.severity).collect::<Vec<_>>(),
        [Severity::Problem, Severity::Warning]
    );
}

#[test]
fn a_machine_without_any_file_is_checked() {
    let directory = tempfile::tempdir().unwrap();
    let found = check(&Facts::read(&Root::new(directory.path())), &Expected::default());
    assert!(found.iter().any(|finding| finding.id == "no-kdump"));
}
