//! How well signatures group crashes: variants of real stacks, as other compilers and configurations make them, and several reports of one
//! bug. `stacks/real.txt` has the stacks; docs/benchmarks/2026-11-25-signatures.md has the table.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use pagehaul_facts::{Crash, lines_of_text, similar};

/// Variants of each stack.
const VARIANTS: usize = 8;

/// How a variant differs: in how many of 1,000 cases.
struct Changes {
    /// A function that was inlined is not, now.
    outlined: u64,
    /// A static function is inlined.
    inlined: u64,
    /// Any other function is: link-time optimization.
    inlined_global: u64,
    /// A function that the compiler can clone has a suffix.
    suffix: u64,
    /// A function that a configuration adds is on the stack.
    generic: u64,
}

const SUFFIXES: [&str; 7] =
    [".isra.0", ".constprop.0", ".part.0", ".cold", ".llvm.1234", ".isra.3.part.0", ".constprop.0.isra.1"];
const GENERIC: [&str; 10] = [
    "lock_acquire",
    "__lock_acquire",
    "lock_release",
    "trace_hardirqs_on",
    "__sanitizer_cov_trace_pc",
    "kasan_check_read",
    "debug_smp_processor_id",
    "rcu_is_watching",
    "preempt_count_add",
    "__msan_poison_alloca",
];

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let seed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let seed = (seed ^ (seed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((seed ^ (seed >> 31)) % below as u64) as usize
    }

    fn happens(&mut self, of_thousand: u64) -> bool {
        (self.next(1_000) as u64) < of_thousand
    }
}

struct Stack<'a> {
    bug: &'a str,
    kind: &'a str,
    /// With their marks.
    frames: Vec<&'a str>,
}

fn stacks() -> Vec<Stack<'static>> {
    let lines = include_str!("stacks/real.txt").lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.split(' ');
            Stack { bug: words.next().unwrap(), kind: words.next().unwrap(), frames: words.collect() }
        })
        .collect()
}

/// The log of a crash.
fn log(kind: &str, frames: &[String]) -> String {
    let (first, panic) = match kind {
        "null-deref" => {
            ("BUG: kernel NULL pointer dereference, address: 0000000000000008", "Fatal exception")
        }
        "page-fault" => ("BUG: unable to handle page fault for address: ffff8880bfffd000", "Fatal exception"),
        "gpf" => ("general protection fault: 0000 [#1] SMP", "Fatal exception"),
        "bug" => ("kernel BUG at mm/slub.c:1!", "Fatal exception"),
        "warn" => ("WARNING: CPU: 0 PID: 1 at mm/slub.c:1 f+0x1/0x2", "panic_on_warn set ..."),
        "sanitizer" => ("BUG: KASAN: use-after-free in f+0x1/0x2", "panic_on_warn set ..."),
        "soft-lockup" => {
            ("watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [a:1]", "softlockup: hung tasks")
        }
        "rcu-stall" => ("rcu: INFO: rcu_sched self-detected stall on CPU", "RCU Stall"),
        "hung-task" => ("INFO: task a:1 blocked for more than 120 seconds.", "hung_task: blocked tasks"),
        other => panic!("{other}"),
    };
    let mut text = format!("[   10.000000] {first}\n[   10.000001] Call Trace:\n");
    for frame in frames {
        writeln!(text, "[   10.000002]  {frame}").unwrap();
    }
    text + &format!("[   10.000003] Kernel panic - not syncing: {panic}\n")
}

fn variant(stack: &Stack<'_>, changes: &Changes, random: &mut Random) -> Vec<String> {
    let mut frames: Vec<String> = Vec::new();
    for marked in &stack.frames {
        let name = marked.trim_start_matches(['~', '-']);
        let (stays, can_have_suffix) = match marked.as_bytes()[0] {
            b'~' => (changes.outlined, true),
            b'-' => (1_000 - changes.inlined, true),
            _ => (1_000 - changes.inlined_global, false),
        };
        if !random.happens(stays) {
            continue;
        }
        // A compiler that does not clone leaves the name alone.
        let mut name = name.split('.').next().unwrap().to_owned();
        if can_have_suffix && random.happens(changes.suffix) {
            name += SUFFIXES[random.next(SUFFIXES.len())];
        }
        frames.push(name);
    }
    if random.happens(changes.generic) {
        // Functions that report come first.
        let first = frames.iter().position(|name| !pagehaul_facts::is_messenger(name)).unwrap_or(0);
        frames.insert(first, GENERIC[random.next(GENERIC.len())].to_owned());
    }
    let offsets = frames.into_iter().map(|name| format!("{name}+{:#x}/0xfff", random.next(0xfff)));
    offsets.collect()
}

