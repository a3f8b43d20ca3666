//! What Fedora's scripts do with settings, and what is found of it: rules of kdump-utils 1.0.61.

mod machine;

use std::fs;

use machine::{Machine, RELEASE};
use pagehaul_kdump_setup::{Chain, Expected, Facts, Link, Severity, State, examine};

/// Of kdump-lib-initramfs.sh, what shows how it reads /etc/kdump.conf.
const SHELL: &str = "_val=\"${_val#\\\"}\"\n";
const SED: &str = "sed -n -e \"s/#.*//;s/\\s*$//\" $KDUMP_CONFIG_FILE\n";

fn of(facts: &Facts) -> Chain {
    examine(facts, &Expected::default())
}

/// Findings that are more than advice, as `id: what`.
fn serious(machine: &Machine) -> Vec<String> {
    let found = of(&machine.facts()).findings.into_iter();
    let found = found.filter(|finding| finding.severity != Severity::Advice);
    found.map(|finding| format!("{} {:?}: {}", finding.id, finding.severity, finding.what)).collect()
}

fn not_checked(machine: &Machine, link: Link) -> String {
    let proofs = of(&machine.facts()).proofs;
    proofs.into_iter().find(|proof| proof.link == link).unwrap().not_checked.join("; ")
}

fn machine(scripts: &str) -> Machine {
    let machine = Machine::fedora();
    if !scripts.is_empty() {
        machine.write("/usr/lib/kdump/kdump-lib-initramfs.sh", scripts);
    }
    machine
}

fn configure(machine: &Machine, text: &str) {
    machine.write("/etc/kdump.conf", text);
    machine.age("/etc/kdump.conf");
}

/// Whether one thing is found, which begins so.
fn is_alone(found: &[String], beginning: &str) -> bool {
    matches!(found, [only] if only.starts_with(beginning))
}

#[test]
fn quotation_marks_are_those_of_the_scripts() {
    let text = "failure_action \"shell\"\npath \"/var/crash\"\ncore_collector \"makedumpfile -l -d 31\"\n";
    for scripts in [SHELL, ""] {
        let machine = machine(scripts);
        configure(&machine, text);
        assert_eq!(serious(&machine), [""; 0], "{scripts}");
        let open = not_checked(&machine, Link::CommandLine);
        assert_eq!(
            open.contains("line 1: whether the scripts remove the quotation marks"),
            scripts.is_empty(),
            "{open}"
        );
    }
    let machine = machine(SED);
    configure(&machine, "failure_action \"shell\"\n");
    let found = serious(&machine);
    assert!(
        is_alone(&found, "broken-configuration Problem: /etc/kdump.conf, line 1: failure_action"),
        "{found:?}"
    );
}

#[test]
fn a_carriage_return_is_a_part_of_the_value_for_newer_scripts() {
    for (scripts, text, expected) in [
        (
            SHELL,
            "failure_action shell\r\n",
            "Problem: /etc/kdump.conf, line 1: the line ends in CR and LF, and the CR",
        ),
        (SHELL, "#x\r\npath /var/crash\r\n", "Problem: /etc/kdump.conf, line 2: the line ends in CR"),
        (
            SHELL,
            "core_collector makedumpfile -l -d 31\r\n",
            "Warning: /etc/kdump.conf, line 1: the line ends",
        ),
        (SED, "failure_action shell\r\n", "Warning: "),
        ("", "failure_action shell\r\n", "Warning: "),
    ] {
        let machine = machine(scripts);
        configure(&machine, text);
        let found = serious(&machine);
        assert!(is_alone(&found, &format!("broken-configuration {expected}")), "{text}: {found:?}");
    }
    let machine = machine(SHELL);
    configure(&machine, "# comment\r\n\r\nfailure_action shell # why\r\n");
    assert_eq!(serious(&machine), [""; 0]);
}

