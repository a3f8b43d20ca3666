//! Synthetic tables are written, measured, and never over others.

use std::path::Path;
use std::process::{Command, Output};

fn bench(directory: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fleet-bench"))
        .args(["--crashes", "20", "--tasks", "5", "tables"])
        .current_dir(directory)
        .output()
        .unwrap()
}

#[test]
fn synthetic_tables_are_measured() {
    let directory = tempfile::tempdir().unwrap();
    let output = bench(directory.path());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(text.lines().filter(|line| line.contains("report on compact files")).count(), 3, "{text}");
    let report = pagehaul_fleet::report_text(&directory.path().join("tables")).unwrap();
    assert!(report.starts_with("20 crashes on "), "{report}");
    assert!(!bench(directory.path()).status.success());
}
