//! What stays of a log, and what does not.

use std::path::Path;

use proptest::prelude::*;

use super::*;

fn redaction() -> Redaction {
    Redaction { key: [7; 32] }
}

fn text(line: &str) -> String {
    let mut names = Names::default();
    names.add_host("db-7.corp.example");
    names.add_known(Some("6.12.107+deb13-amd64"));
    names.collect(line);
    redaction().text(line, &names)
}

#[test]
fn what_identifies_a_site_is_hashed() {
    for (line, secret) in [
        ("CPU: 1 PID: 7 Comm: billing svc Not tainted 6.12", "billing"),
        ("INFO: task pay:roll:77 blocked for more than 120 seconds.", "pay:roll"),
        ("watchdog: BUG: soft lockup - CPU#0 stuck for 23s! [trader:99]", "trader"),
        ("Out of memory: Killed process 77 (ledger) total-vm:1kB", "ledger"),
        ("ledger invoked oom-killer: gfp_mask=0x1", "ledger"),
        ("[    123]     0   123    10   20    30    40   50   60      0 ledger", "ledger"),
        ("ledger[123]: segfault at 0 ip 00007f sp 00007f error 4", "ledger"),
        ("e1000 0000:00:03.0 eth0: (PCI:33MHz:32-bit) 52:54:00:12:34:56", "52:54:00"),
        ("nfs: server 10.1.2.3 not responding", "10.1.2.3"),
        ("nfs: server [fe80::5054:ff:fe12:3456]:2049 OK", "fe80::"),
        ("SRC=10.1.2.3:80 DST=2001:db8::1", "db8"),
        ("EXT4-fs (sda1): mounted /srv/customer", "customer"),
        ("Kernel command line: root=UUID=1 secret=1", "secret"),
        ("Linux version 6.12 (root@builder.example.org) (gcc 12)", "builder"),
        ("usb 1-1: SerialNumber: 123456", "123456"),
        ("netconsole: local host db-7 is up", "db-7"),
        ("mail for corp.example", "example"),
        ("    token=4711", "4711"),
        ("    crashkernel=256M", "256M"),
        (
            r#"Unknown kernel command line parameters "splash token=4711", will be passed to user space."#,
            "4711",
        ),
        // What no record names.
        (r#"audit: type=1400 apparmor="DENIED" profile="trader" comm="ledgerd""#, "trader"),
        (r#"audit: type=1400 apparmor="DENIED" profile="trader" comm="ledgerd""#, "ledgerd"),
        ("nfs: server nas01.corp.acme.example not responding, still trying", "nas01"),
        ("traps: ledgerd[77] general protection fault ip:7f0012345678", "ledgerd"),
        ("device-mapper: table: 253:3: vg_customers-lv_orders: bad", "customers"),
        ("scsi host2: iSCSI target iqn.2001-04.com.acme:storage.disk1", "acme"),
        ("ata1.00: ATA-9: WDC WD40EFRX-68N32N0, 82.00A82, S/N: WD-WCC7K1234567", "WCC7K"),
        ("scsi 0:0:0:0: serial 1234567890", "1234567890"),
        ("scsi 0:0:0:0: wwn 0x5000c500a1b2c3d4", "c500a1b2"),
        ("Memory failure: 0x12345: Sending SIGBUS to churn:152 due to hardware memory corruption", "churn"),
        ("netdevsim bond-trading: link up, dev=payroll", "trading"),
        ("netdevsim bond-trading: link up, dev=payroll", "payroll"),
        ("cgroup: mail=server quota=customers", "customers"),
        ("WARNING: at /home/bob/src/x.c:12", "bob"),
        ("WARNING: at ../../home/bob/src/x.c:12", "bob"),
        ("kworker-billing: stuck", "billing"),
        ("enx525400123456: renamed", "525400123456"),
        ("Workqueue: billing_wq; kworker/u8:2+billing_wq: stuck", "billing"),
        ("CPU: 1 PID: 7 Comm: kworker/0:1-billing Not tainted 6.12.107", "billing"),
        ("genirq: Threaded irq/45-billing0-TxRx-3", "billing"),
        ("INFO: task kworker/u8:billing:33 blocked for more than 120 seconds.", "billing"),
        ("kswapd0-billing: stuck", "billing"),
        ("call 49-170-5551234", "5551234"),
        ("flagsfe80::5054:ff:fe12:3456: up", "fe12"),
        ("card 4111-1111-1111-1111 was paid", "1111-1111"),
        ("scsi 0:0:0:0: wwn 50:00:c5:00:a1:b2:c3:d4", "a1:b2"),
        ("infiniband: port 0002:c903:00a1:b2c3", "c903"),
        ("scsi 0:0:0:0: serial 50:00:05:00:01:02:03:04", "01:02:03"),
    ] {
        let redacted = text(line);
        assert!(!redacted.contains(secret), "{redacted}");
        assert_eq!(redacted, text(line));
    }
}

/// Lines that stay as they are.
const HARMLESS: [&str; 28] = [
    "RIP: 0010:demo_fill+0x5/0x40 [demo]",
    " </TASK>",
    "Tainted: [O]=OOT_MODULE, [E]=UNSIGNED_MODULE",
    "CPU: 1 PID: 7 Comm: kworker/u8:2-events_unbound Not tainted 6.12.107 #1",
    "CPU: 1 PID: 7 Comm: kworker/0:1H-kblockd Not tainted 6.12.107 #1",
    "INFO: task jbd2/dm-3-8:331 blocked for more than 120 seconds.",
    "usb 1-1: New USB device found, 046d:c52b",
    "[1234567.890123] at 2026-08-29, node 0-127",
    "pci 0000:00:1f.2: BAR 0 at 12:34:56",
    "CPU: 1 PID: 7 Comm: kworker/1:2 Not tainted 6.12.107 #1",
    "kernel BUG at fs/ext4/inode.c:123!",
    "core::panicking::panic_fmt",
    "? __pfx_kthread+0x10/0x10, mm: /",
    "RSP: 0018:ffffc90000a3bd58 EFLAGS: 00010246",
    "RAX: 0000000000000001 RBX: 00007f12a3b4c5d6 RCX: 0000000000000000",
    "R13: 0000000000000000 R14: 0000000000000000 R15: 0000000000000000",
    "x29: ffff80008000bd50 x28: ffff0000c0a1b2c3 x27: 0000000000000000",
    "BUG: kernel NULL pointer dereference, address: 0000000000000008",
    "#PF: supervisor write access in kernel mode",
    "Oops: Oops: 0002 [#1] PREEMPT SMP PTI",
    "watchdog: BUG: soft lockup - CPU#1 stuck for 23s! [kworker/1:2:77]",
    "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
    "Node 0 DMA32 free:12345kB min:1kB low:2kB high:3kB active_anon:4kB",
    "Call Trace:",
    "EXT4-fs (sda1): error count since last fsck: 1",
    "nvme0n1: p1 p2 p3",
    "gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=0",
    "Kernel panic - not syncing: Fatal exception in interrupt",
];

#[test]
fn what_explains_the_crash_stays() {
    for line in HARMLESS {
        assert_eq!(text(line), line);
    }
}

#[test]
fn a_task_has_one_name_in_lines_and_tables() {
    let redaction = redaction();
    let task = |name: &str, is_kernel_thread| TaskName { name: name.into(), is_kernel_thread };
    let tasks = [
        task("ledgerd", false),
        task("sh", false),
        task("10.1.2.3-manager", true),
        task("kworker/0:1", true),
    ];
    let mut names = Names::of_tasks(&tasks);
    names.add_host(".corp.example");
    for TaskName { name, is_kernel_thread: _ } in &tasks {
        let line = format!("CPU: 0 PID: 7 Comm: {name} Not tainted");
        names.collect(&line);
        let replaced = redaction.text(&line, &names);
        assert_eq!(replaced, format!("CPU: 0 PID: 7 Comm: {} Not tainted", redaction.task(name, &names)));
        assert_eq!(replaced.contains(name.as_str()), name == "kworker/0:1", "{replaced}");
    }
    // A program that calls itself as kernel threads are called.
    let names = Names::of_tasks(&[task("kworker/0:9", false)]);
    assert!(redaction.task("kworker/0:9", &names).starts_with("comm-"));
}

#[test]
fn another_key_gives_other_names() {
    let other = Redaction { key: [8; 32] };
    assert_ne!(other.name("host", "a"), redaction().name("host", "a"));
    assert_ne!(redaction().name("comm", "a"), redaction().name("host", "a"));
}

/// Logs of real crashes.
fn real_lines() -> Vec<String> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../facts/tests/data");
    let mut paths: Vec<_> = std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "log"));
    paths.sort();
    let logs: Vec<String> = paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect();
    let text = |log: &str| -> Vec<String> {
        pagehaul_facts::lines_of_text(log).iter().map(|line| line.text.to_owned()).collect()
    };
    logs.iter().flat_map(|log| text(log)).collect()
}

