//! openSUSE's settings, as its scripts take them (kdump 2.1.9).

mod machine;

use std::fs;

use machine::Machine;
use pagehaul_kdump_setup::{Chain, Expected, Finding, Link, Severity, State, Target, examine};

const SETTINGS: &str = "/etc/sysconfig/kdump";

/// A set-up without faults, and these settings.
fn with(settings: &str) -> Machine {
    let machine = Machine::suse();
    machine.append(SETTINGS, settings);
    machine.age(SETTINGS);
    machine
}

fn chain(machine: &Machine) -> Chain {
    examine(&machine.facts(), &Expected::default())
}

/// Severity and name of what is found.
fn found(machine: &Machine) -> Vec<(Severity, &'static str)> {
    chain(machine).findings.iter().map(|finding| (finding.severity, finding.id)).collect()
}

fn only(machine: &Machine) -> Finding {
    let mut found = chain(machine).findings;
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

fn collector(machine: &Machine) -> String {
    machine.facts().config.unwrap().collector.join(" ")
}

#[test]
fn what_is_empty_is_the_default() {
    let names = ["DUMPLEVEL", "DUMPFORMAT", "SAVEDIR", "CPUS", "FREE_DISK_SIZE", "FADUMP", "SSH_IDENTITY"];
    for name in names {
        let machine = with(&format!("KDUMP_{name}=\"\""));
        assert_eq!(found(&machine), [], "{name}");
        assert_eq!(collector(&machine), "makedumpfile -F -c -d 31", "{name}");
    }
    assert_eq!(with("KDUMP_CPUS=\"\"").facts().config.unwrap().capture_cpus(), Some(32));
}

#[test]
fn values_that_are_no_numbers_or_booleans_are_ignored() {
    for (setting, value, default) in [
        ("KDUMP_DUMPLEVEL", "abc", "31"),
        ("KDUMP_DUMPLEVEL", "0x1f", "31"),
        ("KDUMP_DUMPLEVEL", "1,31", "31"),
        ("KDUMP_FREE_DISK_SIZE", "64M", "64"),
        ("KDUMP_CPUS", "all", "32"),
        ("KDUMP_FADUMP", "True", "false"),
        ("KDUMP_CONTINUE_ON_ERROR", "off", "true"),
    ] {
        let machine = with(&format!("{setting}={value}"));
        let finding = only(&machine);
        assert_eq!((finding.severity, finding.id), (Severity::Warning, "broken-configuration"));
        assert!(finding.what.contains(value) && finding.what.ends_with(&format!("{default} is taken")));
        assert!(finding.fix.contains(setting), "{finding:?}");
        assert_eq!(collector(&machine), "makedumpfile -F -c -d 31");
    }
    for setting in ["KDUMP_IMMEDIATE_REBOOT=no", "KDUMP_CONTINUE_ON_ERROR=0", "KDUMP_FADUMP=no"] {
        assert_eq!(found(&with(setting)), [], "{setting}");
    }
}

/// `main` of kdump-save.
#[test]
fn a_level_beyond_31_is_dumped_at_level_0() {
    for level in ["32", "-1", "040"] {
        let machine = with(&format!("KDUMP_DUMPLEVEL={level}"));
        assert_eq!(collector(&machine), "makedumpfile -F -c -d 0", "{level}");
        let finding = only(&machine);
        assert_eq!((finding.severity, finding.id), (Severity::Warning, "no-level"));
        assert_eq!(finding.fix, "set KDUMP_DUMPLEVEL=31 in /etc/sysconfig/kdump");
        // Then a shell waits in the capture kernel.
        machine.append(SETTINGS, "KDUMP_CONTINUE_ON_ERROR=false");
        machine.age(SETTINGS);
        assert_eq!(found(&machine), [(Severity::Problem, "no-level")]);
    }
    // The last of two counts.
    let machine = with("MAKEDUMPFILE_OPTIONS=\"-d x\"");
    assert_eq!(only(&machine).fix, "set -d 31 in MAKEDUMPFILE_OPTIONS of /etc/sysconfig/kdump");
}

#[test]
fn formats_are_known_in_their_own_case_only() {
    for (format, options) in
        [("ELF", "-E"), ("compressed", "-c"), ("lzo", "-l"), ("snappy", "-p"), ("zstd", "-z")]
    {
        let machine = with(&format!("KDUMP_DUMPFORMAT={format}"));
        assert_eq!(collector(&machine), format!("makedumpfile -F {options} -d 31"));
        assert_eq!(found(&machine), [], "{format}");
        // Another makedumpfile takes them, too.
        machine.remove_any(&["/usr/lib/dracut/modules.d/99pagehaul-kdump", "/usr/bin/makedumpfile"]);
        machine.program("/usr/bin/makedumpfile", "#!/bin/sh\n# b:cDd:eEFfg:hi:lL:pRvXx:z\0");
        machine.age("/usr/bin/makedumpfile");
        assert_eq!(found(&machine), [(Severity::Advice, "not-pagehaul")], "{format}");
    }
    for format in ["RAW", "None", "elf", "ZSTD", "gzip"] {
        let machine = with(&format!("KDUMP_DUMPFORMAT={format}"));
        assert_eq!(collector(&machine), "makedumpfile -F -z -d 31", "{format}");
        assert_eq!(found(&machine), [(Severity::Warning, "broken-configuration")], "{format}");
    }
}

#[test]
fn a_directory_without_a_known_protocol_is_no_target() {
    for directory in ["var/crash", "http://x/y", "file:/var/crash", "~/crash"] {
        let machine = with(&format!("KDUMP_SAVEDIR=\"{directory}\""));
        let chain = chain(&machine);
        let found: Vec<_> = chain.findings.iter().map(|finding| (finding.severity, finding.id)).collect();
        assert_eq!(found, [(Severity::Problem, "no-target")], "{directory}");
        let proof = chain.proofs.iter().find(|proof| proof.link == Link::Target).unwrap();
        assert_eq!((proof.state, proof.evidence.len()), (State::Broken, 0), "{proof:?}");
    }
    let crash = Target::Directory("/var/crash".into());
    for directory in ["/var/crash", "file:///var/crash", "FILE:///var/crash"] {
        let machine = with(&format!("KDUMP_SAVEDIR=\"{directory}\""));
        assert_eq!((machine.facts().config.unwrap().target, found(&machine)), (crash.clone(), vec![]));
    }
    // Not proved, and nothing is known to be wrong.
    for directory in ["file://var/crash", "ftp://me:secret@host/crash", "$WHERE"] {
        let chain = chain(&with(&format!("KDUMP_SAVEDIR=\"{directory}\"")));
        assert_eq!(chain.findings, [], "{directory}");
        let proof = chain.proofs.iter().find(|proof| proof.link == Link::Target).unwrap();
        assert_eq!(proof.state, State::NotChecked);
        assert!(!format!("{chain:?}").contains("secret"), "{chain:?}");
    }
}

/// `kdump_init_ssh` of module-setup.sh.
#[test]
fn keys_of_ssh_are_those_that_are_copied() {
    let key = |machine: &Machine, path: &str| {
        machine.write(path, "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\n");
        machine.mode(path, 0o600);
    };
    for protocol in ["ssh", "sftp", "scp", "SCP"] {
        let machine = with(&format!("KDUMP_SAVEDIR={protocol}://kdump@host/crash"));
        let missing = [(Severity::Problem, "no-ssh-key"), (Severity::Problem, "unknown-host")];
        assert_eq!(found(&machine), missing, "{protocol}");
        assert!(!format!("{:?}", chain(&machine)).contains("kdumpctl"));
        machine.write("/root/.ssh/known_hosts", "host ssh-ed25519 AAAA\n");
        key(&machine, "/root/.ssh/id_ed25519");
        assert_eq!(found(&machine), [], "{protocol}");
    }
    let machine =
        with("KDUMP_SAVEDIR=ssh://host/crash\nKDUMP_SSH_IDENTITY=\"a /etc/b\"\nKDUMP_HOST_KEY=\"*\"");
    key(&machine, "/root/.ssh/id_rsa");
    assert_eq!(found(&machine), [(Severity::Problem, "no-ssh-key")]);
    key(&machine, "/etc/b");
    assert_eq!(found(&machine), []);
    // ssh-keygen reads root's own file.
    let machine = with("KDUMP_SAVEDIR=ssh://host/crash");
    key(&machine, "/root/.ssh/id_rsa");
    machine.write("/etc/ssh/ssh_known_hosts", "host ssh-ed25519 AAAA\n");
    assert_eq!(found(&machine), [(Severity::Problem, "unknown-host")]);
}

/// `main` of kdump-save deletes the dump again.
#[test]
fn the_dump_fits_only_if_enough_remains_free() {
    let machine = with("KDUMP_FREE_DISK_SIZE=99999999999");
    let finding = only(&machine);
    assert_eq!((finding.severity, finding.id), (Severity::Problem, "target-full"));
    assert!(finding.what.contains("KDUMP_FREE_DISK_SIZE"), "{finding:?}");
    // Older dumps are deleted before.
    machine.append(SETTINGS, "KDUMP_KEEP_OLD_DUMPS=1");
    machine.age(SETTINGS);
    assert_eq!(found(&machine), [(Severity::Problem, "target-full")]);
    for name in ["2026-11-27-10-00", "2026-11-28-10:00"] {
        fs::create_dir_all(machine.path(&format!("/var/crash/{name}"))).unwrap();
    }
    assert_eq!(found(&machine), [(Severity::Warning, "target-small")]);
    for size in ["0", "-1", "64"] {
        assert_eq!(found(&with(&format!("KDUMP_FREE_DISK_SIZE={size}"))), [], "{size}");
    }
    let mut facts = with("KDUMP_FREE_DISK_SIZE=1024").facts();
    facts.target_free = Some(2 << 30);
    for (available, expected) in
        [(1 << 30, "target-small"), ((1 << 30) - (1 << 20), "target-full"), (2 << 30, "")]
    {
        facts.target_available = Some(available);
        let found = examine(&facts, &Expected::default()).findings;
        assert_eq!(found.iter().map(|finding| finding.id).collect::<String>(), expected, "{available}");
    }
}

/// `load_kdump_fadump` of load.sh.
#[test]
fn a_dump_by_firmware_that_the_kernel_does_not_do_is_none() {
    let machine = with("KDUMP_FADUMP=true");
    assert_eq!(found(&machine), [(Severity::Problem, "disabled")]);
    machine.write("/sys/kernel/fadump/enabled", "0\n");
    assert_eq!(found(&machine), [(Severity::Problem, "disabled")]);
    machine.write("/sys/kernel/fadump/enabled", "1\n");
    let chain = chain(&machine);
    assert_eq!(chain.findings, []);
    assert!(format!("{:?}", chain.proofs).contains("a dump by the firmware"));
}

/// `rebuild_kdumprd` of load.sh, when kdump.service starts.
#[test]
fn an_initramfs_is_made_again_where_a_kernel_is_loaded() {
    let machine = Machine::suse();
    machine.remove("/var/lib/kdump/initrd");
    assert_eq!(found(&machine), [(Severity::Warning, "no-initramfs")]);
    machine.write("/sys/kernel/kexec_crash_loaded", "0\n");
    assert_eq!(found(&machine), [(Severity::Problem, "not-loaded"), (Severity::Problem, "no-initramfs")]);
    // Nothing makes it.
    machine.write("/sys/kernel/kexec_crash_loaded", "1\n");
    machine.remove("/usr/bin/dracut");
    let expected = [(Severity::Problem, "no-initramfs"), (Severity::Warning, "no-initramfs-maker")];
    assert_eq!(found(&machine), expected);
}

#[test]
fn a_command_in_place_of_the_scripts_own_is_not_checked() {
    let chain = chain(&with("KDUMP_TRANSFER=\"/root/save\"\nKDUMP_DUMPFORMAT=none"));
    assert_eq!(chain.findings, []);
    for link in [Link::Target, Link::Program] {
        let proof = chain.proofs.iter().find(|proof| proof.link == link).unwrap();
        assert_eq!((proof.state, proof.evidence.len()), (State::NotChecked, 0), "{proof:?}");
    }
}

/// mkdumprd ends without it.
#[test]
fn a_configured_kernel_must_exist() {
    for version in ["5.0-default", "/boot/vmlinuz-5.0-default"] {
        let machine = with(&format!("KDUMP_KERNELVER={version}"));
        assert_eq!(found(&machine), [(Severity::Problem, "no-kernel")], "{version}");
        // What was made for an earlier one is loaded before.
        let unit = "/usr/lib/systemd/system/kdump-early.service";
        machine.link("/etc/systemd/system/multi-user.target.wants/kdump-early.service", unit);
        assert_eq!(found(&machine), [(Severity::Warning, "no-kernel")], "{version}");
        machine.write("/boot/vmlinuz-5.0-default", "kernel");
        assert_eq!(found(&machine), [], "{version}");
    }
    let machine = with("KDUMP_KERNELVER=6.4.0-1-default");
    machine.write("/usr/lib/modules/6.4.0-1-default/vmlinuz", "kernel");
    assert_eq!(found(&machine), []);
}

#[test]
fn what_a_shell_computes_is_not_checked() {
    let machine = with("KDUMP_DUMPLEVEL=$LEVEL\nKDUMP_DUMPFORMAT=`f`\nKDUMP_SAVEDIR=/var/crash/$(hostname)");
    let chain = chain(&machine);
    assert_eq!(chain.findings, []);
    assert!(
        format!("{:?}", chain.proofs).contains("KDUMP_DUMPLEVEL, KDUMP_DUMPFORMAT"),
        "{:?}",
        chain.proofs
    );
}
