//! `triage` of kernels whose symbols cannot be read: of incomplete dumps that have lost them, of damaged ones, of kernels without
//! CONFIG_KALLSYMS. What the notes and the log say is shown, and nothing that only symbols lead to is denied.

mod common {
    pub mod sections;
    pub mod setup;
}

use std::fs;
use std::ops::Range;

use common::sections::SECTIONS;
use common::setup::Setup;
use pagehaul_synth::{Era, Inside, Machine, Message, Noise, Segment, Task};
use serde_json::Value;

/// The end of the log of a machine whose second CPU ran the task that crashed.
const OOPS: [&str; 12] = [
    "BUG: kernel NULL pointer dereference, address: 0000000000000010",
    "Oops: Oops: 0002 [#1] PREEMPT SMP",
    "Modules linked in: ext4(OE) virtio_blk",
    "CPU: 1 UID: 0 PID: 101 Comm: writer Tainted: G           OE       6.12.30-synth #1 Debian",
    "RIP: 0010:ext4_writepages+0x10/0x40 [ext4]",
    "RAX: 00000000deadbeef RBX: 0000000000000001",
    "Call Trace:",
    " <TASK>",
    " do_writepages+0x20/0x40",
    " do_fsync+0x20/0x40",
    " </TASK>",
    "Kernel panic - not syncing: Fatal exception",
];

/// What a report that knows neither tasks nor memory must not say.
const DENIALS: [&str; 18] = [
    "no panic:",
    "no task waits",
    "nothing suspicious found\n",
    "none taints",
    "not tainted",
    "Tasks: 0",
    "Modules: 0",
    "in flight: 0",
    "0 devices",
    "0 packets",
    "timers: 0",
    "0 B",
    "at least 0",
    "silently",
    "has no symbol",
    "did not answer",
    "no task has the PID",
    "without CONFIG_KALLSYMS) but",
];