#[test]
fn no_secret_comes_through_wherever_it_stands_in_a_real_log() {
    let secrets = [
        "ledgerd",
        "trader7",
        "nas01.corp.acme.example",
        "iqn.2001-04.com.acme:disk1",
        "WD-WCC7K1234567",
        "vg_customers-lv_orders",
        "prod-07",
        "j.smith",
        "/srv/customers",
        "10.20.30.40",
        "192837465564",
    ];
    let (redaction, lines) = (redaction(), real_lines());
    let mut planted = 0;
    for line in &lines {
        let words: Vec<&str> = line.split(' ').collect();
        // Each in its place, so that all of them are in all places of all lines.
        for at in 0..words.len() {
            let secret = secrets[(planted + at) % secrets.len()];
            let mut words = words.clone();
            words[at] = secret;
            let redacted = redaction.text(&words.join(" "), &Names::default());
            assert!(!redacted.contains(secret), "{redacted}");
        }
        planted += words.len();
    }
    assert!(planted > 3000, "{planted}");
}

#[test]
fn a_crash_can_be_read_after_redaction() {
    let redaction = redaction();
    let (mut all, mut replaced) = (0, 0);
    for line in real_lines() {
        let mut names = Names::default();
        names.collect(&line);
        let redacted = redaction.text(&line, &names);
        all += line.split_whitespace().count();
        replaced += redacted.matches("word-").count();
        // Stacks and registers are what they were, but for build IDs of modules.
        let has_build_id = line.rsplit_once(' ').is_some_and(|(_, last)| last.len() == 41);
        if !has_build_id && line.contains("+0x") && line.starts_with(' ') || line.starts_with("RAX:") {
            assert_eq!(redacted, line);
        }
    }
    assert!(replaced * 10 < all, "{replaced} of {all} words");
}

