//! Bugs of a file, machine-hours, alerts and metrics by signature, on facts of crashes and on dumps.

mod common;

use std::fs;
use std::path::Path;

use common::{OOPS, facts, fleet, machine, rows, succeeds};
use pagehaul_synth::Era;
use serde_json::Value;

/// 2026-11-01.
const NOVEMBER: u64 = 1_793_491_200;
const DAY: u64 = 86_400;

/// The signature that `facts` gives a function.
fn sig(function: &str) -> String {
    let facts: Value = serde_json::from_str(&facts(0, "", "", 0, function)).unwrap();
    facts["crash"]["sig"].as_str().unwrap().to_owned()
}

/// Tables of crashes: release, host, day, function.
fn tables(crashes: &[(&str, &str, u64, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut arguments = vec!["extract".to_owned(), "--to".to_owned(), "tables".to_owned()];
    for (number, (release, host, day, function)) in crashes.iter().enumerate() {
        let name = format!("{number}.json");
        let facts = facts(number as u32, release, host, NOVEMBER + day * DAY, function);
        fs::write(directory.path().join(&name), facts).unwrap();
        arguments.push(name);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    succeeds(directory.path(), &arguments);
    directory
}

fn report(directory: &Path, more: &[&str]) -> Value {
    let arguments = [&["report", "tables", "--json"], more].concat();
    serde_json::from_str(&succeeds(directory, &arguments)).unwrap()
}

/// A canary with 10 crashes, the rest of the fleet with 9; two bugs.
fn canary() -> tempfile::TempDir {
    let mut crashes = Vec::new();
    crashes.extend((0..10).map(|day| ("6.12.4", "canary1", day, "tcp_ack")));
    crashes.extend((0..9).map(|day| ("6.12.3", "web1", day, "ext4_map")));
    crashes.push(("6.12.4", "canary1", 12, "sysrq_handle_crash"));
    let directory = tables(&crashes);
    let put = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    put("hours.csv", "release,fleet,machine_hours\n6.12.4,canary,1000\n6.12.3,web,9000\n");
    put("hosts.csv", "host,fleet\ncanary*,canary\nweb*,web\n");
    let (tcp, ext4) = (sig("tcp_ack"), sig("ext4_map"));
    put(
        "bugs.toml",
        &format!(
            "[[bug]]\nid = \"NET-7\"\ntitle = \"bad ack\"\nlink = \"https://bugs.example/7\"\nfixed-in = \"6.12.4\"\n\
             signatures = [\"{tcp}\"]\n[[bug]]\nid = \"FS-1\"\nlink = \"javascript:alert(1)\"\nsignatures = [\"{ext4}\", \"{}\"]\n",
            "0".repeat(16)
        ),
    );
    directory
}

#[test]
fn a_canary_that_crashes_ten_times_as_often_is_shown() {
    let directory = canary();
    let all = report(directory.path(), &["--exposure", "hours.csv", "--hosts", "hosts.csv"]);
    let rates = &all["rates"];
    assert_eq!((&rates["crashes"], &rates["machine_hours"]), (&19.into(), &10_000.0.into()));
    let group = |by: &str, name: &str| {
        let groups = rates["groups"].as_array().unwrap();
        groups.iter().find(|group| group["by"] == by && group["name"] == name).unwrap().clone()
    };
    let near = |value: &Value, expected: f64| (value.as_f64().unwrap() - expected).abs() < 1e-3;
    let canary = group("fleet", "canary");
    // Garwood's interval of 10, and Clopper and Pearson's of 10 of 19.
    assert!(near(&canary["rate"]["value"], 10.0) && near(&canary["rate"]["low"], 4.7954), "{canary}");
    assert!(near(&canary["rate"]["high"], 18.3904) && near(&canary["ratio"]["value"], 10.0), "{canary}");
    assert!(near(&canary["ratio"]["low"], 3.6519) && near(&canary["ratio"]["high"], 27.8136), "{canary}");
    assert_eq!(group("kernel", "6.12.3")["crashes"], 9);
    assert_eq!(group("group", "6.12.4 / canary")["crashes"], 10);
    // The bug that only the canary has.
    let found = &rates["concentrated"][0];
    assert_eq!(
        (&found["title"], &found["crashes"], &found["elsewhere"]),
        (&"bug in tcp_ack".into(), &10.into(), &0.into())
    );
    let text =
        succeeds(directory.path(), &["report", "tables", "--exposure", "hours.csv", "--hosts", "hosts.csv"]);
    let line = text.lines().find(|line| line.contains("fleet   canary")).unwrap();
    assert!(line.contains("3.65 – 27.8") && line.ends_with("higher"), "{line}");
    assert!(!text.lines().any(|line| line.contains("fleet   web") && line.contains("higher")), "{text}");
}

#[test]
fn what_one_file_lacks_is_listed() {
    let directory = tables(&[
        ("6.12.4", "web1", 0, "f"),
        ("6.12.4", "stray", 1, "f"),
        ("5.10.1", "web1", 2, "f"),
        ("6.12.4", "db1", 3, "f"),
    ]);
    let put = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    put("hours.csv", "release,fleet,machine_hours\n6.12,web,100\n6.12,mail,100\n6.12,db,0\n");
    put("hosts.csv", "host,fleet\nweb*,web\ndb*,db\nold*,old\n");
    let all = report(directory.path(), &["--exposure", "hours.csv", "--hosts", "hosts.csv"]);
    let rates = &all["rates"];
    // That of the unknown host is one of its kernel, but of no fleet.
    assert_eq!(rates["crashes"], 2);
    let kernel = rates["groups"].as_array().unwrap().iter().find(|group| group["by"] == "kernel").unwrap();
    assert_eq!((&kernel["name"], &kernel["crashes"]), (&"6.12".into(), &2.into()));
    let fleets = rates["groups"].as_array().unwrap().iter().filter(|group| group["by"] == "fleet");
    assert_eq!(fleets.map(|group| group["crashes"].as_u64().unwrap()).sum::<u64>(), 1);
    assert_eq!(rates["unknown_hosts"], serde_json::json!({ "stray": 1 }));
    let without = serde_json::json!([
        { "release": "5.10.1", "fleet": "web", "crashes": 1 },
        { "release": "6.12", "fleet": "db", "crashes": 1 },
    ]);
    assert_eq!(rates["without_hours"], without);
    let unknown = rates["unknown_groups"].as_array().unwrap();
    assert_eq!(
        unknown,
        &["fleet old: hosts, but no machine-hours", "fleet mail: machine-hours, but no hosts"]
    );
    let text =
        succeeds(directory.path(), &["report", "tables", "--exposure", "hours.csv", "--hosts", "hosts.csv"]);
    for part in [
        "not counted: no machine-hours",
        "5.10.1",
        "lacks, which only rates of kernels count: stray (1)",
        "fleet old:",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // A period: the crash of the first day is outside of it.
    put(
        "days.csv",
        "day,release,machine_hours\n2026-11-02,6.12,24\n2026-11-03,6.12,24\n2026-11-04,6.12,24\n",
    );
    let rates = report(directory.path(), &["--exposure", "days.csv"])["rates"].clone();
    assert_eq!(
        (&rates["crashes"], &rates["outside_period"], &rates["machine_hours"]),
        (&2.into(), &1.into(), &72.0.into())
    );
    let since =
        report(directory.path(), &["--exposure", "days.csv", "--since", "2026-11-04"])["rates"].clone();
    assert_eq!(
        (&since["crashes"], &since["outside_period"], &since["machine_hours"]),
        (&1.into(), &3.into(), &24.0.into())
    );
}

#[test]
fn files_that_are_wrong_are_named_with_the_line() {
    let directory = canary();
    let put = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    put("bad.toml", "[[bug]]\nid = \"A\"\nsignatures = [\"12\"]\n");
    put("bad.csv", "release,machine_hours\n6.1,many\n");
    put("few.csv", "release,machine_hours\n6.1,0\n6.1,1e-320\n");
    put("sum.csv", "release,machine_hours\n6.1,6e14\n6.12,6e14\n");
    put("infinite.csv", "release,machine_hours\n6.1,1e400\n");
    put("empty.toml", "[[bug]]\nid = \"A\"\nfixed-in = []\nsignatures = [\"0000000000000000\"]\n");
    for (arguments, parts) in [
        (vec!["--bugs", "bad.toml"], ["bad.toml, line 3", "expected a signature of 16 hexadecimal digits"]),
        (vec!["--exposure", "bad.csv"], ["bad.csv, line 2", "expected a number of machine_hours"]),
        (
            vec!["--exposure", "hours.csv", "--hosts", "hours.csv"],
            ["hours.csv, line 1", "expected columns host"],
        ),
        (vec!["--exposure", "few.csv"], ["few.csv, line 3", "0.000001 or more"]),
        (vec!["--exposure", "sum.csv"], ["sum.csv, line 3", "1e15 at most"]),
        (vec!["--exposure", "infinite.csv"], ["infinite.csv, line 2", "expected a number of machine_hours"]),
        (vec!["--bugs", "empty.toml"], ["empty.toml, line 3", "expected a release for fixed-in"]),
        (vec!["--exposure", "hours.csv"], ["need --hosts", "which hosts"]),
        (vec!["--bugs", "none.toml"], ["cannot read none.toml", "No such file"]),
        (vec!["--bugs", "tables"], ["cannot read tables", "directory"]),
    ] {
        let output = fleet(directory.path(), &[&["report", "tables"], &arguments[..]].concat());
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        assert!(parts.iter().all(|part| error.contains(part)), "{arguments:?}: {error}");
    }
    for arguments in [vec!["--fail-on-new"], vec!["--fail-on-rate", "1"], vec!["--hosts", "hosts.csv"]] {
        let output = fleet(directory.path(), &[&["report", "tables"], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn signatures_of_a_bug_are_one_row_with_link_and_state() {
    let directory = tables(&[
        ("6.12.3", "a", 0, "f"),
        ("6.12.3", "b", 1, "g"),
        ("6.12.3", "b", 2, "g"),
        ("6.12.5", "c", 3, "f"),
        ("6.12.3", "c", 4, "h"),
    ]);
    let (f, g) = (sig("f"), sig("g"));
    let text = format!(
        "[[bug]]\nid = \"B-1\"\ntitle = \"f or g\"\nlink = \"https://bugs.example/1\"\nstate = \"fixed\"\nfixed-in = [\"6.1.9\", \"6.12.4\"]\n\
         signatures = [\"{f}\", \"{g}\"]\n"
    );
    fs::write(directory.path().join("bugs.toml"), text).unwrap();
    let all = report(directory.path(), &["--bugs", "bugs.toml"]);
    let groups = all["signatures"].as_array().unwrap();
    assert_eq!(groups.len(), 2);
    let merged = &groups[0];
    assert_eq!(
        (&merged["crashes"], &merged["title"], &merged["sig"]),
        (&4.into(), &"f or g".into(), &f.clone().into())
    );
    assert_eq!(merged["signatures"].as_object().unwrap().len(), 2);
    let bug = serde_json::json!({ "id": "B-1", "link": "https://bugs.example/1", "state": "fixed in 6.1.9, 6.12.4", "regressions": 1 });
    assert_eq!(merged["bug"], bug);
    // Only the kernel that has the fix.
    let regressions = all["regressions"].as_array().unwrap();
    assert_eq!(regressions.len(), 1);
    assert_eq!((&regressions[0]["release"], &regressions[0]["crashes"]), (&"6.12.5".into(), &1.into()));
    let text = succeeds(directory.path(), &["report", "tables", "--bugs", "bugs.toml"]);
    for part in [
        "B-1 fixed in 6.1.9, 6.12.4, REGRESSION",
        "https://bugs.example/1",
        "fixed, and back",
        &format!("{f} +1"),
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    // Both kernels: the bug counts as one.
    let compared = report(directory.path(), &["--bugs", "bugs.toml", "--compare", "6.12.3", "6.12.5"]);
    let changes = compared["comparison"]["signatures"].as_array().unwrap();
    let of_bug = changes.iter().find(|change| change["bug"] == "B-1").unwrap();
    assert_eq!((&of_bug["old_crashes"], &of_bug["new_crashes"]), (&3.into(), &1.into()));
}

#[test]
fn only_links_to_web_pages_are_links() {
    let directory = canary();
    succeeds(directory.path(), &["report", "tables", "--bugs", "bugs.toml", "--html", "fleet.html"]);
    let page = fs::read_to_string(directory.path().join("fleet.html")).unwrap();
    assert!(page.contains("<a href=\"https://bugs.example/7\">NET-7</a>"), "no link");
    assert!(!page.contains("javascript:") && page.contains("FS-1"));
}

#[test]
fn alerts_have_exit_statuses() {
    let directory = canary();
    let status = |arguments: &[&str]| {
        let output = fleet(directory.path(), &[&["report", "tables"], arguments].concat());
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let hours = ["--exposure", "hours.csv", "--hosts", "hosts.csv"];
    let with = |more: &[&str]| status(&[&hours[..], more].concat());
    // Requested crashes are never new.
    assert_eq!(status(&["--fail-on-new", "--since", "2026-11-05"]), (0, String::new()));
    let (code, text) = status(&["--fail-on-new", "--since", "2026-11-01"]);
    assert_eq!((code, text.lines().count()), (4, 2), "{text}");
    let (code, text) = status(&["--fail-on-new", "--compare", "6.12.3", "6.12.4"]);
    assert!(
        code == 4 && text.contains(&format!("new signature {}: bug in tcp_ack, 10 crashes", sig("tcp_ack"))),
        "{text}"
    );
    // A known bug is not new, unless it was fixed.
    let (code, text) = status(&["--fail-on-new", "--compare", "6.12.3", "6.12.4", "--bugs", "bugs.toml"]);
    assert!(
        code == 4
            && text
                .contains("regression of NET-7: bad ack, fixed in 6.12.4, but 10 crashes of kernel 6.12.4"),
        "{text}"
    );
    assert_eq!(
        status(&["--fail-on-new", "--compare", "6.12.4", "6.12.3", "--bugs", "bugs.toml"]),
        (0, String::new())
    );
    assert_eq!(
        status(&["--fail-on-new", "--since", "2026-11-12", "--bugs", "bugs.toml"]),
        (0, String::new())
    );
    // 10 per 1,000 hours, but at least 4.80.
    let (code, text) = with(&["--fail-on-rate", "4.7"]);
    assert!(
        code == 5 && text.contains("fleet canary, 10.0 per 1,000 machine-hours, at least 4.80 (10 crashes)"),
        "{text}"
    );
    assert_eq!(with(&["--fail-on-rate", "4.8"]), (0, String::new()));
    assert_eq!(with(&["--fail-on-rate", "4.7", "--fail-on-new", "--since", "2026-11-01"]).0, 6);
    let all = report(directory.path(), &["--since", "2026-11-01"]);
    assert_eq!(all["alerts"], Value::Array(Vec::new()));
    // What cannot be read could have been new.
    let damaged = directory.path().join("tables/dumps/v=1/month=2026-11/damaged.parquet");
    fs::write(damaged, "no table").unwrap();
    let (code, text) = status(&["--fail-on-new", "--since", "2026-11-12"]);
    assert!(code == 3 && text.contains("unreadable: ") && text.contains("damaged.parquet"), "{text}");
    let (code, text) = with(&["--fail-on-rate", "100"]);
    assert!(code == 3 && text.contains("damaged.parquet"), "{text}");
    assert_eq!(status(&["--since", "2026-11-12"]).0, 3);
}

#[test]
fn crashes_that_rates_cannot_count_are_an_alert() {
    let directory = canary();
    let put = |name: &str, text: &str| fs::write(directory.path().join(name), text).unwrap();
    let status = |limit: &str, more: &[&str]| {
        let rate = ["report", "tables", "--exposure", "test.csv", "--fail-on-rate", limit];
        let output = fleet(directory.path(), &[&rate, more].concat());
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    for (hours, said) in [
        ("", "19 crashes have no machine-hours: kernel 6.12.3 (9); kernel 6.12.4 (10)"),
        ("6.12.4,0\n6.12.3,9000\n", "10 crashes have no machine-hours: kernel 6.12.4 (10)"),
        ("6.1,1000\n", "19 crashes have no machine-hours"),
    ] {
        put("test.csv", &format!("release,machine_hours\n{hours}"));
        let (code, text) = status("100", &[]);
        assert!(code == 3 && text.contains(said) && text.lines().count() == 1, "{hours}: {code} {text}");
    }
    // What can be counted is above the limit.
    put("test.csv", "release,machine_hours\n6.12.3,90\n");
    let (code, text) = status("1", &[]);
    assert!(code == 5 && text.contains("10 crashes have no machine-hours: kernel 6.12.4 (10)"), "{text}");
    // Without fleets, no host has to be known.
    put("stray.csv", "host,fleet\nother*,web\n");
    put("test.csv", "release,machine_hours\n6.12.4,1000\n6.12.3,9000\n");
    assert_eq!(status("100", &["--hosts", "stray.csv"]), (0, String::new()));
    assert_eq!(status("4.7", &["--hosts", "stray.csv"]).0, 5);
    // With fleets, the rates of kernels count them.
    fs::copy(directory.path().join("hours.csv"), directory.path().join("test.csv")).unwrap();
    let (code, text) = status("100", &["--hosts", "stray.csv"]);
    let said = "19 crashes are of hosts that the file of hosts lacks: canary1 (10); web1 (9)";
    assert!(code == 3 && text.contains(said), "{code} {text}");
    let (code, text) = status("4.7", &["--hosts", "stray.csv"]);
    assert!(code == 5 && text.contains("kernel 6.12.4, 10.0 per") && text.contains(said), "{text}");
    // Which kernel it is depends on the fleet.
    put("test.csv", "release,fleet,machine_hours\n6.12.4,canary,1000\n6.12,web,9000\n");
    let rates =
        report(directory.path(), &["--exposure", "test.csv", "--hosts", "stray.csv"])["rates"].clone();
    assert_eq!((&rates["crashes"], &rates["unknown_hosts_not_counted"]), (&9.into(), &10.into()));
}

#[test]
fn crashes_of_hashed_hosts_are_an_alert() {
    let directory = canary();
    fs::write(directory.path().join("key"), "0123456789abcdef").unwrap();
    succeeds(directory.path(), &["extract", "--to", "shared", "--redact", "key", "0.json", "10.json"]);
    let rate =
        ["report", "shared", "--exposure", "hours.csv", "--hosts", "hosts.csv", "--fail-on-rate", "100"];
    let output = fleet(directory.path(), &rate);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(3) && text.contains("2 crashes are of hosts"), "{text}");
    assert!(text.contains(": host-"), "{text}");
}

#[test]
fn a_new_kernel_without_crashes_is_no_error() {
    let directory = canary();
    let compare = ["report", "tables", "--compare", "6.12.3", "6.13"];
    assert_eq!(fleet(directory.path(), &compare).status.code(), Some(1));
    let output = fleet(directory.path(), &[&compare[..], &["--fail-on-new"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{text}");
    assert!(text.contains("no crash of kernel 6.13") && text.contains("gone"), "{text}");
    let more = ["--fail-on-new", "--exposure", "hours.csv", "--hosts", "hosts.csv", "--fail-on-rate", "4.7"];
    assert_eq!(fleet(directory.path(), &[&compare[..], &more].concat()).status.code(), Some(5));
    // An old kernel without crashes has nothing to compare with.
    let old = ["report", "tables", "--compare", "6.13", "6.12.3", "--fail-on-new"];
    assert_eq!(fleet(directory.path(), &old).status.code(), Some(1));
}

#[test]
fn metrics_replace_nothing_that_they_are_made_of() {
    let directory = canary();
    let path = directory.path();
    let (table, _) = common::files(&path.join("tables/dumps")).pop_first().unwrap();
    std::os::unix::fs::symlink("bugs.toml", path.join("link.toml")).unwrap();
    for (arguments, output, said) in [
        (vec!["1.json", "0.json"], "./0.json", "is a file that is read"),
        (vec!["0.json", "--bugs", "bugs.toml"], "bugs.toml", "is a file that is read"),
        (vec!["0.json", "--bugs", "link.toml"], "bugs.toml", "is a file that is read"),
        (vec!["--tables", "tables"], &table, "below the directory of the tables"),
        (vec!["--tables", "tables"], "tables/new.prom", "below the directory of the tables"),
        (vec!["--tables", "./tables"], "tables/new/new.prom", "below the directory of the tables"),
    ] {
        let before = fs::read(path.join(output)).ok();
        let done = fleet(path, &[&["metrics"], &arguments[..], &["-o", output]].concat());
        let text = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.code() == Some(1) && text.contains(said), "{output}: {text}");
        assert_eq!(fs::read(path.join(output)).ok(), before, "{output}");
    }
    // An earlier file of metrics is replaced.
    for facts in ["0.json", "19.json"] {
        succeeds(path, &["metrics", facts, "-o", "fleet.prom"]);
    }
    assert!(fs::read_to_string(path.join("fleet.prom")).unwrap().contains("kind=\"requested\""));
}

#[test]
fn metrics_by_signature_are_bounded() {
    let directory = canary();
    let metrics =
        |more: &[&str]| succeeds(directory.path(), &[&["metrics", "--tables", "tables"], more].concat());
    let text = metrics(&["--bugs", "bugs.toml", "--top", "1"]);
    let tcp = sig("tcp_ack");
    for line in [
        &format!("pagehaul_signature_crashes{{sig=\"{tcp}\",kind=\"bug\",bug=\"NET-7\"}} 10"),
        "pagehaul_signature_crashes{sig=\"other\",kind=\"\",bug=\"\"} 10",
        &format!("pagehaul_signature_regressions{{sig=\"{tcp}\",kind=\"bug\",bug=\"NET-7\"}} 10"),
        &format!(
            "pagehaul_signature_info{{sig=\"{tcp}\",title=\"bad ack\",bug=\"NET-7\",state=\"fixed in 6.12.4\"}} 1"
        ),
        "pagehaul_crashes{kind=\"requested\"} 1",
        "pagehaul_unreadable_tables 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} in {text}");
    }
    assert!(!text.contains(&sig("ext4_map")));
    let all = metrics(&[]);
    assert_eq!(
        all.lines().filter(|line| line.starts_with("pagehaul_signature_crashes{")).count(),
        3,
        "{all}"
    );
    assert!(!all.contains("other"));
}

/// Extracts the dump of a machine whose log is an oops with these frames.
fn extract(directory: &Path, name: &str, era: Era, frames: [&'static str; 4]) {
    let mut lines = OOPS[..2].to_vec();
    lines.extend(["RIP: 0010:demo_fill+0x5/0x40 [demo]", "Call Trace:", " <TASK>"]);
    lines.extend(frames);
    lines.extend([" </TASK>", "---[ end trace 0000000000000000 ]---", OOPS[3]]);
    machine(era, name, &lines).build().elf().write(&directory.join(name)).unwrap();
    succeeds(directory, &["extract", name, "--to", "tables"]);
}

#[test]
fn dumps_of_one_bug_in_two_builds_are_proposed_and_merged() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    // Other builds of the kernel: a caller is inlined, another has a suffix.
    extract(
        path,
        "one",
        Era::V6_12,
        [
            " demo_check+0x1/0x2 [demo]",
            " demo_store+0x1/0x2 [demo]",
            " kernfs_fop_write_iter+0x1/0x2",
            " vfs_write+0x1/0x2",
        ],
    );
    extract(
        path,
        "two",
        Era::V6_1,
        [
            " demo_check.isra.0+0x3/0x9 [demo]",
            " kernfs_fop_write_iter+0x8/0x9",
            " vfs_write+0x1/0x2",
            " sys_write+0x1/0x2",
        ],
    );
    extract(
        path,
        "other",
        Era::V5_10,
        [" demo_poll+0x1/0x2 [demo]", " vfs_poll+0x1/0x2", " do_sys_poll+0x1/0x2", " sys_poll+0x1/0x2"],
    );
    let all = report(path, &[]);
    let groups = all["signatures"].as_array().unwrap();
    assert_eq!(groups.len(), 3, "{groups:?}");
    let titles: std::collections::BTreeSet<&str> =
        groups.iter().map(|group| group["title"].as_str().unwrap()).collect();
    assert_eq!(titles.len(), 3, "{titles:?}");
    assert!(titles.contains("null-deref in demo:demo_fill < demo:demo_poll"), "{titles:?}");
    let proposals = all["perhaps_same"].as_array().unwrap();
    assert_eq!(proposals.len(), 1, "{proposals:?}");
    assert_eq!(proposals[0]["because"], "coarse-signature");
    let coarse =
        |name: &Value| groups.iter().find(|group| group["sig"] == *name).unwrap()["sig_coarse"].clone();
    let (first, second) = (coarse(&proposals[0]["first"]["sig"]), coarse(&proposals[0]["second"]["sig"]));
    assert_eq!(first, second);
    assert!(rows(&path.join("tables"), "dumps").iter().all(|row| row.contains("coarse_version: 1")));
    // The team agrees, and names the coarse signature.
    let text = format!("[[bug]]\nid = \"DEMO-1\"\nsignatures = [{first}]\n");
    fs::write(path.join("bugs.toml"), text).unwrap();
    let merged = report(path, &["--bugs", "bugs.toml"]);
    let groups = merged["signatures"].as_array().unwrap();
    assert_eq!(
        (groups.len(), &groups[0]["crashes"], &groups[0]["bug"]["id"]),
        (2, &2.into(), &"DEMO-1".into())
    );
    assert_eq!(merged["perhaps_same"], Value::Array(Vec::new()));
}
