//! `pagehaul latency` on recordings of Linux 6.12, and its errors.

use std::process::{Command, Output, Stdio};

use pagehaul_test_support::tracer::{Fault, run};

const FUNCTIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../latency/tests/data/functions-6.12.pht");
const VMALLOC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../vmalloc/tests/data/vmalloc-6.12.pht");

/// An area lives from its allocation to its free.
const PAIR: &[&str] = &["alloc_vmap_area,free_vmap_area_noflush", "--key", "addr=va_start"];

fn latency(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pagehaul")).arg("latency").args(arguments).output().unwrap()
}

fn text(arguments: &[&str]) -> String {
    let output = latency(arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(arguments: &[&str]) -> serde_json::Value {
    serde_json::from_str(&text(&[arguments, &["--json"]].concat())).unwrap()
}

/// One sentence on standard error, exit status 1, nothing on standard output.
fn complaint(arguments: &[&str], parts: &[&str]) {
    let output = latency(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(output.stdout.is_empty());
    assert_eq!(said.lines().count(), 1, "{said}");
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in {said:?}");
    }
}

#[test]
fn each_function_has_a_histogram() {
    let report = text(&["--from", FUNCTIONS, "-F", "-u", "*"]);
    assert_eq!(report, include_str!("golden/latency-functions.txt"));
}

#[test]
fn units_steps_and_globs_apply() {
    let report = text(&["--from", FUNCTIONS, "--linear", "2000", "walk_*"]);
    assert_eq!(report, include_str!("golden/latency-linear.txt"));
    let all = json(&["--from", FUNCTIONS, "*"]);
    let parts = json(&["--from", FUNCTIONS, "-F", "-m", "*"]);
    let count = |part: &serde_json::Value| part["count"].as_u64().unwrap();
    let counts: Vec<u64> = parts["histograms"].as_array().unwrap().iter().map(count).collect();
    assert_eq!(counts.len(), 3);
    assert_eq!(counts.iter().sum::<u64>(), count(&all["histograms"][0]));
    assert_eq!(
        (all["histograms"][0]["unit"].as_str(), parts["histograms"][0]["unit"].as_str()),
        (Some("nsecs"), Some("msecs"))
    );
    let rows: u64 = all["histograms"][0]["log2"].as_array().unwrap().iter().map(count).sum();
    assert_eq!(rows, count(&all["histograms"][0]));
}

#[test]
fn a_pair_of_events_counts_the_same_calls() {
    let function = json(&["--from", FUNCTIONS, "lookup_fast"]);
    let pair = json(&["--from", FUNCTIONS, "--between", "b1_lookup_fast,e1_lookup_fast"]);
    assert_eq!(pair["histograms"][0]["count"], function["histograms"][0]["count"]);
    assert_eq!(pair["histograms"][0]["total_ns"], function["histograms"][0]["total_ns"]);
}

#[test]
fn pids_select_threads() {
    let count = |more: &[&str]| {
        let arguments =
            [&["--from", VMALLOC, "--between", "alloc_vmap_area,free_vmap_area_noflush", "--key"], more]
                .concat();
        let report = json(&arguments);
        report["histograms"][0]["count"].as_u64().unwrap()
    };
    let all = count(&["addr=va_start"]);
    assert_eq!(count(&["addr=va_start", "-p", "4194305"]), 0);
    assert!(all > 0);
}

/// Intervals follow the trace clock: their counts add up to the whole, and a shorter duration has fewer.
#[test]
fn recordings_have_intervals_and_times() {
    let lines = |arguments: &[&str]| -> Vec<serde_json::Value> {
        let all = [&["--from", VMALLOC, "--json", "--between"], PAIR, arguments].concat();
        text(&all).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let count = |report: &serde_json::Value| report["histograms"][0]["count"].as_u64().unwrap();
    let total = |report: &serde_json::Value| report["histograms"][0]["total_ns"].as_u64().unwrap();
    let whole = lines(&[]);
    let parts = lines(&["-i", "1", "-T"]);
    assert!(whole.len() == 1 && parts.len() > 2, "{} intervals", parts.len());
    assert_eq!(parts.iter().map(count).sum::<u64>(), count(&whole[0]));
    assert_eq!(parts.iter().map(total).sum::<u64>(), total(&whole[0]));
    assert!(parts.iter().filter(|part| count(part) > 0).count() > 1);
    // A pagehaul recording has the time of day; one report per second.
    let seconds = |report: &serde_json::Value| {
        let parts: Vec<u32> =
            report["time"].as_str().unwrap().split(':').map(|part| part.parse().unwrap()).collect();
        let [hours, minutes, seconds] = parts[..] else { panic!("{report}") };
        hours * 3600 + minutes * 60 + seconds
    };
    assert_eq!((seconds(&parts[1]) + 86_400 - seconds(&parts[0])) % 86_400, 1);
    let first = lines(&["--duration", "1s"]);
    assert_eq!((first.len(), count(&first[0])), (1, count(&parts[0])));
    assert!(first[0]["missed"]["open_at_end"].as_u64() > Some(0));
    // Text has the trace clock only.
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("trace.txt");
    let events = [(1, "begin"), (2, "end"), (6, "begin"), (7, "end"), (7, "begin")];
    let events: String =
        events.iter().map(|(second, event)| format!("dd-1 [000] {second}.5: {event}: x=1\n")).collect();
    std::fs::write(&file, events).unwrap();
    let found = text(&["--from", file.to_str().unwrap(), "--between", "begin,end", "-m", "-T", "-i", "2"]);
    let told = |line: &&str| {
        ["avg", "nothing"].iter().any(|begin| line.starts_with(begin))
            || line.ends_with(" s")
            || line.contains("still open")
    };
    let told: Vec<&str> = found.lines().filter(told).collect();
    assert_eq!(
        told,
        [
            "3.500000 s",
            "avg = 1000 msecs, total: 1000 msecs, count: 1",
            "7.500000 s",
            "nothing was measured",
            "7.500000 s",
            "avg = 1000 msecs, total: 1000 msecs, count: 1",
            "1 still open when tracing ended"
        ],
        "{found}"
    );
}

#[test]
fn fields_can_be_the_key() {
    // An area lives from its allocation to its free.
    let lives = json(&[
        "--from",
        VMALLOC,
        "--between",
        "vmalloc:alloc_vmap_area,vmalloc:free_vmap_area_noflush",
        "--key",
        "addr=va_start",
        "-u",
    ]);
    let freed = lives["histograms"][0]["count"].as_u64().unwrap();
    assert!(freed > 100, "{lives}");
    complaint(
        &["--from", VMALLOC, "--between", "alloc_vmap_area,free_vmap_area_noflush", "--key", "addr"],
        &["free_vmap_area_noflush has no field addr", "va_start"],
    );
}

#[test]
fn errors_are_one_sentence() {
    complaint(&["--from", FUNCTIONS, "--between", "nope,b0_vfs_read"], &["no event nope", "b0_vfs_read"]);
    complaint(&["--from", VMALLOC, "vfs_read"], &["no event funcgraph_exit", "--between"]);
    complaint(&["--from", "/nonexistent", "vfs_read"], &["/nonexistent"]);
    let usage = latency(&["--between", "alone"]);
    assert_eq!(usage.status.code(), Some(2));
    assert_eq!(latency(&[]).status.code(), Some(2));
    assert_eq!(latency(&["-i", "0", "f"]).status.code(), Some(2));
    assert_eq!(latency(&["--in-kernel", "-u", "f"]).status.code(), Some(2));
}

/// A command with tracefs, in a mount namespace of its own. Only root can.
fn with_tracefs(arguments: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    let script = "ls /sys/kernel/tracing/instances >/dev/null 2>&1 ||
        mount -t tracefs tracefs /sys/kernel/tracing || exit 77; exec \"$@\"";
    command.args(["--mount", "sh", "-c", script, "sh"]).args(arguments).stdin(Stdio::null());
    command
}

/// Stopped while tracing is set up, when the command starts, and while it runs.
#[test]
fn sigterm_at_any_moment_ends_the_command_and_leaves_no_instance() {
    let instances = || {
        let output = with_tracefs(&["ls", "/sys/kernel/tracing/instances"]).output().unwrap();
        output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
    };
    if instances().is_none() {
        eprintln!("not run: no tracefs can be mounted");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file.pht");
    for output in [&[][..], &["--force", "--output", file.to_str().unwrap()]] {
        let command = |seconds: &str| {
            let latency = [env!("CARGO_BIN_EXE_pagehaul"), "latency", "--between"];
            let events = ["sched:sched_process_fork,sched:sched_process_exit", "--buffer-size", "64K"];
            let mut command = with_tracefs(&[&latency, &events, output, &["--", "sleep", seconds]].concat());
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let whole = run(&mut command("0.2"), 0, Fault::None);
        assert_eq!(whole.code, Some(0));
        for moment in (1..=whole.calls).step_by(whole.calls / 16) {
            // The command would outlast the run, which then hangs and is killed.
            let trace = run(&mut command("1000"), moment, Fault::Signal(libc::SIGTERM));
            let told = format!("call {moment} of {}: {trace:?}", whole.calls);
            assert!(trace.at.is_some() && !trace.hung, "{told}");
            let left = instances().unwrap();
            let mine = format!("pagehaul-{}-", trace.pid);
            assert!(!left.contains(&mine), "{told}: {left}");
        }
    }
}

#[test]
fn a_cut_recording_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let cut = directory.path().join("cut.pht");
    std::fs::write(&cut, &std::fs::read(FUNCTIONS).unwrap()[..14_000]).unwrap();
    let cut = cut.to_str().unwrap();
    let warning = "the recording is truncated: it has no end block, and its last events may be missing";
    let shown = text(&["--from", cut, "*"]);
    assert!(shown.contains(&format!("! {warning}\n")), "{shown}");
    let shown = text(&["--from", cut, "--json", "*"]);
    let report: serde_json::Value = serde_json::from_str(&shown).unwrap();
    let warnings = report["warnings"].as_array().unwrap();
    assert!(warnings.iter().any(|found| found == warning), "{shown}");
}
