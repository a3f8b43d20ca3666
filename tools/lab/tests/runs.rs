//! Runs pagehaul in a capture kernel, and checks its files and the guest's report.
//!
//! Boots virtual machines, so it runs only with PAGEHAUL_LAB=1 (as `make test` sets it).

use std::path::Path;
use std::process::Command;

use lab::Config;

#[test]
fn results_of_runs_in_the_capture_kernel_are_collected() {
    if !lab::enabled() {
        eprintln!("skipped: set PAGEHAUL_LAB=1 to boot virtual machines");
        return;
    }
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/encryption/tests/data");
    let public = std::fs::read_to_string(keys.join("ssh.pub")).unwrap();
    let encrypted = [words("-d 31 -c zstd --encrypt-to"), vec![public.trim().to_owned()]].concat();
    let captures = vec![words("-d 31 -c zstd"), words("-d 0 -c none"), words("--no-such-option"), encrypted];
    let crash = lab::crash(&Config { captures, ..Config::default() }).unwrap();
    let [filtered, whole, refused, encrypted] = crash.dumps() else { panic!("four runs were requested") };
    for dump in [filtered, whole, encrypted] {
        assert_eq!(dump.report.exit_code, Some(0), "{}: {}", dump.report.name, dump.stderr);
        assert_eq!(dump.report.dump_bytes, std::fs::metadata(&dump.path).unwrap().len());
        assert!(dump.report.samples > 0 && dump.report.peak_rss_kib >= dump.report.peak_anonymous_kib);
        assert!(dump.report.peak_threads >= 2, "one thread on two CPUs");
    }
    assert!(filtered.report.dump_bytes < whole.report.dump_bytes / 2);
    // The limit: 32 MiB, and 8 MiB for each of two threads.
    for dump in [filtered, encrypted] {
        assert!(dump.report.peak_anonymous_kib <= 48 << 10, "{} KiB", dump.report.peak_anonymous_kib);
    }
    // pagehaul writes back its own pages: no allocation stalls.
    assert!(
        !filtered.vmstat.keys().any(|counter| counter.starts_with("allocstall")),
        "{:?}",
        filtered.vmstat
    );
    assert!(refused.report.exit_code.is_some_and(|code| code != 0) && !refused.path.exists());
    assert!(refused.stderr.contains("no-such-option"), "{}", refused.stderr);
    let verified = |path: &Path| -> serde_json::Value {
        let pagehaul = lab::build::pagehaul_of_tests().unwrap();
        let mut verify = Command::new(pagehaul);
        let output =
            verify.args(["verify", "--json", "--identity"]).arg(keys.join("ssh")).arg(path).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let (plain, opened) = (verified(&filtered.path), verified(&encrypted.path));
    assert_eq!((&opened["intact"], &opened["present"]), (&true.into(), &plain["present"]));
    assert_eq!(plain["intact"], serde_json::Value::Null);
}
