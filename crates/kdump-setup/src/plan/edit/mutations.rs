//! Edits of the distributions' files, changed at random, judged by a shell.
//!
//! The files have the syntax and the settings of Debian's kdump-tools and grub, Fedora's kdump-utils and grub, and openSUSE's kdump.
//! None has a redirection or an absolute path of a program: a shell that runs a changed file writes nothing.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use proptest::prelude::*;

use super::*;

/// A file, a variable, and whether its words are replaced, or all of it.
const EDITS: &[(&str, &str, bool)] = &[
    (include_str!("../../../tests/files/debian-kdump-tools"), "KDUMP_CMDLINE_APPEND", true),
    (include_str!("../../../tests/files/debian-kdump-tools"), "USE_KDUMP", false),
    (include_str!("../../../tests/files/debian-kdump-tools"), "MAKEDUMP_ARGS", false),
    (include_str!("../../../tests/files/debian-grub"), "GRUB_CMDLINE_LINUX_DEFAULT", true),
    (include_str!("../../../tests/files/debian-grub"), "GRUB_CMDLINE_LINUX", true),
    (include_str!("../../../tests/files/debian-kdump-tools.cfg"), "GRUB_CMDLINE_LINUX_DEFAULT", true),
    (include_str!("../../../tests/files/fedora-grub"), "GRUB_CMDLINE_LINUX", true),
    (include_str!("../../../tests/files/fedora-sysconfig-kdump"), "KDUMP_COMMANDLINE_APPEND", true),
    (include_str!("../../../tests/files/suse-sysconfig-kdump"), "KDUMP_CPUS", false),
    (include_str!("../../../tests/files/suse-sysconfig-kdump"), "KDUMP_DUMPFORMAT", false),
];

const NEW: &str = "nr_cpus=4";

fn edit(text: &[u8], key: &str, by_words: bool) -> Edited {
    let new = [NEW.to_owned()];
    let absent = format!("${key} {NEW}");
    let words = Wanted::Words { old: &["nr_cpus=", "crashkernel="], new: &new, absent: &absent };
    assign(text, key, if by_words { words } else { Wanted::Value("-F $x \"4\"") })
}

/// Runs a shell that finds no program, with a script as its input.
fn shell(arguments: &[&str], input: &[u8]) -> (bool, Vec<u8>) {
    let directory = tempfile::tempdir().unwrap();
    let mut run = Command::new("/bin/sh");
    run.args(arguments).env_clear().env("PATH", "/nonexistent").current_dir(directory.path());
    run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = run.spawn().unwrap();
    // A script that exits early does not read the rest.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    (output.status.success(), output.stdout)
}

/// The variables of the files as a shell has them after it has run one. `None` if it does not come to the end.
fn variables(text: &[u8]) -> Option<BTreeMap<String, Vec<u8>>> {
    // The shell's number is another each time.
    if text.windows(2).any(|bytes| bytes == b"$$") {
        return None;
    }
    let mut names: Vec<String> = Vec::new();
    for (file, ..) in EDITS {
        let script = Script::parse(file.as_bytes()).unwrap();
        names.extend(script.assignments().map(|found| found.name));
    }
    names.sort();
    names.dedup();
    let mut script = text.to_vec();
    // Only what is printed after this counts.
    script.extend(b"\nprintf '\\001'\n");
    for name in &names {
        script.extend(format!("printf '%s\\001' \"${name}\"\n").into_bytes());
    }
    let (_, out) = shell(&[], &script);
    let values: Vec<&[u8]> = out.split(|byte| *byte == 1).skip(1).collect();
    (values.len() == names.len() + 1)
        .then(|| names.into_iter().zip(values).map(|(name, value)| (name, value.to_vec())).collect())
}

/// Fails unless an edit does what it promises. Returns whether it was made.
fn judge(text: &[u8], key: &str, by_words: bool) -> Result<bool, TestCaseError> {
    let Ok(edited) = edit(text, key, by_words) else { return Ok(false) };
    let again = edit(&edited, key, by_words);
    prop_assert_eq!(again.as_ref(), Ok(&edited), "not idempotent");
    prop_assert_eq!(shell(&["-n"], text).0, shell(&["-n"], &edited).0, "sh -n");
    let (Some(mut before), Some(mut after)) = (variables(text), variables(&edited)) else {
        // Such as an unknown command of a shell that exits at once.
        return Ok(true);
    };
    let (old, new) = (before.remove(key).unwrap(), after.remove(key).unwrap());
    prop_assert_eq!(before, after, "another variable");
    let words = |value: &[u8]| -> Vec<String> {
        let value = String::from_utf8_lossy(value).into_owned();
        value.split([' ', '\t', '\n']).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    if by_words {
        let is_old = |word: &&String| word.starts_with("nr_cpus=") || word.starts_with("crashkernel=");
        let (old, new) = (words(&old), words(&new));
        prop_assert_eq!(new.iter().filter(is_old).collect::<Vec<_>>(), [NEW]);
        let others = |words: &[String]| -> Vec<String> {
            words.iter().filter(|word| !is_old(word)).cloned().collect()
        };
        prop_assert_eq!(others(&old), others(&new));
    } else {
        prop_assert_eq!(String::from_utf8_lossy(&new), "-F $x \"4\"");
    }
    Ok(true)
}

#[test]
fn the_distributions_files_are_edited() {
    for (text, key, by_words) in EDITS {
        assert!(judge(text.as_bytes(), key, *by_words).unwrap(), "{key}");
        let edited = edit(text.as_bytes(), key, *by_words).unwrap();
        let new = new_lines(text.as_bytes(), &edited);
        assert_eq!(new.len(), 1, "{new:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn an_edit_of_any_file_is_one_value_or_refused(
        (text, key, by_words) in prop::sample::select(EDITS),
        changes in prop::collection::vec(
            (any::<prop::sample::Index>(), 0..6_usize, prop::sample::select(&[
                "\"", "'", "\\", "\n", "\\\n", "$", "$(", ")", "`", "${", "}", " ", "#", "=", ";", "&", "|", "(", "\r\n", "~",
                "$x", "\\\"", "if :; then ", "\nfi\n", "+=", "export ", "unset ", "return\n", "nr_cpus=8 ", "é", "\u{0}",
            ][..])),
            0..6,
        ),
        in_latin1: bool,
    ) {
        let mut text = text.as_bytes().to_vec();
        for (at, removed, inserted) in changes {
            let at = at.index(text.len() + 1);
            let end = (at + removed).min(text.len());
            text.splice(at..end, inserted.bytes());
        }
        if in_latin1 {
            text.iter_mut().filter(|byte| **byte == b'w').for_each(|byte| *byte = 0xe9);
        }
        judge(&text, key, by_words)?;
    }
}

#[test]
fn a_continued_line_may_begin_anywhere() {
    for (text, key, by_words) in EDITS {
        for at in 0..=text.len() {
            let mut text = text.as_bytes().to_vec();
            text.splice(at..at, *b"\\\n");
            if let Err(why) = judge(&text, key, *by_words) {
                panic!(
                    "{key}, at byte {at}: {why}: {}",
                    String::from_utf8_lossy(&text[at.saturating_sub(30)..(at + 30).min(text.len())])
                );
            }
        }
    }
}