/// Pairs of crashes, by what puts them together.
#[derive(Default, Clone, Copy)]
struct Counts {
    of_one_bug: usize,
    of_different_bugs: usize,
}

impl Counts {
    fn add(&mut self, same: bool) {
        if same {
            self.of_one_bug += 1;
        } else {
            self.of_different_bugs += 1;
        }
    }

    fn recall(self, pairs: usize) -> f64 {
        self.of_one_bug as f64 / pairs as f64
    }

    fn precision(self) -> f64 {
        self.of_one_bug as f64 / (self.of_one_bug + self.of_different_bugs).max(1) as f64
    }
}

#[derive(Default)]
struct Table {
    pairs: usize,
    exact: Counts,
    coarse: Counts,
    similar: Counts,
    any: Counts,
}

/// Counts the pairs of crashes that each rule puts together.
fn measure(crashes: &[(&str, Crash)]) -> Table {
    let mut by_rule: [BTreeMap<&str, Vec<usize>>; 2] = Default::default();
    for (at, (_, crash)) in crashes.iter().enumerate() {
        by_rule[0].entry(&crash.signature.sig).or_default().push(at);
        by_rule[1].entry(crash.signature.sig_coarse.as_deref().unwrap()).or_default().push(at);
    }
    let [exact, coarse] = by_rule.map(|groups| {
        let pairs = groups.into_values().flat_map(|group| {
            let pairs =
                |at: usize| group[at + 1..].iter().map(|other| (group[at], *other)).collect::<Vec<_>>();
            (0..group.len()).flat_map(pairs).collect::<Vec<_>>()
        });
        pairs.collect::<BTreeSet<(usize, usize)>>()
    });
    let signatures =
        crashes.iter().map(|(_, crash)| (crash.signature.kind.name(), crash.signature.frames.as_slice()));
    let similar: BTreeSet<(usize, usize)> =
        similar(signatures).into_iter().map(|pair| (pair.first, pair.second)).collect();
    let count = |pairs: &BTreeSet<(usize, usize)>| {
        let mut counts = Counts::default();
        for (first, second) in pairs {
            counts.add(crashes[*first].0 == crashes[*second].0);
        }
        counts
    };
    let any: BTreeSet<_> = exact.iter().chain(&coarse).chain(&similar).copied().collect();
    let mut bugs: BTreeMap<&str, usize> = BTreeMap::new();
    for (bug, _) in crashes {
        *bugs.entry(bug).or_default() += 1;
    }
    Table {
        pairs: bugs.values().map(|count| count * (count - 1) / 2).sum(),
        exact: count(&exact),
        coarse: count(&coarse),
        similar: count(&similar),
        any: count(&any),
    }
}

impl Table {
    fn rows(&self, name: &str) -> String {
        let row = |rule: &str, counts: Counts| {
            let (recall, precision) = (counts.recall(self.pairs), counts.precision());
            format!(
                "| {name} | {} | {rule} | {recall:.3} | {precision:.3} | {} |\n",
                self.pairs, counts.of_different_bugs
            )
        };
        row("exact", self.exact)
            + &row("coarse", self.coarse)
            + &row("similar", self.similar)
            + &row("any of the three", self.any)
    }
}

fn crash<'a>(bug: &'a str, kind: &str, frames: &[String]) -> Option<(&'a str, Crash)> {
    let text = log(kind, frames);
    let crash = Crash::find(&lines_of_text(&text)).unwrap_or_else(|| panic!("{bug}: no crash in\n{text}"));
    assert_eq!(crash.signature.kind.name(), kind, "{bug}");
    // Without a frame that is to blame, the line counts, which is made up here.
    (!crash.signature.corrupted).then_some((bug, crash))
}

