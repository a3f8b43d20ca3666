//! A plan becomes lines of each distribution's files; files that have them are left alone.

mod machine;

use machine::Machine;
use pagehaul_kdump_setup::plan::{Changes, Settings, changes};
use pagehaul_kdump_setup::{Expected, Root};

const GRUB: &str = "/etc/default/grub";

fn wanted(cpus: u32) -> Settings {
    let crashkernel = vec!["crashkernel=224M".to_owned()];
    Settings { crashkernel, cpus, level: 31, codec: Some("-z") }
}

fn planned(machine: &Machine, cpus: u32) -> Changes {
    let facts = machine.facts();
    let config = facts.config.clone().unwrap();
    changes(&Root::open(machine.path("/")).unwrap(), &facts, &config, &wanted(cpus))
}

/// Each file with its new lines.
fn lines(changes: &Changes) -> Vec<(String, String)> {
    let of = |change: &pagehaul_kdump_setup::plan::Change| {
        (change.path.display().to_string(), change.lines.join("\n"))
    };
    changes.files.iter().map(of).collect()
}

fn apply(machine: &Machine, changes: &Changes) {
    for change in &changes.files {
        machine.write(change.path.to_str().unwrap(), str::from_utf8(&change.after).unwrap());
    }
}

fn expect(machine: &Machine, cpus: u32, expected: &[(&str, &str)], commands: &[&str]) {
    let found = planned(machine, cpus);
    let expected: Vec<(String, String)> =
        expected.iter().map(|(path, lines)| ((*path).to_owned(), (*lines).to_owned())).collect();
    assert_eq!(lines(&found), expected);
    assert_eq!(found.commands, commands);
    apply(machine, &found);
    assert_eq!(planned(machine, cpus), Changes::default(), "a second time");
}

#[test]
fn debian_gets_its_lines() {
    let machine = Machine::debian();
    machine.write("/proc/sys/kernel/panic_on_oops", "0");
    machine.write(
        "/etc/default/grub.d/kdump-tools.cfg",
        "# why\nGRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT crashkernel=512M-:192M\"\n",
    );
    let append = "reset_devices systemd.unit=kdump-tools-dump.service nr_cpus=4 disable_cpu_apicid=0 irqpoll usbcore.nousb";
    expect(
        &machine,
        4,
        &[
            (
                "/etc/default/grub.d/kdump-tools.cfg",
                "GRUB_CMDLINE_LINUX_DEFAULT=\"$GRUB_CMDLINE_LINUX_DEFAULT crashkernel=224M\"",
            ),
            (
                "/etc/default/kdump-tools",
                &format!("KDUMP_CMDLINE_APPEND=\"{append}\"\nMAKEDUMP_ARGS=\"-F -z -d 31\""),
            ),
            ("/etc/sysctl.d/60-pagehaul-kdump.conf", "kernel.panic_on_oops=1"),
        ],
        &["update-grub", "kdump-config unload", "kdump-config load", "sysctl --system", "reboot"],
    );
    // What was written is what `kdump check` wants; the two last commands bring the rest.
    machine.write("/proc/sys/kernel/panic_on_oops", "1");
    machine.write("/sys/kernel/kexec_crash_size", "234881024");
    machine.age("/etc/default/kdump-tools");
    assert_eq!(machine.findings(Expected { cpus: Some(4), disk: None }), ["boot-loader-pending"]);
    for file in ["/boot/grub/grub.cfg", "/proc/cmdline"] {
        machine.edit(file, |text| text.replace("crashkernel=512M-:192M", "crashkernel=224M"));
    }
    assert_eq!(machine.findings(Expected { cpus: Some(4), disk: None }), Vec::<&str>::new());
    // Back to one CPU: no CPU has to be disabled.
    let found = planned(&machine, 1);
    assert!(lines(&found)[0].1.contains("nr_cpus=1 irqpoll usbcore.nousb\""), "{found:?}");
}

#[test]
fn newer_kernels_find_the_boot_cpu_themselves() {
    let machine = Machine::debian();
    machine.write("/proc/sys/kernel/osrelease", "6.12.107");
    let found = planned(&machine, 4);
    assert!(!lines(&found).iter().any(|(_, lines)| lines.contains("disable_cpu_apicid")), "{found:?}");
}