/// Plants a secret for each `%s` of each printk format that the file `PAGEHAUL_FORMATS` has, one in a line:
/// `scripts/kernel_words.py --formats vmlinux...` prints them.
#[test]
#[ignore = "needs the printk formats of a kernel"]
fn no_secret_comes_through_a_format_of_the_kernel() {
    let formats = std::fs::read_to_string(std::env::var("PAGEHAUL_FORMATS").unwrap()).unwrap();
    let (mut planted, mut leaks) = (0, Vec::new());
    for format in formats.lines() {
        for secret in ["ledgerd", "nas01.corp.acme.example", "vg_customers-lv_orders", "WD-WCC7K1234567"] {
            let line = format.replace("%s", secret).replace("%d", "7").replace("%u", "7");
            if line.contains(secret) {
                planted += 1;
                let redacted = redaction().text(&line, &Names::default());
                if redacted.contains(secret) {
                    leaks.push(format!("{line} -> {redacted}"));
                }
            }
        }
    }
    println!("{planted} planted, {} leaks", leaks.len());
    assert!(planted > 1000 && leaks.is_empty(), "{leaks:#?}");
}

#[test]
fn addresses_are_hashed_wherever_they_stand() {
    for line in [
        "TCP: Peer 10.99.88.77:443/55000 unexpectedly shrunk window 1:2 (repaired)",
        "libceph: mon0 (1)10.99.88.77:6789/0 session lost",
        "nfs: server 10.99.88.77:/export not responding",
        "10.99.88.77->ip-10-99-88-77",
        "ip-10-99-88-77",
        "dm-10-99-88-77 10-99-88-77",
        "10.99.88.77:443/10.99.88.77:22",
        "10.99.88.77#53",
        "1/10.99.88.77",
        "eth0/10.99.88.77/24",
        "eth0:10.99.88.77",
        "eth0.10.99.88.77",
        "52:54:00:99:88:77/10.99.88.77",
        "x10.99.88.77",
        "10.99.88.77+0x10/0x20",
        "symbol+0x10/0x20:10.99.88.77",
        "10.99.88.77.c:12",
        "fs/10.99.88.77.c:12",
        "010.099.088.077",
        "5254.0099.8877",
        "x5254.0099.8877y dm-5254-0099-8877",
        "eth0:52:54:00:99:88:77 a52:54:00:99:88:77b 52-54-00-99-88-77.c:12",
        "52:54:00:99:88:77+0x10/0x20 cpu52-54-00-99-88-77",
        "[fe80::1%eth0]:443/x",
        "[fe80::5054:ff:fe99:8877%eth0]:443/x",
        "fe80::5054:ff:fe99:8877/64",
        "eth0/fe80::5054:ff:fe99:8877/64",
        "::ffff:10.99.88.77/96 64:ff9b::10.99.88.77",
        "fe80:0:0:0:5054:ff:fe99:8877+0x10/0x20",
        "core::fe80::5054:ff:fe99:8877",
        "route 2001:db8:99::/48 via 2001:db8:99::",
        "kworker/u8:10.99.88.77",
        "Modules linked in: x10.99.88.77 y(O)",
    ] {
        let redacted = without_hashes(&text(line));
        for secret in [
            "10.99", "99.88", "88.77", "10-99", "88-77", "099", "088", "fe80", "5054", "fe99", "8877",
            "52:54", "52-54", "5254", "00:99", "2001", "db8",
        ] {
            assert!(!redacted.contains(secret), "{secret}: {line} -> {redacted}");
        }
    }
}

