//! Reports of real recordings: Linux 6.18, three runs each of a program that writes and reads a file in a memory cgroup of
//! 48 MiB (a) and 32 MiB (b); Debian's 6.1, 6.12 and 7.2 in guests of 192 MiB with too much to do (direct reclaim, kswapd); and the
//! first 600 events of a similar trace as `trace-cmd report` prints them.

use std::path::{Path, PathBuf};

use pagehaul_reclaim::ReclaimReport;
use pagehaul_reclaim::report::{Verdict, analyse};
use pagehaul_trace::{Input, TraceFile};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn report(name: &str, label: &str) -> ReclaimReport {
    analyse(&mut TraceFile::open(&data(name)).unwrap(), name, label).unwrap()
}

fn row(report: &ReclaimReport, name: &str) -> Vec<f64> {
    let mut rows = report.sections.iter().flat_map(|section| &section.rows);
    rows.find(|row| row.name == name).unwrap_or_else(|| panic!("no row {name}")).values.clone()
}

#[test]
fn totals_are_those_of_the_kernel() {
    for name in ["memcg-a.pht", "memcg-b.pht", "guest-6.1.pht", "guest-6.12.pht", "guest-7.2.pht"] {
        let report = report(name, "");
        let pages: Vec<_> = report.checks.iter().filter(|check| check.what.starts_with("pages")).collect();
        assert!(pages.len() >= 6);
        for check in pages {
            assert_eq!(check.verdict, Verdict::Equal, "{name}: {check:?}");
        }
        let scanned = report.checks.iter().find(|check| check.what == "pages scanned by all").unwrap();
        assert!(scanned.counted > 3_000.0);
        assert!(!report.lost.any() && report.lost.unmatched == 0);
    }
}

/// The same 2.5 s of a 7.2 guest, recorded by perf and trace-cmd at once: `perf script` and `trace-cmd report` spell them differently.
#[test]
fn dialects_of_text_say_the_same() {
    let (perf, trace_cmd) = (report("perf-7.2.txt.gz", ""), report("trace-cmd-7.2.txt.gz", ""));
    assert_eq!((perf.source.events, trace_cmd.source.events), (2393, 2393));
    let rows = |report: &ReclaimReport| -> Vec<(String, Vec<f64>)> {
        // Each recorder has times of its own.
        let counts = |name: &str| {
            !["(ms)", "(seconds)", "(pages/s)", "Percentage"].iter().any(|timed| name.contains(timed))
        };
        let rows = report.sections.iter().flat_map(|section| &section.rows);
        rows.filter(|row| counts(&row.name)).map(|row| (row.name.clone(), row.values.clone())).collect()
    };
    assert_eq!(rows(&perf), rows(&trace_cmd));
    assert_eq!(row(&perf, "Direct reclaims"), [28.0]);
    assert_eq!(row(&perf, "Kswapd pages scanned"), [34_241.0]);
    let stalled = |report: &ReclaimReport| row(report, "Time stalled direct reclaim (ms)")[0];
    assert!((stalled(&perf) / stalled(&trace_cmd) - 1.0).abs() < 0.01);
    assert!(!perf.lost.any() && !trace_cmd.lost.any());
}

#[test]
fn every_row_of_2010_is_there() {
    let report = report("memcg-a.pht", "a");
    let mut names = vec!["Direct reclaims".to_owned()];
    for who in ["Direct reclaim", "Kswapd"] {
        for kind in ["", "file ", "anon "] {
            names.extend(["scanned", "reclaimed"].map(|what| format!("{who} {kind}pages {what}")));
        }
    }
    for who in ["Direct reclaim", "Kswapd reclaim"] {
        for what in ["file async", "anon async", "file sync", "anon sync"] {
            names.push(format!("{who} write {what} I/O"));
        }
    }
    let more = [
        "Wake kswapd requests",
        "Kswapd wakeups",
        "Kswapd re-wakeups",
        "Time stalled direct reclaim (ms)",
        "Time kswapd awake (ms)",
        "User/Sys time running test (seconds)",
        "Percentage time in direct reclaim",
        "Total elapsed time (seconds)",
        "Percentage time kswapd awake",
    ];
    names.extend(more.map(str::to_owned));
    for name in names {
        let rows = report.sections.iter().flat_map(|section| &section.rows);
        let row = rows.into_iter().find(|row| row.name == name).unwrap_or_else(|| panic!("no row {name}"));
        // Three runs, or a reason.
        assert!(row.values.len() == 3 || row.note.is_some(), "{row:?}");
    }
}

#[test]
fn runs_are_told_apart() {
    let report = report("memcg-a.pht", "a");
    let reclaims = row(&report, "Reclaims, memcg limit");
    assert_eq!(reclaims.len(), 3);
    let of_all = report.stalls.iter().find(|stalls| stalls.name == "memcg limit").unwrap().count;
    assert_eq!(reclaims.iter().sum::<f64>(), of_all as f64);
    assert_eq!(report.result.unwrap().exits, ["0", "0", "0"]);
}

#[test]
fn cut_recordings_are_read_up_to_the_cut() {
    let bytes = std::fs::read(data("memcg-a.pht")).unwrap();
    let whole = report("memcg-a.pht", "a").source.events;
    let mut most = 0;
    for part in 1..50 {
        let cut = bytes[..bytes.len() * part / 50].to_vec();
        match TraceFile::from_input(Input::memory(cut, "cut.pht")) {
            Ok(mut recording) => {
                // Cut before the formats, nothing is known of reclaim.
                let Ok(report) = analyse(&mut recording, "cut.pht", "cut") else { continue };
                assert!(
                    report.warnings.iter().any(|warning| warning.contains("truncated")),
                    "{:?}",
                    report.warnings
                );
                assert!(report.source.events <= whole);
                most = most.max(report.source.events);
            }
            Err(error) => assert!(error.to_string().contains("cut.pht"), "{error}"),
        }
    }
    assert!(most > whole / 2);
}

#[test]
fn damaged_recordings_say_so() {
    let mut bytes = std::fs::read(data("memcg-a.pht")).unwrap();
    // In the middle of the events.
    let middle = bytes.len() / 2;
    bytes[middle..middle + 8].iter_mut().for_each(|byte| *byte ^= 0x55);
    let mut recording = TraceFile::from_input(Input::memory(bytes, "damaged.pht")).unwrap();
    let report = analyse(&mut recording, "damaged.pht", "damaged").unwrap();
    assert!(report.lost.damaged > 0 || report.warnings.iter().any(|warning| warning.contains("damaged")));
}

#[test]
fn what_is_no_trace_of_reclaim_is_refused() {
    let of = |text: &str| match TraceFile::from_input(Input::memory(text.as_bytes().to_vec(), "x.txt")) {
        Ok(mut recording) => analyse(&mut recording, "x.txt", "x").unwrap_err().to_string(),
        Err(error) => error.to_string(),
    };
    assert!(of("hello\nworld\n").contains("not a trace"));
    assert!(of(" dd-1 [000] 1.0: sched_switch: prev_pid=1\n").contains("no events of reclaim"));
}