#[test]
fn fedora_gets_its_lines() {
    let machine = Machine::fedora();
    machine.write(GRUB, "GRUB_CMDLINE_LINUX='rhgb crashkernel=256M quiet'\n");
    machine.write("/etc/sysconfig/kdump", "KDUMP_COMMANDLINE_APPEND=\"irqpoll nr_cpus=1 numa=off\"\n");
    expect(
        &machine,
        4,
        &[
            (GRUB, "GRUB_CMDLINE_LINUX='rhgb crashkernel=224M quiet'"),
            ("/etc/sysconfig/kdump", "KDUMP_COMMANDLINE_APPEND=\"irqpoll nr_cpus=4 numa=off\""),
            ("/etc/kdump.conf", "core_collector makedumpfile --message-level 7 -z -d 31"),
        ],
        &[
            "grubby --update-kernel=ALL --remove-args=crashkernel --args=\"crashkernel=224M\"",
            "kdumpctl rebuild && kdumpctl restart",
            "reboot",
        ],
    );
}

#[test]
fn streams_stay_flattened() {
    let machine = Machine::fedora();
    machine.write("/etc/kdump.conf", "ssh kdump@host\ncore_collector makedumpfile -l -d 31\n");
    let found = planned(&machine, 1);
    assert!(
        lines(&found).iter().any(|(_, line)| line == "core_collector makedumpfile -F -z -d 31"),
        "{found:?}"
    );
    // Another program takes other options.
    machine.write("/etc/kdump.conf", "core_collector cp --sparse=always\n");
    let found = planned(&machine, 1);
    assert!(!lines(&found).iter().any(|(path, _)| path == "/etc/kdump.conf"), "{found:?}");
}

#[test]
fn suse_gets_its_lines() {
    let machine = Machine::suse();
    expect(
        &machine,
        4,
        &[
            (GRUB, "GRUB_CMDLINE_LINUX_DEFAULT=\"crashkernel=224M quiet\""),
            ("/etc/sysconfig/kdump", "KDUMP_CPUS=\"4\"\nKDUMP_DUMPLEVEL=\"31\"\nKDUMP_DUMPFORMAT=\"zstd\""),
        ],
        &["grub2-mkconfig -o /boot/grub2/grub.cfg", "mkdumprd -f && systemctl restart kdump", "reboot"],
    );
}

#[test]
fn formats_of_suse_that_filter_nothing_are_left_to_be_changed_by_hand() {
    let machine = Machine::suse();
    for (format, program, reason) in [
        ("raw", Some("cat"), "KDUMP_DUMPFORMAT in /etc/sysconfig/kdump is raw: cat copies all memory"),
        ("none", None, "KDUMP_DUMPFORMAT in /etc/sysconfig/kdump is none: only the log is saved"),
    ] {
        machine.write("/etc/sysconfig/kdump", &format!("KDUMP_DUMPFORMAT={format}\n"));
        let config = machine.facts().config.unwrap();
        assert_eq!(config.collector.first().map(String::as_str), program);
        let found = planned(&machine, 1);
        let left: Vec<_> = found.by_hand.iter().map(|left| (&*left.reason, &*left.line)).collect();
        assert_eq!(left, [(reason, "KDUMP_DUMPFORMAT=\"zstd\"")]);
        assert!(!lines(&found).iter().any(|(_, lines)| lines.contains("KDUMP_DUMP")), "{:?}", lines(&found));
    }
}

/// What they take instead is as planned.
#[test]
fn settings_that_the_scripts_of_suse_ignore_are_set_all_the_same() {
    let machine = Machine::suse();
    for (settings, lines) in [
        ("KDUMP_DUMPLEVEL=abc\nKDUMP_DUMPFORMAT=zstd\n", "KDUMP_DUMPLEVEL=\"31\""),
        ("KDUMP_DUMPLEVEL=31\nKDUMP_DUMPFORMAT=ZSTD\n", "KDUMP_DUMPFORMAT=\"zstd\""),
        ("KDUMP_DUMPLEVEL=32\nKDUMP_DUMPFORMAT=zstd\n", "KDUMP_DUMPLEVEL=\"31\""),
    ] {
        machine.write("/etc/sysconfig/kdump", settings);
        let found = planned(&machine, 32);
        let of = |path: &str| self::lines(&found).into_iter().find(|(of, _)| of == path);
        assert_eq!(of("/etc/sysconfig/kdump").unwrap().1.replace(['\'', '"'], ""), lines.replace('"', ""));
        apply(&machine, &found);
        assert_eq!(planned(&machine, 32), Changes::default(), "a second time");
    }
    machine.write("/etc/sysconfig/kdump", "KDUMP_TRANSFER=\"/root/save\"\n");
    let left = planned(&machine, 32).by_hand;
    assert_eq!(left.iter().map(|left| &*left.line).collect::<Vec<_>>(), ["KDUMP_TRANSFER=\"\""]);
    assert!(left[0].reason.starts_with("KDUMP_TRANSFER in /etc/sysconfig/kdump is set"), "{left:?}");
}