fn without_hashes(text: &str) -> String {
    let word = |word: &str| {
        let mut rest = word.to_owned();
        for hash in embedded::find(word).iter().rev().filter(|part| part.kind.is_none()) {
            rest.replace_range(hash.start..hash.end, "");
        }
        rest
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_name_that_looks_like_a_hash_is_hashed() {
    let name = "host-525400998877";
    for line in [format!("nfs: server {name} not responding"), format!("{name}:/export {name}/24 (x){name}")]
    {
        assert!(!text(&line).contains("525400998877"), "{}", text(&line));
    }
    let mut names = Names::default();
    names.add_host(name);
    assert_eq!(redaction().text(name, &names), redaction().host(name));
}

#[test]
fn sentences_keep_no_address_either() {
    let sentence = redaction().places("cannot connect to tcp4/10.99.88.77:443: refused", &[]);
    let ip = redaction().name("ip", "10.99.88.77");
    assert_eq!(sentence, format!("cannot connect to tcp4/{ip}:443: refused"));
}

#[test]
fn one_address_has_one_hash_and_its_port_stays() {
    let ip = redaction().name("ip", "10.99.88.77");
    for (line, expected) in [
        ("TCP: Peer 10.99.88.77:443/55000 unexpectedly", format!("TCP: Peer {ip}:443/55000 unexpectedly")),
        ("eth0/010.099.088.077/24", format!("eth0/{ip}/24")),
        (
            "libceph: mon0 (1)10.99.88.77:6789/0 session lost",
            format!("libceph: mon0 (1){ip}:6789/0 session lost"),
        ),
    ] {
        assert_eq!(text(line), expected.replace("mon0", &text("mon0")));
    }
    let mac = redaction().name("mac", "525400998877");
    assert_eq!(text("52:54:00:99:88:77 5254.0099.8877 52-54-00-99-88-77"), format!("{mac} {mac} {mac}"));
    assert_eq!(text("eth0:52:54:00:99:88:77"), format!("eth0:{mac}"));
}

#[test]
fn versions_ranges_and_numbers_of_devices_are_no_addresses() {
    for line in [
        "Linux 6.12.95 6.1.0-50 6.12.107+deb13-amd64",
        "pci 0000:00:1f.2: BAR 0 at 0xfeb80000 64bit",
        "pci 0000:00:1f.2: BAR 0 at 0xc000",
        "usb 1-1.2.3: device, 12:34:56, 2026-08-29, 04/01/2014",
        "scsi 0:0:0:0: sd 2:0:0:1: page 0-127,130-131",
        "core::f64::panic core::cell::panic_fmt alloc::alloc::alloc",
        "[1234567.890123] R13: 0000000000000000",
        "usb 2-1: Server/X1, BIOS 2.3 04/01/2018",
    ] {
        assert_eq!(text(line), line);
    }
}

#[test]
fn no_word_of_the_kernel_is_an_address() {
    let words = include_str!("words.txt").lines();
    assert_eq!(words.filter(|word| embedded::has_address(word)).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn names_of_other_machines_are_hashed_whatever_their_form() {
    for name in ["node12", "host9", "port4", "card1", "db1", "eth0", "s1", "storage"] {
        for line in [
            format!("nfs: server {name} not responding, still trying"),
            format!("nfs: server {name} OK"),
            format!("lockd: server {name} not responding, timed out"),
            format!("nfs: server [{name}] not responding"),
        ] {
            let redacted = text(&line);
            let kept = line.replace(name, "").split_whitespace().count();
            assert!(!redacted.contains(name), "{redacted}");
            assert!(redacted.split_whitespace().count() >= kept, "{redacted}");
        }
    }
    for name in ["node12", "host9", "port4", "card1"] {
        for line in [
            "peer X: lost",
            "connection from X",
            "connect to X failed",
            "client X",
            "target X",
            "user X",
            "portal X",
            "server X:/export",
            "server=X",
            "host=\"X\"",
            "server:X",
            "server: X",
            "peer (X)",
        ] {
            let redacted = text(&line.replace('X', name));
            assert!(!redacted.contains(name), "{redacted}");
        }
    }
    for line in [
        "nfs: server not responding",
        "changed from 5 to 10, from 0x10 to 0x20, to eth0, to CPU1",
        "scsi host2: node12 card1",
        "client 0xffff888012345678 to user space",
    ] {
        assert_eq!(text(line), line);
    }
}

#[test]
fn a_machine_without_a_name_has_none() {
    let mut names = Names::default();
    names.add_host("(none)");
    let line = "Tainted: (none)";
    assert_eq!(redaction().text(line, &names), text(line));
    assert_eq!(redaction().host("(none)"), "(none)");
    assert!(redaction().host("node12").starts_with("host-"));
}

/// A line that stays as it is or of a real log, in which an address is, and the inner part of that.
fn planted() -> impl Strategy<Value = (String, &'static str)> {
    let lines: Vec<String> = real_lines().into_iter().chain(HARMLESS.map(str::to_owned)).collect();
    let addresses = [
        ("10.99.88.77", ".99.88."),
        ("010.099.088.077", ".099.088."),
        ("52:54:00:99:88:77", ":00:99:"),
        ("52-54-00-99-88-77", "-00-99-"),
        ("5254.0099.8877", "4.0099.8"),
        ("fe80::5054:ff:fe99:8877", ":ff:fe99:"),
        ("2001:db8:0:0:9:8:7:6", ":0:0:9:8"),
        ("::ffff:10.99.88.77", ":10.99."),
        ("10-99-88-77", "-99-88-"),
    ];
    let plant = (
        0..lines.len(),
        any::<prop::sample::Index>(),
        prop::sample::select(addresses.to_vec()),
        "[ -~]{0,3}",
        "[ -~]{0,3}",
    );
    plant.prop_map(move |(line, at, (address, inner), before, after)| {
        let line = &lines[line];
        let places: Vec<usize> = line.char_indices().map(|(at, _)| at).chain([line.len()]).collect();
        let at = places[at.index(places.len())];
        ([&line[..at], &before, address, &after, &line[at..]].concat(), inner)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]
    #[test]
    fn no_address_comes_through_wherever_it_is_planted((line, inner) in planted()) {
        let mut names = Names::default();
        names.collect(&line);
        let redacted = redaction().text(&line, &names);
        prop_assert!(!redacted.contains(inner), "{inner}: {line} -> {redacted}");
        // Names in a line are redacted before the line is.
        let again = redaction().text(&redacted, &Names::default());
        prop_assert!(!again.contains(inner), "{again}");
    }

    #[test]
    fn any_text_can_be_searched(word in "\\PC{0,40}") {
        let mut done = 0;
        for part in embedded::find(&word) {
            prop_assert!(part.start >= done && part.end > part.start && word.get(part.start..part.end).is_some());
            done = part.end;
        }
    }
}