#[test]
fn variants_of_real_stacks_are_grouped() {
    let stacks = stacks();
    let mut first: Vec<&Stack<'_>> = Vec::new();
    for stack in &stacks {
        if first.last().is_none_or(|last| last.bug != stack.bug) {
            first.push(stack);
        }
    }
    assert!(first.len() >= 200, "{}", first.len());
    let none = Changes { outlined: 0, inlined: 0, inlined_global: 0, suffix: 0, generic: 0 };
    let changes = [
        ("another compiler's suffixes and offsets", Changes { suffix: 500, ..none }),
        ("a configuration with lock debugging or sanitizers", Changes { generic: 500, ..none }),
        ("other functions inlined", Changes { outlined: 400, inlined: 150, inlined_global: 30, ..none }),
        (
            "all of these",
            Changes { outlined: 400, inlined: 150, inlined_global: 30, suffix: 300, generic: 300 },
        ),
    ];
    let mut text = "| variants | pairs of one bug | rule | recall | precision | pairs of different bugs |\n|---|--:|---|--:|--:|--:|\n".to_owned();
    for (name, changes) in &changes {
        let mut random = Random(29);
        let variants = first.iter().flat_map(|stack| {
            (0..VARIANTS)
                .filter_map(|_| crash(stack.bug, stack.kind, &variant(stack, changes, &mut random)))
                .collect::<Vec<_>>()
        });
        let table = measure(&variants.collect::<Vec<_>>());
        text += &table.rows(name);
        assert!(table.coarse.precision() > 0.98 && table.any.precision() > 0.95, "{text}");
        assert!(table.coarse.recall(table.pairs) >= table.exact.recall(table.pairs), "{text}");
        assert!(table.any.recall(table.pairs) > 0.9, "{text}");
    }
    // Several reports of one bug, of different kernels and configurations, among all others.
    let reports = stacks.iter().filter_map(|stack| {
        let frames = stack.frames.iter().filter(|frame| !frame.starts_with('~'));
        let frames: Vec<String> =
            frames.map(|frame| format!("{}+0x1/0x2", frame.trim_start_matches('-'))).collect();
        crash(stack.bug, stack.kind, &frames)
    });
    let table = measure(&reports.collect::<Vec<_>>());
    text += &table.rows("none: several reports of a bug");
    insta::assert_snapshot!(text);
}

#[test]
fn a_module_that_is_built_in_has_the_same_coarse_signature() {
    let crash = |frames: [&str; 4]| {
        let frames = frames.map(|frame| frame.replacen('+', "+0x1/0x2", 1));
        crash("a", "gpf", &frames).unwrap().1.signature
    };
    let module = crash(["ext4_bio_write+ [ext4]", "ext4_writepages+ [ext4]", "do_writepages+", "f+"]);
    for same in [
        crash(["ext4_bio_write+", "ext4_writepages+", "do_writepages+", "f+"]),
        crash(["lock_acquire+", "ext4_bio_write.isra.0+", "ext4_writepages.cold+", "do_writepages+"]),
        crash(["ext4_bio_write+ [ext4]", "ext4_writepages+ [ext4]", "g+", "h+"]),
    ] {
        assert_ne!(same.sig, module.sig);
        assert_eq!(same.sig_coarse, module.sig_coarse);
    }
    for other in [
        crash(["ext4_writepages+ [ext4]", "do_writepages+", "f+", "g+"]),
        crash(["lock_acquire+", "lock_release+", "do_writepages+", "f+"]),
    ] {
        assert_ne!(other.sig_coarse, module.sig_coarse);
    }
    // Only generic functions: they count.
    let generic = ["lock_acquire+", "lock_release+", "entry_SYSCALL_64_after_hwframe+", "f+"];
    assert_ne!(
        crash(generic).sig_coarse,
        crash(["spin_lock+", "list_add+", "entry_SYSCALL_64_after_hwframe+", "f+"]).sig_coarse
    );
}
