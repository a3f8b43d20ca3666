//! `pagehaul reclaim` on recorded traces and, where tracing is to be had, on this machine.
#![cfg(feature = "stalls")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../reclaim/tests/data").join(name)
}

fn pagehaul(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_pagehaul")).arg("reclaim").args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn reports_come_as_text_json_and_page() {
    let file = data("guest-7.2.pht");
    let file = file.to_str().unwrap();
    let plain = pagehaul(&["report", file]);
    assert!(plain.status.success());
    assert!(text(&plain.stdout).contains("Time stalled direct reclaim (ms)"));
    let json: serde_json::Value =
        serde_json::from_slice(&pagehaul(&["report", "--json", file]).stdout).unwrap();
    assert_eq!(json["source"]["release"], "7.2.12+deb13-cloud-amd64");
    assert_eq!(json["sections"][0]["rows"][0]["values"], serde_json::json!([4.0]));
    let directory = TempDir::new().unwrap();
    let page = directory.path().join("page.html");
    assert!(pagehaul(&["report", "--html", page.to_str().unwrap(), file]).status.success());
    assert!(std::fs::read_to_string(page).unwrap().trim_end().ends_with("</html>"));
}

#[test]
fn no_page_is_written_over_its_recording() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("a.pht");
    std::fs::copy(data("guest-7.2.pht"), &file).unwrap();
    let before = std::fs::read(&file).unwrap();
    let name = file.to_str().unwrap();
    let column = format!("name={name}");
    for arguments in [&["report", "--html", name, name][..], &["compare", "--html", name, &column, name]] {
        let output = pagehaul(arguments);
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("is the source itself"), "{}", text(&output.stderr));
    }
    assert!(std::fs::read(&file).unwrap() == before);
}

/// The same report of a file by its name, of one that standard input is, of the rest of one, and of a pipe.
#[test]
fn standard_input_is_a_trace_too() {
    use std::io::{Seek, SeekFrom};
    let file = data("guest-6.12.pht");
    let report = |from: std::process::Stdio, name: &str| {
        let child = Command::new(env!("CARGO_BIN_EXE_pagehaul"))
            .args(["reclaim", "report", name])
            .stdin(from)
            .output();
        let output = child.unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report = text(&output.stdout);
        assert!(report.contains("Direct reclaims"));
        // Without the name of the file.
        report.split_once("\n\n").map(|(_, tables)| tables.to_owned()).unwrap()
    };
    let named = report(std::process::Stdio::null(), file.to_str().unwrap());
    assert_eq!(named, report(std::fs::File::open(&file).unwrap().into(), "-"));
    let directory = TempDir::new().unwrap();
    let longer = directory.path().join("longer");
    std::fs::write(&longer, [b"before", &std::fs::read(&file).unwrap()[..]].concat()).unwrap();
    let mut rest = std::fs::File::open(&longer).unwrap();
    rest.seek(SeekFrom::Start(6)).unwrap();
    assert_eq!(named, report(rest.into(), "-"));
    let mut pipe = Command::new("cat").arg(&file).stdout(std::process::Stdio::piped()).spawn().unwrap();
    assert_eq!(named, report(pipe.stdout.take().unwrap().into(), "-"));
    assert!(pipe.wait().unwrap().success());
}

#[test]
fn columns_have_names_and_several_files() {
    let (a, b) = (data("memcg-a.pht"), data("memcg-b.pht"));
    let both = format!("both={},{}", a.display(), b.display());
    let output = pagehaul(&["compare", "--json", &format!("first={}", a.display()), &both]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["columns"][0]["label"], "first");
    assert_eq!((&json["columns"][0]["runs"], &json["columns"][1]["runs"]), (&3.into(), &6.into()));
    assert!(!pagehaul(&["compare", "alone.pht"]).status.success());
    let directory = TempDir::new().unwrap();
    let page = directory.path().join("page.html");
    let files = [a.to_str().unwrap(), b.to_str().unwrap()];
    assert!(pagehaul(&["compare", "--html", page.to_str().unwrap(), files[0], files[1]]).status.success());
    assert!(std::fs::read_to_string(page).unwrap().trim_end().ends_with("</html>"));
}

