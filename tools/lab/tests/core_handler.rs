//! The kernel starts pagehaul for processes that crash, and gdb opens their cores.
//!
//! Boots a virtual machine, so it runs only with PAGEHAUL_LAB=1 (as `make test` sets it).

use lab::workload::{self, Config, Step};
use serde_json::Value;

const SCRIPT: &str = include_str!("../scenarios/core_handler.sh");

#[test]
fn cores_of_the_kernel_are_taken() {
    if !lab::enabled() {
        eprintln!("skipped: set PAGEHAUL_LAB=1 to boot virtual machines");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let config = Config {
        memory_mib: 768,
        scratch_mib: 512,
        swap_mib: 0,
        packages: vec!["gdb".into(), "zstd".into()],
        // Most kernels have the page of vsyscalls in each core; Debian's have it only on request.
        append: "vsyscall=xonly".into(),
        steps: vec![Step { name: "cores".into(), script: SCRIPT.into(), time_limit: 300 }],
        ..Config::default()
    };
    let report = workload::run(&config, &out).unwrap();
    let text = |name: &str| std::fs::read_to_string(out.join(name)).unwrap_or_default();
    let messages = || format!("{}\n{}", text("cores.stderr"), text("messages"));
    assert_eq!(report.steps[0].exit_code, Some(0), "{}", messages());
    // 128, and the signal.
    assert_eq!(text("status").trim(), "139", "{}", messages());
    // The third crash had a limit of 0.
    assert_eq!(text("list").lines().count(), 2, "{}\n{}", text("list"), messages());
    let mut signals = Vec::new();
    for number in ["1", "2"] {
        let gdb = text(&format!("gdb.{number}"));
        let signal = gdb.lines().find_map(|line| line.strip_prefix("$1 = "));
        let signal = signal.unwrap_or_else(|| panic!("{gdb}")).to_owned();
        assert!(gdb.contains("#0 "), "{gdb}");
        let info: Value = serde_json::from_str(&text(&format!("info.{number}"))).unwrap();
        signals.push((signal, info["incomplete_because"].clone()));
    }
    signals.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(signals[0].0, "11", "{signals:?}");
    assert_eq!(signals[1].0, "6", "{signals:?}");
    assert_eq!(signals[0].1, Value::Null, "{signals:?}\n{}", messages());
    // The limit of the second one is smaller than its memory.
    assert!(signals[1].1.as_str().is_some_and(|why| why.contains("limit")), "{signals:?}\n{}", messages());
}
