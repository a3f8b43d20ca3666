//! `--redact`: no name of a dump's own records is left in a report of it, and what explains the crash is.
#![cfg(feature = "redact")]

mod common {
    pub mod sections;
    pub mod setup;
}

use std::fs;

use common::sections::SECTIONS;
use common::setup::Setup;
use pagehaul_synth::{Cgroup, Cgroups, Era, Guest, Inside, Machine, Message, Task, Unmarked};
use serde_json::Value;

const SECRETS: [&str; 5] = ["ledgerd", "trader", "nas01", "acme", "lv_orders"];

fn setup() -> Setup {
    let task = |pid, comm: &str, state, stack: &[&'static str]| Task {
        pid,
        comm: comm.into(),
        state,
        ran: 70,
        stack: stack.to_vec(),
        pages: Some(900),
    };
    let waits = ["__schedule", "io_schedule", "folio_wait_bit", "ext4_writepages", "do_fsync"];
    let mut machine = Machine::new(Era::V6_12);
    machine.inside(
        0x4000,
        &Inside {
            tasks: vec![
                task(20, "ledgerd", 2, &waits),
                task(21, "trader", 2, &waits),
                task(22, "ledgerd", 0, &waits),
            ],
            clock: 100,
            free: 900,
            on_lists: Vec::new(),
            counters: [10_000, 20_000, 3_000, 800],
            shmem: 5_000,
            caches: vec![("ext4_inode_cache", 900, 27_000)],
            areas: vec![("vmalloc", 65_536)],
            backlog: 12,
            modules: vec![("ext4", 1 << 20)],
            recorded: None,
            unmarked: Some(Unmarked {
                rings: vec![(None, vec![0x3100, 0x3101, 0x3102]), (Some("acme"), vec![0x3110, 0x3111])],
                sockets: vec![vec![0x3300]],
                io_uring: vec![vec![0x3400]],
                ..Unmarked::default()
            }),
            cgroups: Some(Cgroups {
                old: false,
                disabled: false,
                groups: ["", "acme"]
                    .map(|name| Cgroup {
                        name,
                        usage: 100,
                        generations: true,
                        max_seq: 3,
                        ages: [50; 4],
                        pages: vec![(0, 0, 0, 100)],
                        ..Cgroup::default()
                    })
                    .into(),
            }),
            guests: Some(vec![Guest { tables: vec![(0x3401, 4, None)], ..Guest::default() }]),
            spread: false,
        },
    );
    for pfn in 0x3100..0x3402 {
        machine.kernel(pfn);
    }
    let message = |nanoseconds, text| Message { nanoseconds, level: 3, caller: 7, text };
    machine.log(
        0x6000,
        &[
            message(98_000_000_000, "nfs: server nas01.acme.example not responding, still trying"),
            message(98_500_000_000, "device-mapper: table: 253:3: vg_acme-lv_orders: bad"),
            message(99_000_000_000, "INFO: task ledgerd:20 blocked for more than 20 seconds."),
            message(99_500_000_000, "Kernel panic - not syncing: hung_task: blocked tasks"),
        ],
    );
    let setup = Setup::new(&mut machine);
    fs::write(setup.path("key"), [7; 32]).unwrap();
    // Directories of dumps have names of machines.
    fs::create_dir(setup.path("nas01")).unwrap();
    fs::rename(setup.path("vmcore"), setup.path("nas01/vmcore")).unwrap();
    setup
}