#[test]
fn a_cut_recording_says_so_and_is_exported() {
    let directory = TempDir::new().unwrap();
    let (cut, out) = (directory.path().join("cut.pht"), directory.path().join("out"));
    std::fs::write(&cut, &std::fs::read(data("guest-6.12.pht")).unwrap()[..20_000]).unwrap();
    let (cut, out) = (cut.to_str().unwrap(), out.to_str().unwrap());
    for arguments in [&["report", cut][..], &["export", cut, "-o", out]] {
        let output = pagehaul(arguments);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success() && said.contains("the recording is truncated: "), "{said}");
    }
    assert!(std::fs::metadata(out).unwrap().len() > 0);
}

#[test]
fn an_export_of_nothing_says_so() {
    let directory = TempDir::new().unwrap();
    let (none, out) = (directory.path().join("none.pht"), directory.path().join("out"));
    let whole = data("guest-7.2.pht");
    // Its formats and no events.
    std::fs::write(&none, &std::fs::read(&whole).unwrap()[..10_000]).unwrap();
    for (file, is_said) in [(&none, true), (&whole, false)] {
        let output = pagehaul(&["export", file.to_str().unwrap(), "-o", out.to_str().unwrap(), "--force"]);
        let said = text(&output.stderr);
        assert!(output.status.success() && said.contains("nothing to show") == is_said, "{said}");
    }
}

#[test]
fn faults_are_one_sentence() {
    let directory = TempDir::new().unwrap();
    let other = directory.path().join("other");
    std::fs::write(&other, "PERFILE2 and so on").unwrap();
    let sentence = |arguments: &[&str]| {
        let output = pagehaul(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let message = text(&output.stderr);
        assert_eq!(message.lines().count(), 1, "{message}");
        message
    };
    assert!(sentence(&["report", other.to_str().unwrap()]).contains("perf script"));
    assert!(sentence(&["report", directory.path().to_str().unwrap()]).contains("it is a directory"));
    // It has no end.
    assert!(sentence(&["report", "/dev/zero"]).contains("it is a device; expected a trace file"));
    assert!(sentence(&["report", "/no/such/trace"]).contains("cannot open /no/such/trace"));
}

/// Whatever ends a recording, its instance goes, and what it had is a report. Without tracing, one sentence says why.
#[test]
fn recording_ends_cleanly_on_a_signal() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("now.pht");
    let mut child = Command::new(env!("CARGO_BIN_EXE_pagehaul"))
        .args(["reclaim", "record", "--buffer-size", "256K", "-o"])
        .arg(&file)
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stderr, &mut line).unwrap();
    if !line.starts_with("recording") {
        assert!(!child.wait().unwrap().success());
        assert!(line.contains("tracefs is not mounted") || line.contains("cannot use"), "{line}");
        eprintln!("not run: {line}");
        return;
    }
    let pid = child.id();
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .unwrap();
    assert!(child.wait().unwrap().success());
    let instances = ["/sys/kernel/tracing/instances", "/sys/kernel/debug/tracing/instances"];
    for entry in instances.iter().filter_map(|path| std::fs::read_dir(path).ok()).flatten().flatten() {
        let name = entry.file_name();
        assert!(!name.to_string_lossy().starts_with(&format!("pagehaul-{pid}-")), "{name:?} is left behind");
    }
    assert!(pagehaul(&["report", file.to_str().unwrap()]).status.success());
}

#[test]
fn single_runs_are_not_called_better_or_worse() {
    let (a, b) = (data("guest-6.1.pht"), data("guest-6.12.pht"));
    let output = pagehaul(&["compare", a.to_str().unwrap(), b.to_str().unwrap()]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("A single run does not show whether a change is significant"), "{said}");
    assert!(!said.contains("worse") && !said.contains("better"), "{said}");
}
