//! Runs pagehaul in a capture kernel, and checks its files and the guest's report.
//!
//! Boots virtual machines, so it runs only with PAGEHAUL_LAB=1 (as `make test` sets it).

use lab::Config;

#[test]
fn results_of_runs_in_the_capture_kernel_are_collected() {
    if !lab::enabled() {
        eprintln!("skipped: set PAGEHAUL_LAB=1 to boot virtual machines");
        return;
    }
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let captures = vec![words("-d 31 -c zstd"), words("-d 0 -c none"), words("--no-such-option")];
    let crash = lab::crash(&Config { captures, ..Config::default() }).unwrap();
    let [filtered, whole, refused] = crash.dumps() else { panic!("three runs were requested") };
    for dump in [filtered, whole] {
        assert_eq!(dump.report.exit_code, Some(0), "{}: {}", dump.report.name, dump.stderr);
        assert_eq!(dump.report.dump_bytes, std::fs::metadata(&dump.path).unwrap().len());
        assert!(dump.report.samples > 0 && dump.report.peak_rss_kib >= dump.report.peak_anonymous_kib);
        assert!(dump.report.peak_threads >= 2, "one thread on two CPUs");
    }
    assert!(filtered.report.dump_bytes < whole.report.dump_bytes / 2);
    // The limit: 32 MiB, and 8 MiB for each of two threads.
    assert!(filtered.report.peak_anonymous_kib <= 48 << 10, "{} KiB", filtered.report.peak_anonymous_kib);
    // pagehaul writes back its own pages: no allocation stalls.
    assert!(
        !filtered.vmstat.keys().any(|counter| counter.starts_with("allocstall")),
        "{:?}",
        filtered.vmstat
    );
    assert!(refused.report.exit_code.is_some_and(|code| code != 0) && !refused.path.exists());
    assert!(refused.stderr.contains("no-such-option"), "{}", refused.stderr);
}
