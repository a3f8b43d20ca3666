//! Each fault of a set-up is found, and a set-up without faults has no findings.

mod machine;

use machine::{Machine, RELEASE};
use pagehaul_kdump_setup::{Expected, Facts, Root, Severity, check};

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
fn modules_that_the_initramfs_lacks_are_named() {
    let mut facts = Machine::debian().facts();
    facts.missing_drivers = vec!["nvme".into(), "xfs".into()];
    let found = check(&facts, &Expected::default());
    assert_eq!(found.iter().map(|finding| finding.id).collect::<Vec<_>>(), ["no-driver"]);
    assert!(found[0].what.ends_with("nvme, xfs") && found[0].fix.starts_with("rm "), "{found:?}");
}

#[test]
fn a_host_on_another_port_is_known() {
    let machine = Machine::debian();
    configure(&machine, "USE_KDUMP=1\nSSH=\"kdump@10.0.2.2\"");
    machine.write("/root/.ssh/kdump_id_rsa", "key");
    machine.write("/root/.ssh/known_hosts", "[10.0.2.2]:2222 ssh-ed25519 AAAA");
    assert_eq!(machine.findings(Expected::default()), Vec::<&str>::new());
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
