//! A dump in parts on disks of which one fails: nothing is lost as long as another takes what comes, and nothing is wrong
//! whenever the machine dies.

mod common {
    pub mod faulty;
    pub mod setup;
}

use common::faulty::{Faulty, Plan};
use common::setup::Setup;

/// One part on the disk that fails, one next to the vmcore.
const PARTS: [&str; 2] = ["disk/a", "b"];
const COMMAND: [&str; 8] = ["capture", "--force", "-d", "0", "-c", "lzo", "vmcore", PARTS[0]];

struct Done {
    code: Option<i32>,
    said: String,
    writes: usize,
}

/// Captures, and brings the part on the failing disk out of it, as `a`.
fn capture(setup: &Setup, faulty: &Faulty, plan: Plan) -> Done {
    for name in ["a", "b"] {
        let _ = std::fs::remove_file(setup.path(name));
    }
    faulty.fail(plan);
    let output = setup.run(&[&COMMAND[..], &[PARTS[1], "-q"]].concat());
    let (writes, _) = faulty.fail(Plan::default());
    if let Some(bytes) = faulty.take("a").filter(|bytes| !bytes.is_empty()) {
        std::fs::write(setup.path("a"), bytes).unwrap();
    }
    Done { code: output.status.code(), said: String::from_utf8(output.stderr).unwrap(), writes }
}

/// The pages that those of the files `names` that are there hold together, and whether they claim to be all. None: they are no
/// dump.
fn held(setup: &Setup, names: &[&str]) -> Option<(u64, bool)> {
    let there: Vec<_> = names.iter().copied().filter(|name| setup.path(name).exists()).collect();
    setup.right_pages_of(&there).ok()
}

/// Some of `0..count`, from the first to beyond the last.
fn some(count: usize) -> impl Iterator<Item = usize> {
    (0..count).step_by(count.div_ceil(12).max(1)).chain([count - 1])
}

#[test]
fn a_disk_that_fails_loses_nothing_while_pages_are_packed() {
    let setup = Setup::with_noise(12);
    let Some(faulty) = Faulty::mount(&setup.path("disk")) else { return };
    let all = setup.image.expected(0).len() as u64;
    let whole = capture(&setup, &faulty, Plan::default());
    assert_eq!((whole.code, held(&setup, &["a", "b"])), (Some(0), Some((all, true))), "{}", whole.said);
    for good in some(whole.writes) {
        let done = capture(&setup, &faulty, Plan { writes: Some(good), ..Plan::default() });
        let what = format!("{good} writes of {} succeed: {:?} {}", whole.writes, done.code, done.said);
        // What the part on the failed disk holds, if it is a part at all, may be held by the other too.
        let (alone, both) = (held(&setup, &["b"]).unwrap(), held(&setup, &["a", "b"]));
        if done.code == Some(0) {
            assert!(
                alone == (all, true) || both == Some((all, true)),
                "{what}; alone {alone:?}, both {both:?}"
            );
            continue;
        }
        // Only at the end, with its table or its mark, no part is left to take its pages. How many writes that is depends on
        // which part was faster; with the first it is never.
        assert!(done.code == Some(3) && good > 0, "{what}");
        assert!(done.said.contains("marked incomplete and hold"), "{what}");
        assert!(!alone.1 && alone.0 < all && !both.is_some_and(|(_, complete)| complete), "{what}");
    }
}

#[test]
fn a_capture_into_parts_that_is_killed_leaves_no_wrong_page() {
    let setup = Setup::with_noise(12);
    let Some(faulty) = Faulty::mount(&setup.path("disk")) else { return };
    let all = setup.image.expected(0).len() as u64;
    let writes = capture(&setup, &faulty, Plan::default()).writes;
    for kill in some(writes) {
        let done = capture(&setup, &faulty, Plan { kill: Some(kill + 1), ..Plan::default() });
        for names in [&["a"][..], &["b"], &["a", "b"]] {
            if let Some((pages, complete)) = held(&setup, names) {
                let is_set = names.len() == 2;
                assert!(
                    !(is_set && complete) || pages == all,
                    "killed at write {kill}: {pages} pages of {all}"
                );
                assert!(
                    done.code != Some(0) || !is_set || complete,
                    "it ended well, and is marked incomplete"
                );
            }
        }
    }
}
