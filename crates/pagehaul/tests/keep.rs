//! `--keep-cgroup`, `--keep-pid` and `--drop-file-systems`: what is refused. Owners are kept in real kernels only
//! (`tools/lab/tests/keep.rs`), and by rules in `crates/capture/tests/owners.rs`.

mod common {
    pub mod setup;
}

use common::setup::Setup;

#[test]
fn what_cannot_be_followed_is_an_error_before_anything_is_written() {
    let setup = Setup::crashed();
    let without_types = Setup::small();
    for command in ["capture", "convert"] {
        for options in [["--keep-pid", "20"], ["--keep-cgroup", "/a"], ["--drop-file-systems", "xfs"]] {
            let arguments = [command, "-q", options[0], options[1], "vmcore", "dump"];
            // The synthetic kernel has no types of files.
            let said = setup.fails(&arguments, 1);
            let expected = format!("{} cannot be followed, and nothing is written", options[0]);
            assert!(said.contains(&expected) && said.contains("the layout of inodes"), "{said}");
            let said = without_types.fails(&arguments, 1);
            assert!(said.contains(&expected), "{said}");
            for setup in [&setup, &without_types] {
                assert!(!setup.path("dump").exists());
            }
        }
    }
}

#[test]
fn a_level_without_user_space_has_nothing_to_choose_from() {
    let setup = Setup::crashed();
    for command in ["capture", "convert"] {
        let said = setup.fails(&[command, "-d", "31", "--keep-pid", "20", "vmcore", "dump"], 2);
        assert!(said.contains("--keep-pid would keep nothing"), "{said}");
        let said = setup.fails(&[command, "--keep-pid", "twenty", "vmcore", "dump"], 2);
        assert!(said.contains("--keep-pid"), "{said}");
        // A source without it has none, either.
        if !setup.path("small").exists() {
            setup.succeeds(&["convert", "-q", "-d", "31", "vmcore", "small"]);
        }
        let said = setup.fails(&[command, "--keep-cgroup", "/a", "small", "dump"], 1);
        assert!(said.contains("the source was made at dump level 31"), "{said}");
        // To leave out more of what is left out is no mistake, but it must be known.
        let said = setup.fails(&[command, "-d", "31", "--drop-file-systems", "xfs", "vmcore", "dump"], 1);
        assert!(said.contains("cannot be followed"), "{said}");
        assert!(!setup.path("dump").exists());
    }
}
