//! `trace.dat` files that trace-cmd 3.1.6 wrote on Linux 6.18 while a memory cgroup of 48 MiB was under pressure.

use std::path::{Path, PathBuf};
use std::process::Command;

use pagehaul_trace::{EventSource, Input, Origin, TraceError, TraceFile};

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn open(name: &str) -> TraceFile {
    TraceFile::open(&data(name)).unwrap()
}

/// Formats all events with all fields as lines.
fn lines(recording: &mut TraceFile) -> Vec<String> {
    let mut lines = Vec::new();
    while let Some(event) = recording.next_event().unwrap() {
        let fields = event.format().fields.iter().map(|field| match event.text(field.slot) {
            Some(text) => format!("{}={text}", field.name),
            None => format!("{}={:?}", field.name, event.u64(field.slot)),
        });
        let fields: Vec<_> = fields.collect();
        lines.push(format!("{} {} {} {}", event.ts(), event.cpu(), event.format().name, fields.join(" ")));
    }
    lines
}

#[test]
fn both_versions_hold_the_same_events() {
    let (mut v6, mut v7) = (open("memcg-6.18-v6.dat.gz"), open("memcg-6.18-v7.dat.gz"));
    let (six, seven) = (lines(&mut v6), lines(&mut v7));
    assert_eq!(six.len(), 1605);
    assert_eq!(six, seven);
    assert_eq!(v6.info().origin, Origin::TraceDat(6));
    assert_eq!(v7.info().origin, Origin::TraceDat(7));
    assert_eq!(v7.info().machine.release.as_deref(), Some("6.18.44-fc-v509"));
    assert_eq!(v7.info().machine.clock.as_deref(), Some("local"));
    assert!(v6.losses().none() && v7.losses().none());
}

#[test]
fn compressed_sections_are_unpacked() {
    let mut recording = open("memcg-6.18-v7-zstd.dat");
    let mut shrinkers = std::collections::BTreeSet::new();
    let mut events = 0;
    while let Some(event) = recording.next_event().unwrap() {
        events += 1;
        assert_eq!(event.comm(), Some("python3"));
        if event.format().name == "mm_shrink_slab_start" {
            shrinkers.insert(event.u64(event.format().slot("shrink").unwrap()).unwrap());
        }
    }
    assert_eq!(events, 3274);
    let names: Vec<_> =
        shrinkers.iter().filter_map(|&address| recording.info().symbols.name(address)).collect();
    assert_eq!(names, ["scan_shadow_nodes", "super_cache_scan"]);
}

#[test]
fn truncated_files_are_read_up_to_the_end_or_refused() {
    for name in ["memcg-6.18-v6.dat.gz", "memcg-6.18-v7.dat.gz", "memcg-6.18-v7-zstd.dat"] {
        let input = Input::open(&data(name)).unwrap();
        let bytes = input.read_exact_at(0, input.len(), "all").unwrap();
        for part in 0..40 {
            let cut = &bytes[..bytes.len() * part / 40];
            match TraceFile::from_input(Input::memory(cut.to_vec(), "cut.dat")) {
                Ok(mut recording) => {
                    let whole = lines(&mut recording).len();
                    let known = !recording.losses().none() || !recording.info().warnings.is_empty();
                    assert!(
                        whole < 3275 && known,
                        "{name} cut at {part}/40 gave {whole} events without reporting the loss"
                    );
                }
                Err(TraceError::Format { what, .. } | TraceError::Unsupported { what, .. }) => {
                    assert!(
                        what.contains("truncated") || what.contains("not a trace"),
                        "{name} cut at {part}/40: {what}"
                    );
                }
                Err(error) => panic!("{name} cut at {part}/40: {error}"),
            }
        }
    }
}

/// Compares each number with `trace-cmd report`: `-t` prints nanoseconds, `-R` all fields as they are.
#[test]
fn trace_cmd_agrees_event_by_event() {
    if Command::new("trace-cmd").arg("--version").output().is_err() {
        eprintln!("not run: trace-cmd is not installed (scripts/setup.sh installs it)");
        return;
    }
    for name in ["memcg-6.18-v6.dat.gz", "memcg-6.18-v7-zstd.dat"] {
        let input = Input::open(&data(name)).unwrap();
        let plain = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(plain.path(), input.read_exact_at(0, input.len(), "all").unwrap()).unwrap();
        let output =
            Command::new("trace-cmd").args(["report", "-t", "-R"]).arg(plain.path()).output().unwrap();
        let mut theirs = TraceFile::from_input(Input::memory(output.stdout, "report")).unwrap();
        let mut ours = open(name);
        let mut count = 0;
        let mut fields = 0;
        while let Some(event) = ours.next_event().unwrap() {
            let other = theirs.next_event().unwrap().expect("trace-cmd reports as many events");
            let of = format!("event {count} of {name}");
            assert_eq!(
                (event.ts(), event.cpu(), event.pid()),
                (other.ts(), other.cpu(), other.pid()),
                "{of}"
            );
            assert_eq!((&event.format().name, event.comm()), (&other.format().name, other.comm()), "{of}");
            for field in event.format().fields.iter().filter(|field| !field.name.starts_with("common_")) {
                // -R prints function pointers as names too.
                if field.name == "shrink" {
                    continue;
                }
                let theirs = other.format().slot(&field.name).and_then(|slot| other.u64(slot));
                assert_eq!(event.u64(field.slot), theirs, "{} of {of}", field.name);
                fields += 1;
            }
            count += 1;
        }
        assert!(theirs.next_event().unwrap().is_none(), "trace-cmd reports more events");
        assert!(count > 1000 && fields > 5 * count, "{count} events, {fields} fields");
    }
}
