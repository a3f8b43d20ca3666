//! Any log: no panic, bounded output, and the same answer for a log that goes on before the crash.

use pagehaul_facts::{Crash, lines_of_text};
use proptest::prelude::*;

/// Lines that crashes are made of, in any order, with any text between.
fn line() -> impl Strategy<Value = String> {
    let known = prop::sample::select(vec![
        "BUG: kernel NULL pointer dereference, address: 0",
        "Kernel panic - not syncing: Fatal exception",
        "Kernel panic - not syncing: hung_task: blocked tasks",
        "Kernel panic - not syncing: RCU Stall",
        "Kernel panic - not syncing: Watchdog detected hard LOCKUP on cpu 1",
        "INFO: task a:b:7 blocked for more than 120 seconds.",
        "Call Trace:",
        " <IRQ>",
        " </IRQ>",
        " <<EOE>>  <IRQ> [<ffffffff81000000>] f+0x1/0x2 [m]",
        "RIP: 0010:f.isra.0+0x5/0x10 [m]",
        "RIP: 0033:0x7f",
        " vfs_write+0x1/0x2",
        " ? g+0x1/0x2",
        " kthread+0x1/0x2",
        "CPU: 0 PID: 1 Comm: Comm: a b Tainted: G  OE 6.1",
        "NMI backtrace for cpu 2",
        "---[ end trace 0 ]---",
        "<4>[    1.000001] [    T1] ",
    ]);
    prop_oneof![
        known.prop_map(str::to_owned),
        "\\PC{0,60}",
        "[ -~]{0,40}\\+0x[0-9a-f]{1,4}/0x[0-9a-f]{1,4}[ -~]{0,20}"
    ]
}

proptest! {
    #[test]
    fn any_lines_are_read(lines in prop::collection::vec(line(), 0..80)) {
        let text = lines.join("\n");
        let Some(crash) = Crash::find(&lines_of_text(&text)) else { return Ok(()) };
        prop_assert!(crash.signature.frames.len() <= pagehaul_facts::FRAMES);
        prop_assert_eq!(crash.signature.frames.is_empty(), crash.signature.corrupted);
        prop_assert_eq!((crash.signature.sig.len(), crash.signature.sig_fine.len()), (16, 16));
        prop_assert_eq!(crash.signature.sig_coarse.as_deref().map(str::len), Some(16));
        prop_assert!(crash.text.len() <= text.len());
        // What the machine logged at boot changes nothing.
        let longer = format!("[    0.000000] Linux version 6.1.0\n{text}");
        prop_assert_eq!(Crash::find(&lines_of_text(&longer)), Some(crash));
    }
}