/// openSUSE's scripts put the further options last, and the last of several counts.
#[test]
fn further_options_of_suse_that_count_are_left_to_be_changed_by_hand() {
    let machine = Machine::suse();
    for (options, kept) in [
        ("-d 0", ""),
        ("-l", ""),
        ("--message-level 7 -z -d 17 --num-threads 2", "--message-level 7 --num-threads 2"),
        ("-d17 -X", "-X"),
    ] {
        machine.write(
            "/etc/sysconfig/kdump",
            &format!("KDUMP_DUMPLEVEL=31\nMAKEDUMPFILE_OPTIONS=\"{options}\"\n"),
        );
        let found = planned(&machine, 1);
        let left: Vec<_> = found.by_hand.iter().map(|left| &*left.line).collect();
        assert_eq!(left, [format!("MAKEDUMPFILE_OPTIONS=\"{kept}\"")], "{options}");
    }
    machine.write("/etc/sysconfig/kdump", "KDUMP_DUMPLEVEL=31\nMAKEDUMPFILE_OPTIONS=\"--message-level 7\"\n");
    assert_eq!(planned(&machine, 1).by_hand, []);
}

#[test]
fn what_is_not_understood_is_left_to_be_changed_by_hand() {
    let machine = Machine::fedora();
    let grub = "GRUB_CMDLINE_LINUX=\"rhgb\nGRUB_TIMEOUT=5\n";
    machine.write(GRUB, grub);
    machine.write("/etc/kdump.conf", "path /var/crash\r\n");
    let found = planned(&machine, 4);
    assert_eq!(lines(&found).into_iter().map(|(path, _)| path).collect::<Vec<_>>(), ["/etc/sysconfig/kdump"]);
    let left: Vec<_> = found.by_hand.iter().map(|left| (left.path.to_str().unwrap(), &*left.line)).collect();
    let grub = "GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX crashkernel=224M\"";
    let collector = "core_collector makedumpfile --message-level 7 -z -d 31";
    assert_eq!(left, [(GRUB, grub), ("/etc/kdump.conf", collector)]);
    assert_eq!(found.by_hand[0].reason, "line 1: a quotation mark (\") without its end");
    assert!(found.commands.iter().any(|command| command.starts_with("grubby")), "{found:?}");
    // Nor are pipes, which would wait.
    machine.remove(GRUB);
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, machine.path(GRUB), mode).unwrap();
    assert_eq!(planned(&machine, 4).by_hand[0].reason, "it is not a regular file");
}

#[test]
fn a_value_over_several_lines_keeps_its_lines() {
    let machine = Machine::debian();
    machine.write(
        "/etc/default/kdump-tools",
        "USE_KDUMP=1\nKDUMP_CMDLINE_APPEND=\"reset_devices \\\n  nr_cpus=1 \\\n  irqpoll\"\nMAKEDUMP_ARGS=\"-F -z -d 31\"\n",
    );
    machine.write(
        "/etc/default/grub.d/kdump-tools.cfg",
        "GRUB_CMDLINE_LINUX_DEFAULT=\"a\\\"b\\\" $(c \"d\") \n crashkernel=1M\"\n",
    );
    let found = planned(&machine, 2);
    let lines = lines(&found);
    assert_eq!(lines[0].1, " crashkernel=224M\"");
    assert_eq!(lines[1].1, "  nr_cpus=2 disable_cpu_apicid=0 \\");
}

/// The last assignment of a variable in a file.
fn value(machine: &Machine, path: &str, key: &str) -> String {
    let text = std::fs::read_to_string(machine.path(path)).unwrap();
    let last = text.lines().rev().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    last.unwrap_or_default().trim_matches('"').to_owned()
}

