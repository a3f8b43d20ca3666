//! Each fault of a set-up is found, and a set-up without faults has no findings.

mod machine;

use std::fs;

use machine::{Machine, RELEASE};
use pagehaul_kdump_setup::{Expected, Facts, Root, Severity, check};

#[test]
fn set_ups_without_faults_have_no_findings() {
    for machine in [Machine::debian(), Machine::fedora(), Machine::suse()] {
        let facts = machine.facts();
        assert_eq!(check(&facts, &Expected::default()), [], "{facts:?}");
    }
}

fn ssh_key(machine: &Machine) {
    let path = "/root/.ssh/kdump_id_rsa";
    machine.write(path, "-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----\n");
    machine.mode(path, 0o600);
}

fn configure(machine: &Machine, text: &str) {
    machine.write("/etc/default/kdump-tools", text);
    machine.age("/etc/default/kdump-tools");
}

#[test]
fn the_command_line_may_ask_for_records_before_the_capture_kernel() {
    for word in ["crash_kexec_post_notifiers", "crash_kexec_post_notifiers=1"] {
        let machine = Machine::debian();
        machine.remove("/sys/module/kernel/parameters/crash_kexec_post_notifiers");
        let line = fs::read_to_string(machine.path("/proc/cmdline")).unwrap();
        machine.write("/proc/cmdline", &format!("{} {word}\n", line.trim()));
        assert!(!machine.findings(Expected::default()).contains(&"no-pstore-before-kdump"));
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
fn the_initramfs_itself_is_removed_not_the_link_to_it() {
    let mut facts = Machine::debian().facts();
    facts.missing_drivers = vec!["nvme".into()];
    let fix = format!("rm /var/lib/kdump/initrd.img-{RELEASE}; kdump-config unload; kdump-config load");
    assert_eq!(check(&facts, &Expected::default())[0].fix, fix);
}

/// What `fix` of "old-command-line" leads to.
#[test]
fn a_change_of_the_settings_is_found_until_the_capture_kernel_is_loaded_again() {
    let machine = Machine::debian();
    machine.write(
        "/etc/default/kdump-tools",
        "USE_KDUMP=1\nKDUMP_CMDLINE_APPEND=\"systemd.unit=u reset_devices nr_cpus=1\"\n",
    );
    machine.age(&format!("/var/lib/kdump/initrd.img-{RELEASE}"));
    let load = |parameters: &str| {
        machine.write(
            "/var/crash/kexec_cmd",
            &format!("/sbin/kexec -p --command-line=\"quiet systemd.unit=u {parameters}\" vmlinuz\n"),
        );
    };
    load("nr_cpus=2 reset_devices");
    let found = check(&machine.facts(), &Expected::default());
    assert_eq!(found.iter().map(|finding| finding.id).collect::<Vec<_>>(), ["old-command-line"]);
    assert!(found[0].what.contains("without nr_cpus=1, which"), "{found:?}");
    load("reset_devices nr_cpus=1");
    assert_eq!(machine.findings(Expected::default()), Vec::<&str>::new());
}

#[test]
fn an_initramfs_without_pagehaul_is_found() {
    let machine = Machine::fedora();
    let mut facts = machine.facts();
    facts.image_has_pagehaul = Some(false);
    let found = check(&facts, &Expected::default());
    assert_eq!(found.iter().map(|finding| finding.id).collect::<Vec<_>>(), ["not-in-initramfs"]);
    assert_eq!(found[0].fix, "kdumpctl rebuild && kdumpctl restart");
}

#[test]
fn recipients_that_dumps_are_not_encrypted_to_are_found() {
    let found = |machine: &Machine, recipients: Result<usize, String>| {
        let mut facts = machine.facts();
        facts.recipients = Some(recipients);
        check(&facts, &Expected::default()).iter().map(|finding| finding.id).collect::<Vec<_>>()
    };
    let debian = Machine::debian();
    assert_eq!(found(&debian, Ok(2)), Vec::<&str>::new());
    assert_eq!(found(&debian, Err("it is empty".into())), ["unusable-recipients"]);
    debian.remove("/usr/bin/makedumpfile");
    debian.program("/usr/bin/makedumpfile", "another program");
    assert_eq!(found(&debian, Ok(2)), ["not-encrypted", "not-pagehaul"]);
    assert_eq!(found(&Machine::suse(), Ok(2)), ["recipients-not-in-initramfs"]);
    // The files in its initramfs are not known.
    assert_eq!(found(&Machine::fedora(), Ok(2)), ["log-not-encrypted"]);
}

#[test]
fn command_lines_are_those_of_the_scripts() {
    let line = |machine: &Machine| machine.facts().config.unwrap().command_line().join(" ");
    let machine = Machine::debian();
    assert_eq!(line(&machine), "makedumpfile -F -c -d 31 vmcore");
    configure(&machine, "MAKEDUMP_ARGS=\"-z -d 17\"");
    assert_eq!(line(&machine), "makedumpfile -z -d 17 -F vmcore");
    let machine = Machine::fedora();
    assert_eq!(line(&machine), "makedumpfile -l --message-level 7 -d 31 vmcore dumpfile");
    machine.write("/etc/kdump.conf", "ssh kdump@host\ncore_collector makedumpfile -F -l -d 31\n");
    assert_eq!(line(&machine), "makedumpfile -F -l -d 31 vmcore");
    machine.write("/etc/kdump.conf", "ssh kdump@host\n");
    assert_eq!(line(&machine), "makedumpfile -l --message-level 7 -d 31 -F vmcore");
    assert_eq!(line(&Machine::suse()), "makedumpfile -F -c -d 31 vmcore");
}

#[test]
fn a_refused_command_line_is_a_problem() {
    let mut facts = Machine::debian().facts();
    facts.refused = Some("--config is refused".into());
    let found = check(&facts, &Expected::default());
    assert_eq!(found.iter().map(|finding| finding.id).collect::<Vec<_>>(), ["refused-option"]);
    assert!(found[0].what.contains("`makedumpfile -F -c -d 31 vmcore`, by MAKEDUMP_ARGS"), "{found:?}");
}

#[test]
fn a_host_on_another_port_is_known() {
    let machine = Machine::debian();
    configure(&machine, "USE_KDUMP=1\nSSH=\"kdump@10.0.2.2\"");
    ssh_key(&machine);
    machine.write("/root/.ssh/known_hosts", "[10.0.2.2]:2222 ssh-ed25519 AAAA");
    assert_eq!(machine.findings(Expected::default()), Vec::<&str>::new());
}

#[test]
fn the_fix_names_the_word_that_limits_the_cpus() {
    let fix = |machine: &Machine| {
        let found = check(&machine.facts(), &Expected { cpus: Some(4), disk: None });
        found.into_iter().find(|finding| finding.id == "few-cpus").unwrap().fix
    };
    let machine = Machine::debian();
    machine.write(
        "/etc/default/kdump-tools",
        "USE_KDUMP=1\nKDUMP_CMDLINE=\"root=x nosmp\"\nKDUMP_CMDLINE_APPEND=\"nr_cpus=4 maxcpus=1 -- nr_cpus=1\"\n",
    );
    assert_eq!(
        fix(&machine),
        "remove nosmp from KDUMP_CMDLINE, remove maxcpus=1 from KDUMP_CMDLINE_APPEND (/etc/default/kdump-tools)"
    );
    let fedora = Machine::fedora();
    fedora.write("/etc/sysconfig/kdump", "KDUMP_COMMANDLINE_APPEND=\"nr_cpus=2\"\n");
    assert_eq!(
        fix(&fedora),
        "set nr_cpus=4 in place of nr_cpus=2 in KDUMP_COMMANDLINE_APPEND (/etc/sysconfig/kdump)"
    );
    let suse = Machine::suse();
    suse.write("/etc/sysconfig/kdump", "KDUMP_CPUS=1\n");
    assert_eq!(fix(&suse), "set KDUMP_CPUS=4 (/etc/sysconfig/kdump)");
}

#[test]
fn what_is_planned_is_compared() {
    let machine = Machine::debian();
    assert_eq!(machine.findings(Expected { cpus: Some(4), disk: None }), ["few-cpus"]);
    let mut facts = machine.facts();
    facts.target_rate = Some(50_000_000);
    let found = |facts: &Facts, disk| {
        let found = check(facts, &Expected { cpus: None, disk: Some(disk) });
        found.iter().map(|finding| finding.id).collect::<Vec<_>>()
    };
    assert_eq!(found(&facts, 100_000_000), ["slow-target"]);
    assert_eq!(found(&facts, 50_000_000), Vec::<&str>::new());
}

#[test]
fn the_level_decides_what_the_target_must_hold() {
    let machine = Machine::debian();
    // Nearly all of it is the page cache of a machine whose disk is smaller.
    let cache = 9_000_000_000_000_000_u64;
    machine.write("/proc/meminfo", &format!("MemTotal: {cache} kB\nMemFree: 0 kB\nCached: {cache} kB\n"));
    let mut facts = machine.facts();
    for (level, expected) in
        [(None, ""), (Some(31), ""), (Some(17), "target-small"), (Some(0), "target-small")]
    {
        facts.level = level;
        let found = check(&facts, &Expected::default());
        let found: Vec<_> =
            found.iter().map(|finding| finding.id).filter(|id| *id != "small-reservation").collect();
        assert_eq!(found.join(" "), expected, "{level:?}");
    }
}

#[test]
fn a_file_system_without_inodes_is_full() {
    let mut facts = Machine::debian().facts();
    facts.target_has_no_inodes = true;
    let found = check(&facts, &Expected::default());
    assert_eq!(found.iter().map(|finding| finding.id).collect::<Vec<_>>(), ["target-full"]);
    assert!(found[0].what.contains("inode"), "{found:?}");
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
    machine.program("/usr/bin/makedumpfile", "another program");
    machine.age("/usr/bin/makedumpfile");
    assert_eq!(machine.findings(Expected::default()), ["not-pagehaul"]);
    machine.write("/usr/lib/dracut/modules.d/99pagehaul-kdump/module-setup.sh", "");
    assert_eq!(machine.findings(Expected::default()), Vec::<&str>::new());
}

#[test]
fn problems_come_first() {
    let machine = Machine::debian();
    machine.write("/proc/sys/kernel/panic_on_oops", "0");
    machine.remove("/usr/sbin/kexec");
    let found = check(&machine.facts(), &Expected::default());
    assert_eq!(
        found.iter().map(|finding| finding.severity).collect::<Vec<_>>(),
        [Severity::Problem, Severity::Warning]
    );
}

#[test]
fn a_machine_without_any_file_is_checked() {
    let directory = tempfile::tempdir().unwrap();
    let found = check(&Facts::read(&Root::open(directory.path()).unwrap()), &Expected::default());
    assert!(found.iter().any(|finding| finding.id == "no-kdump"));
}