fn machine(log: &[&'static str]) -> Machine {
    let mut machine = Machine::new(Era::V6_12);
    let stack = vec!["__schedule", "schedule", "io_schedule"];
    let task = Task { pid: 20, comm: "sleeper".into(), state: 2, ran: 1, stack, pages: Some(100) };
    machine.inside(0x4000, &Inside { tasks: vec![task], clock: 60, free: 1 << 17, ..Inside::default() });
    let message = |(at, text): (usize, &&'static str)| Message {
        nanoseconds: 59_000_000_000 + at as u64 * 1000,
        level: if at == 0 { 1 } else { 4 },
        caller: 101,
        text,
    };
    machine.log(0x6000, &log.iter().enumerate().map(message).collect::<Vec<_>>());
    machine
}

fn setup(log: &[&'static str]) -> Setup {
    Setup::new(&mut machine(log))
}

/// The physical addresses of the tables of symbols.
fn tables(setup: &Setup) -> Range<u64> {
    let info = setup.image.vmcoreinfo();
    let (text, load) = setup.image.text();
    let symbol = |name: &str| {
        let rest = info.split_once(&format!("SYMBOL({name})=")).unwrap().1;
        u64::from_str_radix(rest.lines().next().unwrap(), 16).unwrap() - text + load
    };
    symbol("kallsyms_addresses")..symbol("kallsyms_token_index") + 512
}

/// Writes a vmcore that was cut before the pages with the tables of symbols, which come last in it.
fn stopped(setup: &Setup, name: &str) {
    let mut elf = setup.image.elf();
    let Range { start, end } = tables(setup);
    let (start, end) = (start & !4095, end.next_multiple_of(4096));
    // Of the kernel's image, RAM has a copy.
    elf.segments.remove(0);
    let at = elf
        .segments
        .iter()
        .position(|segment| (segment.paddr..segment.paddr + segment.memory).contains(&start));
    let whole = elf.segments.remove(at.unwrap());
    let part = |start: u64, end: u64| Segment {
        vaddr: whole.vaddr + (start - whole.paddr),
        paddr: start,
        stored: end - start,
        memory: end - start,
    };
    elf.segments.extend([part(whole.paddr, start), part(end, whole.paddr + whole.memory), part(start, end)]);
    elf.write(&setup.path(name)).unwrap();
    let file = fs::OpenOptions::new().write(true).open(setup.path(name)).unwrap();
    file.set_len(file.metadata().unwrap().len() - (end - start)).unwrap();
}

/// Where the vmcore has a physical address: at each of its segments that has it.
fn offsets(vmcore: &[u8], paddr: u64) -> Vec<usize> {
    let word = |at: usize| u64::from_le_bytes(vmcore[at..at + 8].try_into().unwrap());
    let count = usize::from(u16::from_le_bytes([vmcore[56], vmcore[57]]));
    let headers = (0..count).map(|at| word(32) as usize + 56 * at);
    let loads = headers.filter(|at| vmcore[*at] == 1);
    let found = loads.filter_map(|at| {
        let behind = paddr.checked_sub(word(at + 24)).filter(|behind| *behind < word(at + 32))?;
        Some((word(at + 8) + behind) as usize)
    });
    found.collect()
}

/// Writes a whole vmcore with other bytes in place of the tables of symbols.
fn overwritten(setup: &Setup, name: &str, mut byte: impl FnMut(u8) -> u8) {
    let mut vmcore = fs::read(setup.path("vmcore")).unwrap();
    for paddr in tables(setup) {
        let places = offsets(&vmcore, paddr);
        assert!(!places.is_empty(), "{paddr:#x}");
        let changed = byte(vmcore[places[0]]);
        places.into_iter().for_each(|at| vmcore[at] = changed);
    }
    fs::write(setup.path(name), vmcore).unwrap();
}

fn ends(setup: &Setup, arguments: &[&str], status: i32) -> [String; 2] {
    let output = setup.run(arguments);
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said:?}");
    said
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn denies_nothing(text: &str) {
    for wrong in DENIALS {
        assert!(!text.contains(wrong), "{wrong:?}: {text}");
    }
}

/// What the report has, whatever became of the symbols.
fn explains(said: &str) {
    for expected in [
        "6.12.30-synth, host",
        "at least 2 CPUs, crashed 2",
        "taint O: ",
        "What happened: NULL pointer dereference\n",
        "  [59.000000] BUG: kernel NULL pointer dereference, address: 0000000000000010",
        "    Modules linked in: ext4(OE) virtio_blk\n",
        "    RAX: 00000000deadbeef RBX: 0000000000000001\n",
        "     do_writepages+0x20/0x40\n",
        "1. NULL pointer dereference in ext4:ext4_writepages, task writer/101",
        "in the log's report: ext4:ext4_writepages < do_writepages < do_fsync",
        "  0    PID 100",
        "  1    writer/101             crashed, interrupts off",
        "0xffffffff81001010",
        "Tasks: not known",
        "Memory: not known",
        "Modules: not known",
        "\nMissing\n  symbols: ",
        "only symbols lead to them",
    ] {
        assert!(said.contains(expected), "{expected:?}: {said}");
    }
    denies_nothing(said);
}

#[test]
fn an_incomplete_dump_that_lost_its_symbols_is_explained() {
    let setup = setup(&OOPS);
    stopped(&setup, "cut");
    let [said, _] = ends(&setup, &["triage", "cut"], 3);
    explains(&said);
    assert!(said.contains("cut: ") && said.contains("kallsyms"), "{said}");

    let [report, _] = ends(&setup, &["triage", "--json", "cut"], 3);
    let (report, whole) = (json(&report), json(&setup.succeeds(&["triage", "--json", "vmcore"])));
    assert_eq!(report["signature"], whole["signature"]);
    assert_eq!(report["death"], whole["death"]);
    assert_eq!(report["log"], whole["log"]);
    assert_eq!(report["crash"]["task"], "writer");
    for same in ["release", "version", "hostname", "crash_time", "page_size", "cpus"] {
        assert_eq!(report["system"][same], whole["system"][same], "{same}");
    }
    // The same schema: what is not known is empty or absent, and in the gaps.
    for member in whole.as_object().unwrap().keys() {
        assert!(report.get(member).is_some() || whole[member].is_object(), "{member}: {report}");
    }
    let gaps = report["gaps"].as_array().unwrap();
    let lacks = |part: &str| gaps.iter().any(|gap| gap["part"] == part && gap["nothing"] == true);
    for part in ["tasks", "stacks", "locks", "memory", "slab", "vmalloc", "requests", "network", "modules"] {
        assert!(lacks(part), "{part}: {gaps:?}");
    }
    assert!(!gaps.iter().any(|gap| gap["part"] == "log"), "{gaps:?}");
    let cpu = &report["cpus"][1];
    assert_eq!((&cpu["pid"], &cpu["crashed"]), (&Value::from(101), &Value::from(true)));
    assert_eq!(cpu["stack"]["frames"][0]["pc"], "0xffffffff81001010");
}

/// Rows of a fleet's tables count a crash once, whatever became of its dump.
#[test]
fn facts_are_those_of_the_whole_dump() {
    let setup = setup(&OOPS);
    stopped(&setup, "cut");
    overwritten(&setup, "zeroed", |_| 0);
    let whole = json(&setup.succeeds(&["facts", "vmcore"]));
    assert_eq!(whole["crash"]["kind"], "null-deref");
    for (dump, status) in [("cut", 3), ("zeroed", 0)] {
        let [facts, _] = ends(&setup, &["facts", dump], status);
        let facts = json(&facts);
        assert_eq!(facts["crash"], whole["crash"]);
        assert_eq!(facts["crash_id"], whole["crash_id"]);
        let [report, _] = ends(&setup, &["triage", "--json", dump], status);
        assert_eq!(json(&report)["crash"], whole["crash"]);
    }
}

#[test]
fn a_whole_dump_without_symbols_is_explained() {
    let setup = setup(&OOPS);
    overwritten(&setup, "zeroed", |_| 0);
    explains(&setup.succeeds(&["triage", "zeroed"]));
    // Built without CONFIG_KALLSYMS: VMCOREINFO does not name the tables either.
    let mut machine = machine(&OOPS);
    for name in ["addresses", "num_syms", "names", "token_table", "token_index"] {
        machine.without_info(&format!("SYMBOL(kallsyms_{name})"));
    }
    let without = Setup::new(&mut machine);
    fs::copy(setup.path("zeroed"), without.path("zeroed")).unwrap();
    let said = without.succeeds(&["triage", "zeroed"]);
    explains(&said);
}

/// Every way to print a part of the report.
#[test]
fn no_section_denies_what_symbols_lead_to() {
    let setup = setup(&OOPS);
    stopped(&setup, "cut");
    fs::write(setup.path("key"), [7; 32]).unwrap();
    for section in SECTIONS {
        let [said, _] = ends(&setup, &["triage", "--section", section, "cut"], 3);
        denies_nothing(&said);
        assert!(said.contains("\nMissing\n"), "{section}: {said}");
        let [said, _] = ends(&setup, &["triage", "--section", section, "--json", "cut"], 3);
        denies_nothing(&said);
    }
    // The registers of each CPU.
    let [said, _] = ends(&setup, &["triage", "--section", "cpus", "cut"], 3);
    assert!(said.contains("ip ffffffff81001010") && said.contains("ip ffffffff81001000"), "{said}");
    for arguments in
        [&["--tasks"][..], &["--stacks"], &["--json", "--tasks", "--stacks"], &["--redact", "key"]]
    {
        let [said, _] = ends(&setup, &[&["triage", "cut"], arguments].concat(), 3);
        denies_nothing(&said);
    }
    let [said, why] = ends(&setup, &["triage", "--pid", "20", "cut"], 3);
    assert_eq!(said, "");
    assert!(why.contains("no task that could be read has the PID 20"), "{why}");
    ends(&setup, &["triage", "--html", "report.html", "cut"], 3);
    let page = fs::read_to_string(setup.path("report.html")).unwrap();
    denies_nothing(&page);
    assert!(page.contains("do_writepages+0x20/0x40") && page.contains("writer/101"), "{page}");
    let [said, _] = ends(&setup, &["triage", "diff", "vmcore", "cut"], 3);
    assert!(said.contains("not compared: tasks, stacks, memory, slab, vmalloc, modules"), "{said}");
    assert!(!said.contains("signature") && !said.contains("\n  + "), "{said}");
    denies_nothing(said.split_once("\nMissing in cut\n").unwrap().1);
}

#[test]
fn names_of_the_crash_are_redacted() {
    let setup = setup(&OOPS);
    stopped(&setup, "cut");
    fs::write(setup.path("key"), [7; 32]).unwrap();
    for arguments in
        [&["triage", "cut", "--redact", "key"][..], &["triage", "--json", "cut", "--redact", "key"]]
    {
        let [said, _] = ends(&setup, arguments, 3);
        assert!(said.contains("ext4_writepages") && said.contains("do_fsync"), "{said}");
        assert!(!said.contains("writer/101") && !said.contains("Comm: writer"), "{said}");
    }
}

/// The log may have an oops that did not end the machine, or lack the panic that did.
#[test]
fn a_log_without_a_panic_denies_no_crash() {
    let unknown = |setup: &Setup| {
        stopped(setup, "cut");
        let [said, _] = ends(setup, &["triage", "cut"], 3);
        assert!(said.contains("What happened: not known\n"), "{said}");
        denies_nothing(&said);
        let [report, _] = ends(setup, &["triage", "--json", "cut"], 3);
        assert!(json(&report)["death"]["unknown"].is_string(), "{report}");
        assert!(said.contains("\nEnd of the log\n"), "{said}");
        said
    };
    // VMCOREINFO has the time of the crash.
    let said = unknown(&setup(&["systemd: all is well"]));
    assert!(said.contains("the kernel crashed") && said.contains("CRASHTIME"), "{said}");
    // A hypervisor may have saved this memory while the machine ran.
    let mut saved = machine(&OOPS[..11]);
    saved.without_info("CRASHTIME");
    let said = unknown(&Setup::new(&mut saved));
    assert!(said.contains("whether an oops in it ended the machine"), "{said}");
    assert!(!said.contains("PID 100"), "{said}");
    // With the time of the crash, the oops ended it.
    let oops = setup(&OOPS[..11]);
    stopped(&oops, "cut");
    let [said, _] = ends(&oops, &["triage", "cut"], 3);
    assert!(said.contains("What happened: NULL pointer dereference"), "{said}");
}

/// Status 0 promises a report, and 3 promises what there is.
#[test]
fn without_symbols_and_log_only_an_incomplete_dump_is_shown() {
    let mut machine = machine(&OOPS);
    machine.without_info("SYMBOL(prb)");
    let setup = Setup::new(&mut machine);
    stopped(&setup, "cut");
    let [said, _] = ends(&setup, &["triage", "cut"], 3);
    for expected in [
        "6.12.30-synth",
        "What happened: not known",
        "the log cannot be read",
        "  0    PID 100",
        "End of the log: not known",
    ] {
        assert!(said.contains(expected), "{expected:?}: {said}");
    }
    denies_nothing(&said);
    overwritten(&setup, "zeroed", |_| 0);
    let [said, why] = ends(&setup, &["triage", "zeroed"], 1);
    assert_eq!(said, "");
    assert!(why.contains("kallsyms") || why.contains("symbol"), "{why}");
}

#[test]
fn tables_of_noise_end_in_a_report() {
    let setup = setup(&OOPS);
    let mut noise = Noise::new(25);
    for round in 0..24 {
        // Most, some or few of the bytes.
        let one_in = [1, 2, 16, 300][round % 4];
        overwritten(&setup, "noise", |byte| match noise.below(one_in) {
            0 => noise.next() as u8,
            _ => byte,
        });
        let script = format!(
            "ulimit -d {}; ulimit -t 60; exec {} triage --json --tasks --stacks noise",
            96 << 10,
            common::setup::BINARY
        );
        let output = std::process::Command::new("sh")
            .args(["-c", &script])
            .current_dir(setup.directory.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "round {round}: {said}");
        let report = json(&String::from_utf8(output.stdout).unwrap());
        assert_eq!(report["death"]["kind"], "null-deref", "{report}");
    }
}
