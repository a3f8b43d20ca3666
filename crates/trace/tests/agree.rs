//! Compares three recorders of the same events in a guest under memory pressure (`tools/lab/scenarios/agree.sh`): a pagehaul
//! recording against trace-cmd's trace.dat and its report, and the output of `perf script`.
//!
//! `make lab-agree KERNEL=6.1` runs the scenario and this.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pagehaul_trace::{Event, EventSource, TraceFile};

/// A value as a recorder prints it.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Number(u64),
    Text(String),
}

/// An event with its fields, without the common ones.
#[derive(Debug)]
struct Seen {
    ts: u64,
    name: String,
    fields: BTreeMap<String, Vec<Value>>,
}

/// Events of vmscan by task, in time order.
type ByTask = BTreeMap<i32, Vec<Seen>>;

/// Returns all spellings of a value: its number, and its name in a pagehaul recording.
fn values(
    event: &Event<'_>,
    field: &pagehaul_trace::Field,
    name_of: &dyn Fn(u64) -> Option<String>,
) -> Vec<Value> {
    let Some(number) = event.u64(field.slot) else {
        // `trace-cmd report -R` prints functions with their offset.
        let text = event.text(field.slot).map(|text| text.trim_end_matches("+0x0").to_owned());
        return text.map(Value::Text).into_iter().collect();
    };
    let mut all = vec![Value::Number(number)];
    if let Some(names) = event.format().value_names(&field.name) {
        all.push(Value::Text(if number == 0 && names.flags { "none".into() } else { names.print(number) }));
    }
    if field.name == "reason" {
        // Its print format names an enum, whose values are not in the format (include/linux/mmzone.h).
        let names = ["WRITEBACK", "ISOLATED", "NOPROGRESS", "CONGESTED"].iter().enumerate();
        let set = names
            .filter(|(bit, _)| number >> bit & 1 == 1)
            .map(|(_, name)| format!("VMSCAN_THROTTLE_{name}"));
        all.push(Value::Text(set.collect::<Vec<_>>().join("|")));
    }
    all.extend(name_of(number).map(Value::Text));
    all
}

fn events(recording: &mut TraceFile, window: (u64, u64)) -> ByTask {
    let symbols = recording.info().symbols.clone();
    let mut all = ByTask::new();
    while let Some(event) = recording.next_event().unwrap() {
        let name = event.format().name.clone();
        if !(name.starts_with("mm_vmscan_") || name.starts_with("mm_shrink_slab_"))
            || !(window.0..=window.1).contains(&event.ts())
        {
            continue;
        }
        let own = event.format().fields.iter().filter(|field| !field.name.starts_with("common_"));
        let function = |value: u64| symbols.name(value).map(str::to_owned);
        let fields = own.map(|field| (field.name.clone(), values(&event, field, &function))).collect();
        all.entry(event.pid()).or_default().push(Seen { ts: event.ts(), name, fields });
    }
    assert!(recording.losses().none(), "{:?}", recording.losses());
    all
}

/// Number of equal events and fields of two recorders.
#[derive(Debug, Default)]
struct Agreement {
    events: usize,
    fields: usize,
    furthest_ns: u64,
}

fn compare(ours: &ByTask, theirs: &ByTask, what: &str) -> Agreement {
    let mut agreement = Agreement::default();
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "{what}: tasks");
    for (pid, ours) in ours {
        let theirs = &theirs[pid];
        for (at, (our, their)) in ours.iter().zip(theirs).enumerate() {
            let of = format!("{what}: event {at} of task {pid}");
            assert_eq!(our.name, their.name, "{of}: {our:?} {their:?}");
            for (field, told) in &their.fields {
                // The field is in the print format only, or its address was hashed for printing.
                let Some(known) = our.fields.get(field) else { continue };
                if field == "shr" || told.is_empty() {
                    continue;
                }
                assert!(
                    told.iter().any(|value| known.contains(value)),
                    "{of}: {field}: {known:?} and {told:?}"
                );
                agreement.fields += 1;
            }
            agreement.furthest_ns = agreement.furthest_ns.max(our.ts.abs_diff(their.ts));
            agreement.events += 1;
        }
        assert_eq!(ours.len(), theirs.len(), "{what}: events of task {pid}");
    }
    agreement
}

/// Compares all trace files in a directory with the pagehaul recording. Returns the number of events.
fn agree(of: impl Fn(&str) -> PathBuf) -> usize {
    let mut ours = TraceFile::open(&of("pagehaul.pht")).unwrap();
    let info = ours.info();
    let window = (info.begin.as_ref().unwrap().monotonic_ns, info.end.as_ref().unwrap().monotonic_ns);
    let release = info.machine.release.clone().unwrap_or_default();
    let ours = events(&mut ours, window);
    let mut least = usize::MAX;
    for name in ["perf.txt", "perf.txt.gz", "trace.dat", "report.txt", "report-raw.txt"] {
        let path = of(name);
        if !path.exists() {
            continue;
        }
        let theirs = events(&mut TraceFile::open(&path).unwrap(), window);
        let agreement = compare(&ours, &theirs, name);
        println!("{release}: {name}: {agreement:?}");
        assert!(agreement.fields > 3 * agreement.events);
        least = least.min(agreement.events);
    }
    least
}

#[test]
#[ignore = "compares what `make lab-agree` left in a directory, which AGREE names"]
fn all_recorders_agree() {
    let directory = PathBuf::from(std::env::var_os("AGREE").expect("AGREE=DIR"));
    let least = agree(|name| directory.join(name));
    assert!((1000..usize::MAX).contains(&least), "{least} events");
}
