//! Errors of kernels that cannot measure functions. A directory stands in for tracefs.

use std::fs;
use std::path::Path;

use pagehaul_latency::{HistTriggerSession, Mechanism, Options, ProbeKind, Setup, Unit};
use pagehaul_trace::live::Tracefs;

fn tracefs(files: &[(&str, &str)]) -> (tempfile::TempDir, Tracefs) {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    fs::create_dir_all(directory.path().join("instances")).unwrap();
    let tracefs = Tracefs::at(directory.path());
    (directory, tracefs)
}

fn options() -> Options {
    Options { unit: Unit::Nanoseconds, step: None, by_function: false, pids: Vec::new(), buffer_kb: 64 }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

fn one_sentence(error: &dyn std::fmt::Display, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
    assert!(!text.contains('\n'), "{text}");
}

#[test]
fn kernels_without_a_mechanism_are_named() {
    let (_folder, tracefs) = tracefs(&[("available_tracers", "nop\n"), ("README", "mini")]);
    let error = Mechanism::choose(&tracefs).unwrap_err();
    one_sentence(&error, &["CONFIG_KPROBE_EVENTS", "CONFIG_FPROBE_EVENTS", "function graph", "--between"]);
}

#[test]
fn the_first_available_mechanism_is_used() {
    let fprobe = "\t           f[:[<group>/][<event>]] <func-name>[%return] [<args>]\n";
    let all = [("kprobe_events", ""), ("README", fprobe), ("available_tracers", "function_graph nop\n")];
    let choose = |files: &[(&str, &str)]| Mechanism::choose(&tracefs(files).1).unwrap();
    assert_eq!(choose(&all), Mechanism::Probes(ProbeKind::Kprobe));
    assert_eq!(choose(&all[1..]), Mechanism::Probes(ProbeKind::Fprobe));
    assert_eq!(choose(&all[2..]), Mechanism::FunctionGraph);
}

#[test]
fn unknown_or_too_many_functions_are_refused_before_setup() {
    let list: String = (0..1500).map(|number| format!("f{number}\n")).collect();
    let (directory, tracefs) = tracefs(&[("available_filter_functions", &list)]);
    let set_up = |patterns: &[&str]| {
        Setup::functions(&tracefs, &words(patterns), Mechanism::FunctionGraph, &options()).err().unwrap()
    };
    one_sentence(&set_up(&["f1", "nope"]), &["no function nope", "available_filter_functions"]);
    one_sentence(&set_up(&["f*"]), &["f* match 1500 functions", "1000"]);
    assert!(is_empty(&directory.path().join("instances")));
}

#[test]
fn unknown_events_are_refused_before_setup() {
    let (directory, tracefs) =
        tracefs(&[("events/vmscan/begin/format", ""), ("events/vmscan/end/format", "")]);
    let name = |text: &str| text.parse::<pagehaul_latency::EventName>().unwrap();
    let set_up = |start, end| Setup::between(&tracefs, &name(start), &name(end), &options()).err().unwrap();
    one_sentence(&set_up("vmscan:begin", "vmscan:nope"), &["no trace event vmscan:nope"]);
    one_sentence(&set_up("nope", "end"), &["no trace event *:nope"]);
    assert!(is_empty(&directory.path().join("instances")));
    // A directory is not a tracefs: the instance has no files to write to.
    one_sentence(&set_up("begin", "vmscan:end"), &["tracing_on"]);
    assert!("vmscan:".parse::<pagehaul_latency::EventName>().is_err());
    assert!("a b".parse::<pagehaul_latency::EventName>().is_err());
    drop(directory);
}

#[test]
fn hist_triggers_need_synthetic_events() {
    let (_folder, tracefs) = tracefs(&[("available_filter_functions", "f\n"), ("kprobe_events", "")]);
    let error =
        HistTriggerSession::functions(&tracefs, &words(&["f"]), ProbeKind::Kprobe, &options()).err().unwrap();
    one_sentence(&error, &["CONFIG_HIST_TRIGGERS", "CONFIG_SYNTH_EVENTS"]);
}

fn is_empty(directory: &Path) -> bool {
    directory.read_dir().unwrap().next().is_none()
}
