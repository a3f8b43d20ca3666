//! Reads events of the running kernel. Without the permission to trace, checks the error instead.

use std::ffi::CString;
use std::time::Duration;

use pagehaul_trace::live::{InstanceOptions, LiveReader, Tracefs};
use pagehaul_trace::{EventSource, TraceError};

#[test]
fn events_of_all_cpus_come_in_order() {
    let tracefs = match Tracefs::find() {
        Ok(tracefs) => tracefs,
        Err(TraceError::Unavailable(why)) => {
            assert!(why.contains("tracefs is not mounted") || why.contains("cannot use"), "{why}");
            eprintln!("not run: {why}");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let instance =
        match tracefs.create_instance(&InstanceOptions { buffer_kb: 512, ..InstanceOptions::default() }) {
            Ok(instance) => instance,
            Err(TraceError::Unavailable(why)) => {
                assert!(why.contains("cannot use"), "{why}");
                eprintln!("not run: {why}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
    let path = instance.path().to_owned();
    // Events have PIDs of the initial PID namespace, which this process need not be in.
    let name = format!("live-{}", std::process::id());
    rustix::thread::set_name(&CString::new(name.as_str()).unwrap()).unwrap();
    assert!(matches!(instance.enable("sched", "no_such_event"), Err(TraceError::NoSuchEvent { .. })));
    instance.enable("sched", "sched_switch").unwrap();
    let mut reader = LiveReader::new(instance).unwrap();
    reader.start().unwrap();
    let (mut last, mut count, mut own) = (0, 0, 0);
    let mut polls = 0;
    loop {
        // The sleeps of this test are switches.
        let more = reader.poll(Duration::from_millis(5)).unwrap();
        while let Some(event) = reader.next_event().unwrap() {
            assert!(event.ts() >= last, "event {count} goes back in time");
            last = event.ts();
            count += 1;
            assert_eq!(event.format().name, "sched_switch");
            let slot = |name| event.format().slot(name).unwrap();
            assert_eq!(event.i64(slot("prev_pid")), Some(i64::from(event.pid())));
            own += u32::from(event.text(slot("prev_comm")).unwrap() == name);
        }
        if !more {
            break;
        }
        polls += 1;
        if polls == 20 {
            reader.stop().unwrap();
        }
    }
    assert!(own >= 10, "{own} of {count} switches were our own");
    drop(reader);
    assert!(!path.exists(), "{} is left behind", path.display());
}
