//! Crashes of many releases and architectures. A file is `BUG.RELEASE.log`: the crashes of one bug have one signature, those of
//! different bugs have different ones. `written-` logs are made up in the format of their kernel; the others are the lab's guests'.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use pagehaul_facts::{Crash, Kind, lines_of_text};

fn crashes() -> BTreeMap<String, Crash> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let crash = |path: &Path| {
        let text = std::fs::read_to_string(path).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let crash = Crash::find(&lines_of_text(&text)).unwrap_or_else(|| panic!("{name}: no crash"));
        (name, crash)
    };
    std::fs::read_dir(directory).unwrap().map(|entry| crash(&entry.unwrap().path())).collect()
}

fn bug(name: &str) -> &str {
    name.split('.').next().unwrap()
}

#[test]
fn a_bug_has_one_signature_on_all_kernels() {
    let mut by_bug = BTreeMap::<String, Vec<(String, Crash)>>::new();
    for (name, crash) in crashes() {
        by_bug.entry(bug(&name).to_owned()).or_default().push((name, crash));
    }
    assert!(by_bug.values().map(Vec::len).sum::<usize>() >= 30);
    let mut seen = BTreeMap::new();
    for (bug, crashes) in by_bug {
        let (first, with) = &crashes[0];
        for (name, crash) in &crashes {
            assert_eq!(crash.signature.frames, with.signature.frames, "{first}, {name}");
            assert_eq!(crash.signature.sig, with.signature.sig, "{first}, {name}");
        }
        if let Some(other) = seen.insert(with.signature.sig.clone(), bug.clone()) {
            panic!("{bug} and {other} have one signature");
        }
    }
}

#[test]
fn crashes_are_described() {
    let mut out = String::new();
    for (name, crash) in crashes() {
        let of = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
        let number = |number: Option<u32>| number.map_or("-".into(), |number| number.to_string());
        let Crash { title, signature, .. } = &crash;
        writeln!(out, "{name}: {title}").unwrap();
        writeln!(out, "  {} {} {}", signature.sig, signature.sig_fine, signature.frames.join(" < ")).unwrap();
        let (task, pid, cpu) = (of(&crash.task), number(crash.pid), number(crash.cpu));
        writeln!(
            out,
            "  task {task} {pid}, CPU {cpu}, taint {}, {} lines",
            of(&crash.taint),
            crash.text.lines().count()
        )
        .unwrap();
    }
    insta::assert_snapshot!(out);
}

#[test]
fn a_log_without_a_crash_has_none() {
    let boot = "[    0.000000] Linux version 6.1.0\n[    1.000000] traps: a[12] general protection fault ip:7f sp:7f error:0";
    assert_eq!(Crash::find(&lines_of_text(boot)), None);
    assert_eq!(Crash::find(&[]), None);
}

#[test]
fn the_cause_counts_not_what_follows() {
    let crash = |text: &str| Crash::find(&lines_of_text(text)).unwrap().signature.kind;
    let oops = "BUG: kernel NULL pointer dereference, address: 8\nRIP: 0010:f+0x1/0x2\n";
    let panic = |text: &str| format!("{oops}Kernel panic - not syncing: {text}\n");
    assert_eq!(crash(&panic("Fatal exception in interrupt")), Kind::NullDeref);
    assert_eq!(crash(&panic("Attempted to kill init! exitcode=0x00000009")), Kind::NullDeref);
    // Requested panics and machine checks keep their kind, even after an oops.
    assert_eq!(crash(&panic("sysrq triggered crash")), Kind::Requested);
    assert_eq!(crash(&panic("Fatal machine check")), Kind::Mce);
    assert_eq!(crash(oops), Kind::NullDeref);
}

#[test]
fn sysrq_counts_without_the_line_of_its_panic() {
    let kind = |text: &str| Crash::find(&lines_of_text(text)).map(|crash| crash.signature.kind);
    assert_eq!(kind("[    9.000000] sysrq: Trigger a crash"), Some(Kind::Requested));
    assert_eq!(kind("[    9.000000] sysrq: SysRq : Trigger a crash"), Some(Kind::Requested));
}

#[test]
fn a_hard_lockup_names_the_cpu_that_was_stuck_not_the_one_that_noticed() {
    let text = "watchdog: Watchdog detected hard LOCKUP on cpu 9\n\
                Kernel panic - not syncing: Hard LOCKUP\n\
                CPU: 2 PID: 5 Comm: finder Tainted: G           OE      6.6.30 #1";
    let crash = Crash::find(&lines_of_text(text)).unwrap();
    assert_eq!((crash.cpu, crash.pid, crash.taint.as_deref()), (Some(9), None, Some("OE")));
}