#[test]
fn kdumpctl_ends_for_what_it_does_not_take() {
    for (text, what) in [
        ("force_rebuild 2", "line 1: force_rebuild is 2"),
        ("kdump_post /nonexistent", "line 1: /nonexistent of kdump_post does not exist"),
        ("kdump_pre /etc/fstab", "line 1: /etc/fstab of kdump_pre is not executable"),
        ("kdump_emergency /nonexistent", "line 1: /nonexistent of kdump_emergency"),
        ("extra_bins /usr/bin/ssh \\", "line 1: \\ of extra_bins does not exist"),
        (
            "dracut_args --mount \"a b xfs\" --mount \"c d xfs\"",
            "line 1: dracut_args has --mount more than once",
        ),
        ("failure_action\u{a0}shell", "line 1: `failure_action\u{a0}shell`"),
        ("ext4 /dev/sda1", "line 1: ext4 /dev/sda1 is mounted as xfs, on /"),
    ] {
        let machine = machine(SHELL);
        let info = "22 1 8:1 / / rw - xfs /dev/sda1 rw\n";
        machine.write("/proc/self/mountinfo", info);
        machine.write("/etc/fstab", "/dev/sda1 / xfs defaults\n");
        configure(&machine, &format!("{text}\n"));
        let found = serious(&machine);
        assert!(
            is_alone(&found, &format!("broken-configuration Problem: /etc/kdump.conf, {what}")),
            "{found:?}"
        );
    }
    let machine = machine(SHELL);
    configure(
        &machine,
        "kdump_post /usr/bin/ssh\nextra_bins /usr/bin/gzip usr/bin/dracut\nforce_rebuild 0\n",
    );
    assert_eq!(serious(&machine), [""; 0]);
    configure(&machine, "force_no_rebuild 1\nkdump_post /nonexistent\n");
    assert_eq!(serious(&machine), [""; 0]);
    assert!(not_checked(&machine, Link::CommandLine).contains("line 2: whether its programs exist"));
}

#[test]
fn the_kernel_is_that_of_the_settings() {
    for (text, what) in [
        (
            "KDUMP_KERNELVER=\"5.0\"\n",
            "no-kernel Problem: /boot/vmlinuz-5.0, the kernel to load, does not exist",
        ),
        ("KDUMP_BOOTDIR=\"/nowhere\"\n", "no-kernel Problem: /nowhere/vmlinuz-"),
    ] {
        let machine = machine(SHELL);
        machine.write("/etc/sysconfig/kdump", text);
        let found = serious(&machine);
        assert!(is_alone(&found, what), "{found:?}");
    }
    let machine = machine(SHELL);
    machine.write("/etc/sysconfig/kdump", "KDUMP_KERNELVER=\"\"\nKDUMP_IMG=vmlinuz\nKDUMP_IMG_EXT=\"\"\n");
    assert_eq!(serious(&machine), [""; 0]);
    machine.write("/etc/sysconfig/kdump", "KDUMP_IMG=vmlinuz\nexit 1\n");
    let found = serious(&machine);
    assert!(
        is_alone(&found, "broken-configuration Problem: /etc/sysconfig/kdump, line 2: `exit` ends"),
        "{found:?}"
    );
    machine.write("/etc/sysconfig/kdump", "KDUMP_KERNELVER=$(uname -r)\n");
    assert!(not_checked(&machine, Link::CommandLine).contains("KDUMP_KERNELVER is computed"));
}

#[test]
fn a_kernel_that_is_a_directory_does_not_exist() {
    let machine = machine(SHELL);
    let kernel = format!("/boot/vmlinuz-{RELEASE}");
    machine.remove(&kernel);
    fs::create_dir(machine.path(&kernel)).unwrap();
    let found = serious(&machine);
    assert!(is_alone(&found, "no-kernel Problem"), "{found:?}");
    let proof = of(&machine.facts()).proofs.into_iter().find(|proof| proof.link == Link::Kernel).unwrap();
    assert_eq!(proof.state, State::Broken);
}

