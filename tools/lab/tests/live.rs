//! Reads a running kernel through /proc/kcore, and compares with what the kernel reports.
//!
//! Boots virtual machines, so it runs only with PAGEHAUL_LAB=1 (as `make test` sets it).

use lab::workload::{self, Config, Step};
use serde_json::{Value, json};

const SCRIPT: &str = include_str!("../scenarios/kcore.sh");
const LOCKDOWN: &str = include_str!("../scenarios/lockdown.sh");

#[test]
fn kcore_agrees_with_the_running_kernel() {
    if !lab::enabled() {
        eprintln!("skipped: set PAGEHAUL_LAB=1 to boot virtual machines");
        return;
    }
    for kernel in lab::few_or_all(&["7.2"], ["6.1", "7.2"]) {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("out");
        let config = Config {
            kernel: kernel.into(),
            memory_mib: 512,
            scratch_mib: 64,
            swap_mib: 0,
            steps: vec![Step { name: "kcore".into(), script: SCRIPT.into(), time_limit: 300 }],
            ..Config::default()
        };
        let report = workload::run(&config, &out).unwrap();
        let text = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
        assert_eq!(report.steps[0].exit_code, Some(0), "{kernel}: {}", text("kcore.stderr"));

        assert!(text("log").lines().count() > 100, "{kernel}");
        // The kernel may have logged more between the two.
        assert!(text("log.kernel").starts_with(&text("log")), "{kernel}: the logs differ");
        assert_eq!(text("version"), text("version.kernel"), "{kernel}");
        let live: Value = serde_json::from_str(&text("info.json")).unwrap();
        assert_eq!(live["release"], text("release").trim(), "{kernel}");

        let triage: Value = serde_json::from_str(&text("triage.json")).unwrap();
        let found: Vec<String> =
            triage["tasks"].as_array().unwrap().iter().map(|task| task["pid"].to_string()).collect();
        let pids = text("pids");
        assert!(pids.lines().count() > 30, "{kernel}");
        for pid in pids.lines() {
            assert!(
                found.iter().any(|known| known == pid),
                "{kernel}: task {pid} is missing: {}",
                triage["missing"]
            );
        }
        // Of sleeping tasks, among them kthreadd.
        let stacks = triage["stacks"].as_array().unwrap();
        let whole = stacks.iter().filter(|stack| stack["stack"]["complete"] == true).count();
        assert!(2 * whole > stacks.len(), "{kernel}: {whole} of {} stacks are complete", stacks.len());
        assert!(triage["death"]["kind"].is_null(), "{kernel}");

        let owners: Value = serde_json::from_str(&text("owners.after")).unwrap();
        let total: u64 = text("total").trim().parse().unwrap();
        assert_eq!(owners["managed"].as_u64().map(|pages| 4 * pages), Some(total), "{kernel}");
        let grown: Value = serde_json::from_str(&text("grown.json")).unwrap();
        let shmem = grown["rows"].as_array().unwrap().iter().find(|row| row["kind"] == "shmem").unwrap();
        let file = &shmem["owners"][0];
        assert!(file["name"].as_str().unwrap().ends_with("/grows"), "{kernel}: {grown}");
        // A structure that the kernel changes while it is read leaves what is not listed unknown.
        let before = if grown["damaged"][0] == false { json!(0) } else { Value::Null };
        assert_eq!((&file["before"], &file["after"]), (&before, &json!(8192)), "{kernel}: {grown}");
        assert_eq!(text("intervals").lines().count(), 2, "{kernel}");
    }
}

#[test]
fn a_kernel_that_is_locked_down_is_named() {
    if !lab::enabled() {
        eprintln!("skipped: set PAGEHAUL_LAB=1 to boot virtual machines");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let config = Config {
        memory_mib: 512,
        scratch_mib: 64,
        swap_mib: 0,
        append: "lockdown=confidentiality".into(),
        steps: vec![Step { name: "lockdown".into(), script: LOCKDOWN.into(), time_limit: 300 }],
        ..Config::default()
    };
    let report = workload::run(&config, &out).unwrap();
    let text = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    assert_eq!(report.steps[0].exit_code, Some(0), "{}", text("lockdown.stderr"));
    assert!(text("state").contains("from command line"), "{}", text("state"));
    let commands = text("commands");
    assert_eq!(commands.lines().count(), 5, "{commands}");
    for line in commands.lines() {
        assert!(line.starts_with("1 0 pagehaul: cannot open /proc/kcore: "), "{line}");
        assert!(line.ends_with("where the kernel is locked down (/sys/kernel/security/lockdown)"), "{line}");
    }
    assert!(text("plan").contains("(assumed)"), "{}", text("plan"));
}