#[test]
fn what_limits_the_cpus_is_removed() {
    const DEBIAN: &str = "/etc/default/kdump-tools";
    const SYSCONFIG: &str = "/etc/sysconfig/kdump";
    let cases = [
        (DEBIAN, "KDUMP_CMDLINE_APPEND", "a maxcpus=1 b", "a nr_cpus=4 b"),
        (DEBIAN, "KDUMP_CMDLINE_APPEND", "a nosmp nr-cpus=2 nosmpt possible_cpus=1", "a nr_cpus=4 nosmpt"),
        (DEBIAN, "KDUMP_CMDLINE_APPEND", "a -- nr_cpus=1", "a nr_cpus=4 -- nr_cpus=1"),
        (DEBIAN, "KDUMP_CMDLINE_APPEND", "-- b", "nr_cpus=4 -- b"),
        (DEBIAN, "KDUMP_CMDLINE_APPEND", "nr_cpus=4 maxcpus=0 -- maxcpus=1", "nr_cpus=4 -- maxcpus=1"),
        (DEBIAN, "KDUMP_CMDLINE", "root=x maxcpus=1 ro", "root=x ro"),
        (DEBIAN, "KDUMP_CMDLINE", "root=x -- single", "root=x nr_cpus=4 -- single"),
        (SYSCONFIG, "KDUMP_COMMANDLINE_APPEND", "irqpoll maxcpus=1", "irqpoll nr_cpus=4"),
        (SYSCONFIG, "KDUMP_COMMANDLINE", "root=x nr_cpus=1", "root=x"),
        ("suse", "KDUMP_COMMANDLINE_APPEND", "nr_cpus=1 a maxcpus=1", " a"),
        ("suse", "KDUMP_COMMANDLINE", "root=x nr_cpus=1 ro", "root=x nr_cpus=4 ro"),
        ("suse", "KDUMP_COMMANDLINE", "root=x", "root=x nr_cpus=4"),
        ("suse", "KDUMP_CPUS", "2", "4"),
    ];
    for (file, key, before, after) in cases {
        let (machine, path) = match file {
            DEBIAN => (Machine::debian(), DEBIAN),
            "suse" => (Machine::suse(), SYSCONFIG),
            _ => (Machine::fedora(), SYSCONFIG),
        };
        machine.write("/proc/sys/kernel/osrelease", "6.12.107");
        machine.write(path, &format!("USE_KDUMP=1\n{key}=\"{before}\"\n"));
        let expected = Expected { cpus: Some(4), disk: None };
        let limited = machine.facts().config.unwrap().capture_cpus().is_some_and(|cpus| cpus < 4);
        assert_eq!(machine.findings(expected).contains(&"few-cpus"), limited, "{before}");
        let found = planned(&machine, 4);
        assert_eq!(found.by_hand, [], "{before}");
        apply(&machine, &found);
        assert_eq!(value(&machine, path, key), after, "{before}");
        assert!(!machine.findings(expected).contains(&"few-cpus"), "{before}");
        assert_eq!(machine.facts().config.unwrap().capture_cpus(), Some(4), "{before}");
        assert_eq!(planned(&machine, 4), Changes::default(), "{before}: a second time");
    }
}

#[test]
fn a_limit_that_is_computed_is_left_and_named_whole() {
    let machine = Machine::debian();
    machine.write("/proc/sys/kernel/osrelease", "6.12.107");
    for value in ["`echo nr_cpus=1` a", "a $(echo maxcpus=1)"] {
        machine.write("/etc/default/kdump-tools", &format!("KDUMP_CMDLINE_APPEND=\"{value}\"\n"));
        let found = planned(&machine, 4);
        let line = "KDUMP_CMDLINE_APPEND=\"reset_devices systemd.unit=kdump-tools-dump.service nr_cpus=4 irqpoll usbcore.nousb\"";
        assert_eq!(found.by_hand.len(), 1, "{found:?}");
        assert_eq!(found.by_hand[0].line, line);
    }
    machine.write("/etc/default/kdump-tools", "KDUMP_CMDLINE=\"root=x `echo maxcpus=1`\"\n");
    let found = planned(&machine, 4);
    assert_eq!(
        found.by_hand[0].line,
        "KDUMP_CMDLINE without nr_cpus=, maxcpus=, possible_cpus= and nosmp as they are now"
    );
}

#[test]
fn a_collector_that_is_not_understood_is_left_and_said() {
    let machine = Machine::fedora();
    let wanted = "core_collector makedumpfile -z -d 31";
    for (text, reason) in [
        ("core_collector dd bs=1M\n", "core_collector is `dd bs=1M`: dd copies all memory"),
        ("core_collector scp\n", "core_collector is `scp`: scp copies all memory"),
        ("core_collector /bin/cp --sparse=always\n", "cp copies all memory"),
        ("core_collector filter -d 31\n", "core_collector is `filter -d 31`, which is not understood"),
        ("core_collector 'makedumpfile -l -d 1'\n", "which is not understood"),
        ("core_collector makedumpfile \\\n  -l -d 1\n", "`makedumpfile \\`, which is not understood"),
        ("core_collector makedumpfile -z -d 31 \\\n", "which is not understood"),
    ] {
        machine.write("/etc/kdump.conf", text);
        let found = planned(&machine, 1);
        assert!(!lines(&found).iter().any(|(path, _)| path == "/etc/kdump.conf"), "{text}{found:?}");
        let left = found.by_hand.first().unwrap_or_else(|| panic!("{text}"));
        assert!(left.reason.contains(reason), "{}", left.reason);
        assert_eq!(left.line, wanted);
    }
    machine.write("/etc/kdump.conf", "ssh kdump@host\ncore_collector scp\n");
    assert_eq!(planned(&machine, 1).by_hand[0].line, "core_collector makedumpfile -F -z -d 31");
    // A pair of double quotation marks is not a part of the value.
    machine.write("/etc/kdump.conf", "core_collector \"makedumpfile -l -d 1\"\n");
    let found = planned(&machine, 1);
    assert_eq!(found.by_hand, []);
    assert!(
        lines(&found).iter().any(|(path, lines)| path == "/etc/kdump.conf" && lines == wanted),
        "{found:?}"
    );
    // None is the default.
    machine.write("/etc/kdump.conf", "core_collector\n");
    assert_eq!(planned(&machine, 1).by_hand, []);
}