#[test]
fn mkdumprd_has_makedumpfile_check_its_options() {
    for (text, finding) in [
        ("raw /dev/sda1\ncore_collector makedumpfile -l -d 31\n", "no-flattened Problem"),
        ("raw /dev/sda1\ncore_collector makedumpfile -lF -d 31\n", "no-flattened Problem"),
        (
            "core_collector makedumpfile -l --bogus -d 31\n",
            "refused-option Problem: --bogus, by core_collector",
        ),
        ("core_collector makedumpfile -l --bogus=1 -d 31\n", "refused-option Problem: --bogus=1"),
        ("core_collector makedumpfile -lQ -d 31\n", "refused-option Problem: -lQ"),
        ("core_collector makedumpfile -j 2 -d31 -l\n", "refused-option Problem: -j"),
        ("core_collector makedumpfile -E -l -d 31\n", "refused-option Problem: -E with a codec"),
        ("core_collector makedumpfile -l -d 0x1f\n", "no-level Warning: the dump level is 0x1f"),
    ] {
        let machine = machine(SHELL);
        machine.remove("/usr/bin/makedumpfile");
        machine.program("/usr/bin/makedumpfile", "#!/bin/sh\n# b:cDd:eEFfg:hi:lL:pRvXx:z\0\n");
        machine.age("/usr/bin/makedumpfile");
        configure(&machine, text);
        let found = serious(&machine);
        assert!(is_alone(&found, finding), "{text}: {found:?}");
        // Without a check of the options.
        configure(&machine, &text.replace("makedumpfile", "/usr/bin/makedumpfile"));
        let found = serious(&machine);
        assert!(found.is_empty() || finding.starts_with("no-level"), "{text}: {found:?}");
    }
    let machine = machine(SHELL);
    machine.remove("/usr/bin/makedumpfile");
    machine.program("/usr/bin/makedumpfile", "#!/bin/sh\n# newer: --bogus b:cDd:eEFfg:hi:lL:pRvXx:z\0");
    machine.age("/usr/bin/makedumpfile");
    for text in [
        "raw /dev/sda1\n",
        "raw /dev/sda1\ncore_collector makedumpfile -F -l -d 31\n",
        "core_collector makedumpfile --mess 7 --bogus --cyclic-buffer=1 --xen-syms=x -d 31\n",
        "core_collector makedumpfile -d 0\n",
        "core_collector makedumpfile -E -d 31\n",
        "raw /dev/sda1\ncore_collector makedumpfile -F -E -d 31\n",
        "core_collector makedumpfile -lL 100 -d 31\n",
    ] {
        configure(&machine, text);
        assert_eq!(serious(&machine), [""; 0], "{text}");
    }
}

#[test]
fn fedora_without_its_configuration_is_fedora() {
    let machine = machine(SHELL);
    machine.remove("/etc/kdump.conf");
    machine.write("/etc/sysconfig/kdump", "KDUMP_IMG=vmlinuz\n");
    machine.program("/usr/bin/kdumpctl", "#!/bin/bash\n");
    assert_eq!(machine.facts().stack(), Some(pagehaul_kdump_setup::Stack::KdumpUtils));
    let found = serious(&machine);
    assert!(is_alone(&found, "broken-configuration Problem: /etc/kdump.conf does not exist"), "{found:?}");
    let suse = Machine::suse();
    assert_eq!(suse.facts().stack(), Some(pagehaul_kdump_setup::Stack::Suse));
}

#[test]
fn kdumpctl_makes_a_missing_initramfs() {
    let machine = machine(SHELL);
    machine.remove(&format!("/boot/initramfs-{RELEASE}kdump.img"));
    let found = serious(&machine);
    assert!(is_alone(&found, "no-initramfs Warning"), "{found:?}");
    configure(&machine, "force_no_rebuild 1\n");
    let found = serious(&machine);
    assert!(is_alone(&found, "no-initramfs Problem"), "{found:?}");
    configure(&machine, "path /var/crash\n");
    machine.remove("/usr/bin/dracut");
    assert!(serious(&machine).contains(&found[0]));
}

#[test]
fn a_file_that_does_not_begin_as_a_kernel_is_not_checked() {
    let machine = machine(SHELL);
    assert!(!not_checked(&machine, Link::Kernel).contains("is a kernel"));
    fs::write(machine.path(&format!("/boot/vmlinuz-{RELEASE}")), vec![b'x'; 5000]).unwrap();
    assert_eq!(serious(&machine), [""; 0]);
    assert!(not_checked(&machine, Link::Kernel).contains("begins as none that is known"));
}
