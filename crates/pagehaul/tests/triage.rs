//! `triage` on a synthetic kernel with symbols, types, unwind tables and tasks.

mod common {
    pub mod setup;
}

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command;

use common::setup::{BINARY, Setup};
use pagehaul_present::number::bytes;
use pagehaul_synth::{Arm64, Era, Inside, Machine, Message, Noise, Task};
use serde_json::Value;

fn task(pid: u32, comm: &str, state: u32, ran: u64, stack: &[&'static str]) -> Task {
    Task { pid, comm: comm.into(), state, ran, stack: stack.to_vec(), pages: Some(u64::from(pid) * 100) }
}

/// Before: two writers wait for a disk, among others.
fn inside() -> Inside {
    let sleeps = ["__schedule", "schedule", "do_nanosleep", "kthread"];
    let waits = ["__schedule", "io_schedule", "folio_wait_bit", "ext4_writepages", "do_fsync"];
    Inside {
        tasks: vec![
            task(1, "init", 1, 90, &sleeps),
            task(20, "<b>&writer", 2, 70, &waits),
            task(21, "writer\u{1b}[2J", 2, 75, &waits),
            task(30, "worker", 0, 99, &sleeps),
        ],
        clock: 100,
        free: 200_000,
        on_lists: Vec::new(),
        counters: [10_000, 20_000, 3_000, 800],
        shmem: 5_000,
        caches: vec![("dentry", 400, 8_400), ("ext4_inode_cache", 900, 27_000)],
        areas: vec![("vmalloc", 65_536), ("module_alloc", 40_960)],
        backlog: 12,
        modules: vec![("ext4", 1 << 20), ("virtio_blk", 1 << 15)],
        recorded: None,
        unmarked: None,
        cgroups: None,
        guests: None,
        spread: false,
    }
}

fn setup(inside: &Inside) -> Setup {
    let mut machine = Machine::new(Era::V6_12);
    machine.inside(0x4000, inside);
    let message = |nanoseconds, text| Message { nanoseconds, level: 0, caller: 7, text };
    machine.log(
        0x6000,
        &[
            message(99_000_000_000, "INFO: task <b>&writer:20 blocked for more than 20 seconds."),
            message(99_500_000_000, "Kernel panic - not syncing: hung_task: blocked tasks"),
        ],
    );
    Setup::new(&mut machine)
}

/// After: the disk stalled, and memory went to slab and vmalloc.
fn later() -> Inside {
    let mut inside = inside();
    let waits = ["__schedule", "schedule", "rq_qos_wait", "submit_bio", "ext4_writepages"];
    inside.tasks.extend((40..43).map(|pid| task(pid, "reader", 2, 80, &waits)));
    inside.tasks.retain(|task| task.pid != 30);
    inside.free = 900;
    inside.counters = [10_000, 1_000, 150_000, 90_000];
    inside.caches =
        vec![("dentry", 400, 8_400), ("ext4_inode_cache", 140_000, 4_200_000), ("bio-136", 4, 100)];
    inside.areas.push(("btrfs_alloc", 300 << 20));
    // More than 32 MiB for each power of two of CPUs.
    inside.backlog = 20_000;
    inside.modules = vec![("ext4", 1 << 20), ("dm_mod", 1 << 17)];
    inside
}

/// Shared memory is on the lists of anonymous memory, but belongs to files.
#[test]
fn uses_of_memory_add_up() {
    let setup = setup(&inside());
    let text = setup.succeeds(&["triage", "--section", "memory", "vmcore"]);
    assert!(text.contains("anonymous 39.1 MiB, files 78.1 MiB, tmpfs and shared memory 19.5 MiB"), "{text}");
    let report: serde_json::Value =
        serde_json::from_str(&setup.succeeds(&["triage", "--json", "vmcore"])).unwrap();
    let memory = &report["memory"];
    let pages = |value: &serde_json::Value| value.as_i64().unwrap();
    let uses: i64 = memory["usage"].as_array().unwrap().iter().map(|entry| pages(&entry[1])).sum();
    let managed: i64 = memory["zones"].as_array().unwrap().iter().map(|zone| pages(&zone["managed"])).sum();
    assert_eq!(uses + pages(&memory["unaccounted"]), managed);
}

/// The first finding names what took the memory.
#[test]
fn out_of_memory_names_the_largest_use() {
    let mut machine = Machine::new(Era::V6_12);
    let counters = [10_000, 20_000, 150_000, 800];
    machine.inside(0x4000, &Inside { counters, free: 900, ..inside() });
    let text = "Kernel panic - not syncing: Out of memory: compulsory panic_on_oom is enabled";
    machine.log(0x6000, &[Message { nanoseconds: 99_500_000_000, level: 0, caller: 7, text }]);
    let printed = Setup::new(&mut machine).succeeds(&["triage", "--section", "verdict", "vmcore"]);
    assert!(
        printed.contains(
            "1. the machine ran out of memory: slab and large kmalloc 585.9 MiB of 1.0 GiB (57.2 %)"
        ),
        "{printed}"
    );
    assert!(printed.contains("largest slab cache "), "{printed}");
}

fn check(name: &str, text: &str) {
    insta::with_settings!({
        snapshot_path => "snapshots",
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, {
        insta::assert_snapshot!(name, text);
    });
}

#[test]
fn a_crash_is_explained() {
    let setup = setup(&inside());
    check("triage", &setup.succeeds(&["triage", "vmcore"]));
    check("triage-tasks", &setup.succeeds(&["triage", "--tasks", "vmcore"]));
    check("triage-pid", &setup.succeeds(&["triage", "--pid", "20", "vmcore"]));
}

#[test]
fn a_filtered_dump_gives_the_same_report() {
    let setup = setup(&inside());
    setup.succeeds(&["capture", "-q", "-d", "31", "vmcore", "dump"]);
    let report = |dump| setup.succeeds(&["triage", "--json", "--tasks", "--stacks", dump]);
    assert_eq!(report("vmcore"), report("dump"));
}

#[test]
fn the_page_escapes_what_the_dump_says() {
    let setup = setup(&inside());
    assert_eq!(setup.succeeds(&["triage", "--html", "report.html", "vmcore"]), "report.html: written\n");
    let page = fs::read_to_string(setup.path("report.html")).unwrap();
    assert!(page.contains("&lt;b&gt;&amp;writer"), "{page}");
    let refused = setup.fails(&["triage", "--html", "-", "vmcore"], 1);
    assert!(refused.contains("name a file"), "{refused}");
    for forbidden in ["<b>&writer", "\u{1b}", "http:", "https:", "src=", "url("] {
        assert!(!page.contains(forbidden), "{forbidden}");
    }
    // Without the style that all pages share.
    let body = page.split_once("<body>").unwrap().1.split_once("<footer>").unwrap().0;
    check("triage-html", &body.replace("><", ">\n<"));
    // What exists stays.
    setup.fails(&["triage", "--html", "vmcore", "vmcore"], 1);
}

#[test]
fn what_changed_between_two_dumps_is_listed() {
    let (before, after) = (setup(&inside()), setup(&later()));
    fs::copy(after.path("vmcore"), before.path("after")).unwrap();
    check("triage-diff", &before.succeeds(&["triage", "diff", "vmcore", "after"]));
    check("triage-diff-json", &before.succeeds(&["triage", "diff", "--json", "vmcore", "after"]));
    let same = before.succeeds(&["triage", "diff", "vmcore", "vmcore"]);
    let (changes, missing) = same.split_once("\n\n").unwrap();
    let gaps = "both: not read: block requests, network; read in part: locks";
    assert_eq!(changes, format!("Changes from vmcore to vmcore\n  {gaps}\n  none"));
    assert!(missing.starts_with("Missing in both\n") && !missing.contains("\n\n"), "{missing}");
    before.fails(&["triage", "diff", "vmcore"], 2);
    before.fails(&["triage", "vmcore", "diff"], 1);
    before.fails(&["triage"], 2);
}

#[test]
fn a_backlog_of_vmalloc_areas_is_a_finding() {
    let setup = setup(&later());
    let said = setup.succeeds(&["triage", "vmcore"]);
    assert!(
        said.contains("78 MiB of vmalloc areas are freed but not purged, more than the limit of 64 MiB"),
        "{said}"
    );
    assert!(said.contains("free memory is below the min watermark in every zone"), "{said}");
}

/// An arm64 machine with free blocks of 48 pages, which its zone counts.
fn with_pages_of(layout: Arm64, inside: &mut Inside) -> Setup {
    let mut machine = Machine::arm64(Era::V6_12, layout);
    let pfn = |paddr: u64| paddr >> layout.page_shift;
    machine.buddy(pfn(0x4300_0000), 5).buddy(pfn(0x4380_0000), 4);
    inside.free = 48;
    machine.inside(pfn(0x4400_0000), inside);
    Setup::new(&mut machine)
}

#[test]
fn pages_of_every_size_count_with_their_bytes() {
    for layout in [Arm64::V48, Arm64::K16_V47, Arm64::K64_V48] {
        let page = 1_u64 << layout.page_shift;
        let mut inside = inside();
        // As much as the kernel lets wait on 2 CPUs.
        inside.backlog = (64 << 20) / page;
        let setup = with_pages_of(layout, &mut inside);
        let json =
            |arguments: &[&str]| -> Value { serde_json::from_str(&setup.succeeds(arguments)).unwrap() };
        let report = json(&["triage", "--json", "vmcore"]);
        // `pages` counts struct pages.
        let pages = json(&["pages", "--json", "vmcore"]);
        let classes = pages["classes"].as_array().unwrap();
        let free = classes.iter().find(|of| of["class"] == "free").unwrap()["pages"].as_u64().unwrap();
        assert_eq!((pages["page_size"].as_u64(), free), (Some(page), 48));
        let zone = &report["memory"]["zones"][0];
        assert_eq!(zone["free"], free);

        let said = setup.succeeds(&["triage", "--section", "memory", "--section", "verdict", "vmcore"]);
        for expected in [
            format!("{} managed, anonymous {},", bytes(page << 18), bytes(10_000 * page)),
            format!("files {}, tmpfs and shared memory {},", bytes(20_000 * page), bytes(5_000 * page)),
            format!("free {},", bytes(48 * page)),
            format!("{} freed but not purged", bytes(64 << 20)),
            format!("node 0 DMA32: {} free, min watermark {}", bytes(48 * page), bytes(1000 * page)),
        ] {
            assert!(said.contains(&expected), "{expected}: {said}");
        }
        assert!(!said.contains("more than the limit"), "{said}");
        assert_eq!(report["slab"][0]["bytes"], 900 * page);
        let html = setup.succeeds(&["triage", "--html", "report.html", "vmcore"]);
        assert_eq!(html, "report.html: written\n");
        let html = fs::read_to_string(setup.path("report.html")).unwrap();
        assert!(html.contains(&format!("free of {}", bytes(page << 18))), "{html}");

        // 64 MiB more than the limit, and processes have grown.
        inside.backlog *= 2;
        inside.tasks[0].pages = Some(5000);
        let later = with_pages_of(layout, &mut inside);
        let said = later.succeeds(&["triage", "vmcore"]);
        let expected = "128 MiB of vmalloc areas are freed but not purged, more than the limit of 64 MiB";
        assert!(said.contains(expected), "{said}");
        assert!(said.contains(&format!("init/1 {}", bytes(5000 * page))), "{said}");
        assert_eq!(report["system"]["page_size"], page);
    }
}

#[test]
fn dumps_with_pages_of_other_sizes_are_compared_in_bytes() {
    let setup = with_pages_of(Arm64::V48, &mut inside());
    let after = with_pages_of(Arm64::K16_V47, &mut inside());
    fs::copy(after.path("vmcore"), setup.path("after")).unwrap();
    let changes: Value =
        serde_json::from_str(&setup.succeeds(&["triage", "diff", "--json", "vmcore", "after"])).unwrap();
    let of = |section: &str, name: &str| {
        let rows = changes[section].as_array().unwrap();
        let row = rows.iter().find(|row| row["name"] == name);
        let row = row.unwrap_or_else(|| panic!("{section}: {name} in {changes}"));
        [&row["before"], &row["after"]].map(|value| value.as_u64().unwrap())
    };
    assert_eq!(of("memory", "node 0 DMA32 free"), [48 << 12, 48 << 14]);
    // Of anonymous memory and of shared memory.
    assert_eq!(of("memory", "nr_inactive_anon"), [15_000 << 12, 15_000 << 14]);
    assert_eq!(of("slab", "dentry"), [400 << 12, 400 << 14]);
    assert_eq!(of("vmalloc", "freed but not purged"), [12 << 12, 12 << 14]);
    let said = setup.succeeds(&["triage", "diff", "vmcore", "after"]);
    assert!(said.contains(&bytes(10_000 << 14)), "{said}");
}

fn remove_types(setup: &Setup) {
    let mut bytes = fs::read(setup.path("vmcore")).unwrap();
    // Magic number, version and flags of BTF.
    let types = bytes.windows(4).position(|window| window == [0x9f, 0xeb, 1, 0]).unwrap();
    bytes[types..types + 4].fill(0);
    fs::write(setup.path("vmcore"), bytes).unwrap();
}

fn without_types(machine: &mut Machine) -> Setup {
    let setup = Setup::new(machine);
    remove_types(&setup);
    setup
}

#[test]
fn a_kernel_without_types_has_nothing_that_is_zero() {
    let setup = setup(&inside());
    remove_types(&setup);
    let said = setup.succeeds(&["triage", "vmcore"]);
    for expected in ["Tasks: not known", "Memory: not known", "Modules: not known", "in an unknown place"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    for wrong in ["0 B", "Tasks: 0", "Modules: 0", "none taints"] {
        assert!(!said.contains(wrong), "{wrong}: {said}");
    }
    let waits = setup.succeeds(&["triage", "--section", "waits", "vmcore"]);
    assert!(waits.contains("Who waits for whom: not known"), "{waits}");
    setup.succeeds(&["triage", "--html", "report.html", "vmcore"]);
    let page = fs::read_to_string(setup.path("report.html")).unwrap();
    for wrong in ["free of", "<b>0</b>", "block requests in flight", "in flight: 0", "0 devices", "timers: 0"]
    {
        assert!(!page.contains(wrong), "{wrong}: {page}");
    }
    for (section, expected) in [
        ("io", "Block requests in flight: not known\n"),
        ("net", "Network: not known\n"),
        ("workqueues", "Workqueues: not known; works that wait for a worker: not known\n"),
        ("interrupts", "Interrupts: not known\n"),
        ("rcu", "RCU: not known\n"),
        ("timers", "Pending timers: not known\n"),
        ("signals", "Tasks for which signals wait: not known\n"),
        ("counts", "Tasks counted: not known\n"),
        ("pressure", "Pressure: not known\n"),
        ("sockets", "Sockets of processes: not known\n"),
        ("mounts", "Mounts: not known\n"),
        ("swap", "Swap devices: not known\n"),
        ("ipc", "IPC of System V: not known\n"),
    ] {
        let said = setup.succeeds(&["triage", "--section", section, "vmcore"]);
        assert!(said.contains(expected), "{said}");
    }
}

/// What names owners cannot be read: they may be anyone.
#[test]
fn a_kernel_without_types_has_owners_that_are_not_known() {
    let mut machine = Machine::new(Era::V6_12);
    machine.inside(0x4000, &inside());
    machine.anon(0x2000).slab(0x2010, 2);
    let setup = without_types(&mut machine);
    let said = setup.succeeds(&["pages", "--owners", "vmcore"]);
    assert!(said.contains("owner not known"), "{said}");
    for wrong in ["exited processes", "unknown cache", "page directories"] {
        assert!(!said.contains(wrong), "{wrong}: {said}");
    }
    let owners: Value =
        serde_json::from_str(&setup.succeeds(&["pages", "--owners", "--json", "vmcore"])).unwrap();
    assert_eq!(owners.get("managed"), None);
}

#[test]
fn a_kernel_without_types_has_the_task_that_the_log_names() {
    let mut machine = Machine::new(Era::V6_12);
    machine.inside(0x4000, &inside());
    let message = |nanoseconds, text| Message { nanoseconds, level: 0, caller: 7, text };
    machine.log(
        0x6000,
        &[
            message(99_000_000_000, "Kernel panic - not syncing: sysrq triggered crash"),
            message(99_100_000_000, "CPU: 0 UID: 0 PID: 20 Comm: writer Not tainted 6.12.0 #1"),
        ],
    );
    let setup = without_types(&mut machine);
    let report: Value = serde_json::from_str(&setup.succeeds(&["triage", "--json", "vmcore"])).unwrap();
    let text = report["verdict"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("writer/20 crashed the machine on purpose"), "{text}");
}

/// Lines of a report are those of pagehaul, whatever a module or a task names itself.
#[test]
fn names_of_a_dump_forge_no_lines() {
    let mut inside = inside();
    inside.modules.push(("x\nVerdict", 1 << 15));
    inside.tasks.push(task(50, "y\nVerdict", 2, 60, &["__schedule", "schedule", "do_fsync"]));
    inside.caches.push(("w\nVerdict", 4_000, 84_000));
    let mut machine = Machine::new(Era::V6_12);
    machine.inside(0x4000, &inside);
    let text = "INFO: task x\nVerdict\n:50 blocked for more than 20 seconds.";
    let message = |nanoseconds, text| Message { nanoseconds, level: 0, caller: 7, text };
    let panic = "Kernel panic - not syncing: hung_task: blocked tasks";
    machine.log(0x6000, &[message(99_000_000_000, text), message(99_500_000_000, panic)]);
    let setup = Setup::new(&mut machine);
    // The name of the host, alone in its field.
    let mut bytes = fs::read(setup.path("vmcore")).unwrap();
    let host = bytes.windows(7).position(|window| window == b"\0synth\0").unwrap();
    bytes[host + 1..host + 6].copy_from_slice(b"h\nVer");
    fs::write(setup.path("vmcore"), bytes).unwrap();
    let verdicts = |arguments: &[&str]| {
        let said = setup.succeeds(arguments);
        (said.lines().filter(|line| line.trim_start().starts_with("Ver")).count(), said)
    };
    let (headings, said) = verdicts(&["triage", "vmcore"]);
    assert_eq!(headings, 1, "{said}");
    for expected in [r"host h\nVer,", r"y\nVerdict/50"] {
        assert!(said.contains(expected), "{said}");
    }
    for section in ["what", "cpus", "tasks", "waits", "memory", "modules", "log"] {
        let (headings, said) = verdicts(&["triage", "--section", section, "vmcore"]);
        assert_eq!(headings, 0, "{section}: {said}");
    }
    for arguments in [["--tasks", "--stacks"], ["--pid", "50"]] {
        let (headings, said) = verdicts(&[&["triage", "vmcore"][..], &arguments[..]].concat());
        assert_eq!(headings, 0, "{said}");
        assert!(said.contains(r"\nVerdict"), "{said}");
    }
    setup.succeeds(&["triage", "--html", "report.html", "vmcore"]);
    let page = fs::read_to_string(setup.path("report.html")).unwrap();
    assert!(page.lines().all(|line| !line.starts_with("Ver")), "{page}");
}

/// The bytes of the synthetic machine's log before its texts.
const BEFORE_TEXTS: usize = 3 * 4096;

/// Dumps that end before the texts of the log, or before all of it.
fn without_log(setup: &Setup, name: &str, whole: bool) {
    let bytes = fs::read(setup.path("vmcore")).unwrap();
    let panic = bytes.windows(12).position(|window| window == b"Kernel panic").unwrap();
    let texts = panic & !4095;
    let end = if whole { texts } else { texts - BEFORE_TEXTS };
    fs::write(setup.path(name), &bytes[..end]).unwrap();
}

fn incomplete(setup: &Setup, arguments: &[&str]) -> [String; 2] {
    let output = setup.run(arguments);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let said = [text(output.stdout), text(output.stderr)];
    assert_eq!(output.status.code(), Some(3), "{arguments:?}: {said:?}");
    said
}

#[test]
fn a_dump_with_notes_alone_says_why_once() {
    let setup = setup(&inside());
    let bytes = fs::read(setup.path("vmcore")).unwrap();
    fs::write(setup.path("cut"), &bytes[..16384]).unwrap();
    for (arguments, shows) in [
        (&["triage", "cut"][..], true),
        (&["triage", "--json", "cut"], true),
        (&["triage", "diff", "vmcore", "cut"], true),
        (&["pages", "--owners", "--json", "cut"], false),
    ] {
        let output = setup.run(arguments);
        let shown = String::from_utf8(output.stdout).unwrap();
        let said = String::from_utf8(output.stderr).unwrap() + &shown;
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {said}");
        assert_eq!(shown.is_empty(), !shows, "{arguments:?}: {shown}");
        assert!(said.contains("cut: it is truncated"), "{arguments:?}: {said}");
        // Each reason once.
        let lines: Vec<&str> = said.lines().filter(|line| !line.is_empty()).collect();
        assert!(
            shown.starts_with('{')
                || lines.iter().all(|line| lines.iter().filter(|other| line == *other).count() == 1),
            "{said}"
        );
    }
}

#[test]
fn a_log_that_is_not_read_does_not_say_that_nothing_happened() {
    let setup = setup(&inside());
    for texts_only in [false, true] {
        without_log(&setup, "cut", texts_only);
        let [said, _] = incomplete(&setup, &["triage", "cut"]);
        for expected in ["What happened: not known\n", "of the log cannot be read", "  the log: "] {
            let expected = if texts_only { expected } else { &expected.replace("of the log", "the log") };
            assert!(said.contains(expected), "{expected}: {said}");
        }
        for wrong in ["no panic:", "silently", "nothing suspicious found\n"] {
            assert!(!said.contains(wrong), "{wrong}: {said}");
        }
        let [json, _] = incomplete(&setup, &["triage", "--json", "cut"]);
        let report: Value = serde_json::from_str(&json).unwrap();
        assert!(report["death"]["kind"].is_null() && report["death"]["unknown"].is_string(), "{json}");
        let gaps = report["gaps"].as_array().unwrap();
        assert!(gaps.iter().any(|gap| gap["part"] == "log" && gap["nothing"] == true), "{json}");
        setup.run(&["triage", "--html", &format!("{texts_only}.html"), "cut"]);
        let page = fs::read_to_string(setup.path(&format!("{texts_only}.html"))).unwrap();
        assert!(page.contains("not known") && !page.contains("silently"), "{page}");
    }
    // Nor does a verdict without findings.
    let mut machine = Machine::new(Era::V6_12);
    machine.inside(0x4000, &idle());
    let quiet = Setup::new(&mut machine);
    let [json, text] =
        [&["triage", "--json", "vmcore"][..], &["triage", "vmcore"]].map(|it| quiet.succeeds(it));
    assert!(json.contains("\"part\": \"log\"") || json.contains("\"part\":\"log\""), "{json}");
    assert!(text.contains("nothing suspicious found in what could be read; not read: the log"), "{text}");
}

/// A machine in which nothing is wrong.
fn idle() -> Inside {
    let mut idle = inside();
    idle.tasks.retain(|task| task.state != 2);
    idle
}

#[test]
fn a_difference_names_what_one_dump_lacks() {
    let setup = setup(&inside());
    let bytes = fs::read(setup.path("vmcore")).unwrap();
    let mut without_types = bytes.clone();
    let types = bytes.windows(4).position(|window| window == [0x9f, 0xeb, 1, 0]).unwrap();
    without_types[types..types + 4].fill(0);
    fs::write(setup.path("typeless"), without_types).unwrap();
    let said = setup.succeeds(&["triage", "diff", "vmcore", "typeless"]);
    for expected in [
        "  typeless: not read: ",
        "not compared: tasks, memory, slab, vmalloc, modules",
        "Missing in typeless",
        "  tasks: ",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    for wrong in ["  0 B", "\nTasks\n", "\nMemory\n", "\nSlab\n", "\nModules\n", "Gone stack"] {
        assert!(!said.contains(wrong), "{wrong}: {said}");
    }
    without_log(&setup, "cut", false);
    let [said, warned] = incomplete(&setup, &["triage", "diff", "vmcore", "cut"]);
    assert!(said.contains("signature: ") && said.contains(", then not known"), "{said}");
    assert!(said.contains("? writer") || said.contains("\n  ? "), "{said}");
    assert!(warned.contains("pagehaul: ") && warned.contains("cut"), "{warned}");
    let [_, warned] = incomplete(&setup, &["triage", "diff", "--json", "cut", "vmcore"]);
    assert!(warned.contains("pagehaul: ") && warned.contains("cut"), "{warned}");
}

#[test]
fn lists_that_break_off_are_no_totals() {
    let setup = setup(&inside());
    let json: Value =
        serde_json::from_str(&setup.succeeds(&["triage", "--json", "--tasks", "vmcore"])).unwrap();
    let address = |list: &str| {
        let text = json[list].as_array().unwrap().last().unwrap()["address"].as_str().unwrap().to_owned();
        u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
    };
    let last = [address("tasks"), address("modules")];
    let mut bytes = fs::read(setup.path("vmcore")).unwrap();
    // Pointers into a structure, not to it: those of the list.
    for word in bytes.as_chunks_mut::<8>().0 {
        let value = u64::from_le_bytes(*word);
        if last.iter().any(|start| (start + 1..start + 0x40).contains(&value)) {
            *word = 0xffff_ffff_ff00_0000_u64.to_le_bytes();
        }
    }
    fs::write(setup.path("vmcore"), bytes).unwrap();
    let said = setup.succeeds(&["triage", "vmcore"]);
    for expected in
        ["Tasks: at least 3 (", "Modules: at least 1; the others could not be read", "modules: the list at"]
    {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert!(!said.contains("none taints"), "{said}");
}

/// Cut copies of a dump.
const CUTS: usize = 40;

#[test]
fn what_a_cut_copy_of_a_dump_lacks_is_neither_gone_nor_denied() {
    let setup = setup(&inside());
    let whole = fs::read(setup.path("vmcore")).unwrap();
    let used: Vec<usize> = (0..whole.len())
        .step_by(4096)
        .filter(|at| whole[*at..].iter().take(4096).any(|byte| *byte != 0))
        .collect();
    fs::write(setup.path("cut"), &whole).unwrap();
    let cut = fs::OpenOptions::new().write(true).open(setup.path("cut")).unwrap();
    let mut reports = 0;
    // Each ends earlier than the last.
    for len in used.iter().rev().step_by(used.len().div_ceil(CUTS)) {
        cut.set_len(*len as u64).unwrap();
        let output = setup.run(&["triage", "cut"]);
        let said = String::from_utf8(output.stdout).unwrap();
        if output.status.code() != Some(3) || said.is_empty() {
            continue;
        }
        reports += 1;
        let [changes, _] = incomplete(&setup, &["triage", "diff", "vmcore", "cut"]);
        for wrong in ["Gone stack", "New stack", "\n  - ", "\nModules\n"] {
            assert!(!changes.contains(wrong), "{len} bytes, {wrong}: {changes}");
        }
        let page = format!("{len}.html");
        setup.run(&["triage", "--html", &page, "cut"]);
        let page = fs::read_to_string(setup.path(&page)).unwrap();
        for text in [&said, &page] {
            assert!(!text.contains("at least 0"), "{len} bytes: {text}");
        }
        let lacks_tasks = said.contains("\n  tasks: ");
        assert!(!lacks_tasks || !said.contains("no task waits for"), "{len} bytes: {said}");
        if let Ok(task) = String::from_utf8(setup.run(&["triage", "--pid", "20", "cut"]).stdout)
            && !task.is_empty()
        {
            assert!(task.contains("\nMissing\n") && task.contains("it is truncated"), "{len} bytes: {task}");
            assert!(!task.contains("\n  memory: ") && !task.contains("\n  slab: "), "{len} bytes: {task}");
        }
    }
    assert!(reports > 2, "{reports}");
}

/// Runs `triage` with at most so many KiB of memory and a minute of CPU. It has to end by itself, with a report or an error.
fn limited(setup: &Setup, kib: u64, options: &str) -> Option<String> {
    let script = format!("ulimit -d {kib}; ulimit -t 60; exec {BINARY} triage {options}");
    let output =
        Command::new("sh").args(["-c", &script]).current_dir(setup.directory.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(0) => Some(String::from_utf8(output.stdout).unwrap()),
        Some(1) if said.starts_with("pagehaul: ") => None,
        _ => panic!("{}: {said}", output.status),
    }
}

#[test]
fn damaged_dumps_end_in_a_report_or_an_error() {
    let setup = setup(&later());
    let whole = fs::read(setup.path("vmcore")).unwrap();
    // Only words that are not zero decide anything; page tables, symbols, types and tasks are among them.
    let words = whole.as_chunks::<8>().0;
    let used: Vec<usize> = (512..words.len()).filter(|at| words[*at] != [0; 8]).collect();
    let known: HashSet<u64> = used.iter().map(|at| u64::from_le_bytes(words[*at])).collect();
    let pointers: Vec<u64> = known.into_iter().filter(|word| *word >> 47 == 0x1_ffff).collect();
    let mut noise = Noise::new(15);
    let mut pick = |len: usize| (noise.next() % len as u64) as usize;
    let file = fs::OpenOptions::new().write(true).open(setup.path("vmcore")).unwrap();
    let mut reports = 0;
    for _ in 0..500 {
        let places: Vec<usize> = (0..1 + pick(24)).map(|_| used[pick(used.len())]).collect();
        for at in &places {
            let word = match pick(5) {
                0 => 0,
                1 => u64::MAX,
                // Another pointer of the kernel: lists meet themselves, trees become deep.
                2 | 3 => pointers[pick(pointers.len())],
                _ => pick(usize::MAX) as u64,
            };
            file.write_all_at(&word.to_le_bytes(), 8 * *at as u64).unwrap();
        }
        reports += u32::from(limited(&setup, 96 << 10, "--json --tasks --stacks vmcore").is_some());
        for at in &places {
            file.write_all_at(&words[*at], 8 * *at as u64).unwrap();
        }
    }
    // Most damage hits what no report is made of.
    assert!(reports > 100, "{reports}");
}

#[test]
fn a_hundred_thousand_tasks_fit_in_64_mib() {
    const TASKS: u32 = 100_000;
    let mut machine = Machine::new(Era::V6_12);
    machine.ram(0x10_0000, 1 << 30);
    let mut inside = inside();
    let stack = ["__schedule", "schedule", "do_nanosleep", "kthread"];
    inside.tasks = (1..=TASKS).map(|pid| task(pid, "worker", 1 + pid % 2, 50, &stack)).collect();
    machine.inside(0x4000, &inside);
    let setup = Setup::new(&mut machine);
    let said = limited(&setup, 64 << 10, "vmcore").unwrap();
    assert!(said.contains("Tasks: 100,000 (50,000 S, 50,000 D)"), "{said}");
}

#[test]
fn no_word_breaks_at_the_edge_of_a_terminal() {
    let setup = setup(&inside());
    let whole = setup.succeeds(&["triage", "vmcore"]);
    let command = format!("stty cols 80 && exec {BINARY} triage vmcore");
    let mut script = Command::new("script");
    script
        .args(["-qec", &command, "/dev/null"])
        .current_dir(setup.path("."))
        .stdin(std::process::Stdio::null());
    let Ok(output) = script.env("PAGER", "").env("NO_COLOR", "1").output() else {
        eprintln!("not tested: there is no script(1)");
        return;
    };
    let narrow = String::from_utf8(output.stdout).unwrap();
    assert!(whole.lines().any(|line| line.chars().count() > 80), "{whole}");
    assert_eq!(narrow.split_whitespace().collect::<Vec<_>>(), whole.split_whitespace().collect::<Vec<_>>());
    for line in narrow.lines().filter(|line| line.trim().contains(' ')) {
        assert!(line.chars().count() <= 80, "{line:?}");
    }
}