#[test]
fn options_that_are_computed_are_not_in_the_line_to_add() {
    let machine = Machine::debian();
    for value in ["`echo -c -d 1`", "$LEVEL -c", "-c -d $(echo 1)", "-x 'a b' -d 1"] {
        machine.write("/etc/default/kdump-tools", &format!("USE_KDUMP=1\nMAKEDUMP_ARGS=\"{value}\"\n"));
        let found = planned(&machine, 1);
        assert_eq!(found.by_hand.len(), 1, "{value}: {found:?}");
        assert_eq!(found.by_hand[0].line, "MAKEDUMP_ARGS=\"-F -z -d 31\"");
        assert!(!lines(&found).iter().any(|(path, _)| path == "/etc/default/kdump-tools"), "{found:?}");
    }
}

#[test]
fn an_application_that_stops_half_way_says_what_is_changed() {
    let machine = Machine::debian();
    let mut found = planned(&machine, 4);
    let last = found.files.last_mut().unwrap();
    last.before = Some(b"what was there before".to_vec());
    let root = Root::open(machine.path("/")).unwrap();
    let error = pagehaul_kdump_setup::apply::apply(&root, &found.files).unwrap_err().to_string();
    assert!(error.contains("has changed since it was read"), "{error}");
    assert!(
        error.contains("changed already: /etc/default/grub.d/kdump-tools.cfg; `pagehaul kdump apply --undo`"),
        "{error}"
    );
    let restored = pagehaul_kdump_setup::apply::undo(&root).unwrap();
    assert_eq!(restored, [std::path::PathBuf::from("/etc/default/grub.d/kdump-tools.cfg")]);
}

/// Each read the files before the others wrote.
#[test]
fn what_several_applications_wrote_at_once_is_undone() {
    for machine in [Machine::debian(), Machine::fedora(), Machine::suse()] {
        let root = Root::open(machine.path("/")).unwrap();
        let start = std::sync::Barrier::new(3);
        for round in 0..16 {
            let found = planned(&machine, 4);
            assert!(found.files.len() > 1, "{found:?}");
            let results: Vec<_> = std::thread::scope(|scope| {
                let apply = || {
                    start.wait();
                    pagehaul_kdump_setup::apply::apply(&root, &found.files)
                };
                let threads: Vec<_> = (0..3).map(|_| scope.spawn(apply)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{round}: {results:?}");
            let restored = pagehaul_kdump_setup::apply::undo(&root).unwrap();
            assert_eq!(restored.len(), found.files.len());
            for change in &found.files {
                assert_eq!(root.read(&change.path).ok(), change.before, "{}", change.path.display());
            }
        }
    }
}

#[test]
fn files_that_a_killed_application_left_are_removed() {
    let machine = Machine::debian();
    let left = [
        "/var/lib/pagehaul/kdump/.pagehaul-4194000-apply.json",
        "/etc/default/.pagehaul-4194000-kdump-tools",
        "/etc/default/grub.d/.pagehaul-17-kdump-tools.cfg",
    ];
    let others = ["/etc/default/.pagehaul-x-kdump-tools", "/etc/default/.pagehaul-4194000-other"];
    left.iter().chain(&others).for_each(|path| machine.write(path, "half"));
    let root = Root::open(machine.path("/")).unwrap();
    pagehaul_kdump_setup::apply::apply(&root, &planned(&machine, 4).files).unwrap();
    assert!(!left.iter().any(|path| machine.exists(path)));
    left.iter().for_each(|path| machine.write(path, "half"));
    pagehaul_kdump_setup::apply::undo(&root).unwrap();
    assert!(!left.iter().any(|path| machine.exists(path)));
    assert!(others.iter().all(|path| machine.exists(path)));
}