#[test]
fn no_report_has_a_name_of_the_site() {
    let setup = setup();
    let plain = setup.succeeds(&["triage", "--tasks", "nas01/vmcore"]);
    assert!(plain.contains("ledgerd") && plain.contains("trader"), "{plain}");
    let summary = setup.succeeds(&["triage", "nas01/vmcore", "--redact", "key"]);
    // What was found, and its evidence.
    for kept in ["folio_wait_bit", "hung_task: blocked tasks", "1 more task blocked"] {
        assert!(summary.contains(kept), "{kept}: {summary}");
    }
    setup.succeeds(&["triage", "nas01/vmcore", "--redact", "key", "--html", "page.html"]);
    let owners = setup.succeeds(&["pages", "--owners", "nas01/vmcore"]);
    for named in ["instances/acme", "ledgerd/20", "/acme "] {
        assert!(owners.contains(named), "{named}: {owners}");
    }
    let owners = setup.succeeds(&["pages", "--owners", "nas01/vmcore", "--json"]);
    let owners: Value = serde_json::from_str(&owners).unwrap();
    let guests = owners["rows"].as_array().unwrap().iter().find(|row| row["kind"] == "kvm_tables").unwrap();
    assert_eq!(guests["owners"][0]["name"], "ledgerd/20");
    let lists = owners["generations"]["largest"].as_array().unwrap();
    assert!(lists.iter().any(|of| of["path"] == "/acme"), "{owners}");
    let mut reports = vec![
        summary,
        setup.succeeds(&["pages", "--owners", "nas01/vmcore", "--redact", "key"]),
        setup.succeeds(&["pages", "--owners", "nas01/vmcore", "--redact", "key", "--json"]),
        fs::read_to_string(setup.path("page.html")).unwrap(),
        setup.succeeds(&["triage", "nas01/vmcore", "--redact", "key", "--stacks"]),
        setup.succeeds(&["triage", "nas01/vmcore", "--redact", "key", "--json", "--tasks", "--stacks"]),
        setup.succeeds(&["facts", "nas01/vmcore", "--redact", "key"]),
    ];
    for section in SECTIONS {
        reports.push(setup.succeeds(&["triage", "nas01/vmcore", "--redact", "key", "--section", section]));
    }
    for report in reports {
        for secret in SECRETS {
            assert!(!report.contains(secret), "{secret}: {report}");
        }
    }
}

/// Equal names stay equal within a report and between reports, and with another key they are others.
#[test]
fn a_name_has_one_hash_for_each_key() {
    let setup = setup();
    let comms = |key: &str| -> Vec<String> {
        let text = setup.succeeds(&["triage", "nas01/vmcore", "--redact", key, "--json", "--tasks"]);
        let report: Value = serde_json::from_str(&text).unwrap();
        let tasks = report["tasks"].as_array().unwrap().iter();
        tasks.map(|task| task["comm"].as_str().unwrap().to_owned()).collect()
    };
    let first = comms("key");
    assert_eq!(first.len(), 3);
    assert!(first[0] == first[2] && first[0] != first[1] && first[0].starts_with("comm-"), "{first:?}");
    let facts = setup.succeeds(&["facts", "nas01/vmcore", "--redact", "key"]);
    assert!(facts.contains(&first[0]), "{facts}");
    fs::write(setup.path("other"), [8; 32]).unwrap();
    assert_ne!(comms("other")[0], first[0]);
}

#[test]
fn a_file_that_is_no_key_is_refused() {
    let setup = setup();
    fs::write(setup.path("short"), "abc").unwrap();
    let said = setup.fails(&["triage", "nas01/vmcore", "--redact", "short"], 1);
    assert!(said.contains("the key short has 3 bytes; it needs 16"), "{said}");
    let said = setup.fails(&["facts", "nas01/vmcore", "--redact", "absent"], 1);
    assert!(said.contains("cannot read the key absent"), "{said}");
    rustix::fs::mkfifoat(rustix::fs::CWD, setup.path("pipe"), rustix::fs::Mode::RUSR).unwrap();
    for none in ["pipe", "/dev/zero", "nas01"] {
        let said = setup.fails(&["facts", "nas01/vmcore", "--redact", none], 1);
        assert!(said.contains(&format!("the key {none} is not a file")), "{said}");
    }
}

#[test]
fn no_output_replaces_the_key() {
    let setup = setup();
    for command in ["triage", "pages"] {
        let arguments = [command, "nas01/vmcore", "--redact", "key", "--html", "key", "--force"];
        let said = setup.fails(&arguments, 1);
        assert!(said.contains("key is the source itself"), "{said}");
        assert_eq!(fs::read(setup.path("key")).unwrap(), [7; 32]);
    }
}

#[test]
fn pages_do_not_name_the_file() {
    let setup = setup();
    fs::rename(setup.path("nas01/vmcore"), setup.path("nas01/nas01.vmcore")).unwrap();
    let text = setup.succeeds(&["pages", "nas01/nas01.vmcore", "--redact", "key"]);
    let json = setup.succeeds(&["pages", "nas01/nas01.vmcore", "--redact", "key", "--json"]);
    setup.succeeds(&["pages", "nas01/nas01.vmcore", "--redact", "key", "--html", "page.html"]);
    let page = fs::read_to_string(setup.path("page.html")).unwrap();
    for report in [text, json, page] {
        assert!(!report.contains("nas01"), "{report}");
    }
}
