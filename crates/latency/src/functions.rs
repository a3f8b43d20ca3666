//! Finds the functions that names and globs match.

use pagehaul_trace::Symbols;
use pagehaul_trace::live::Tracefs;

use crate::error::LatencyError;

/// Upper bound of probes: each costs kernel memory and setup time.
pub(crate) const MAX_FUNCTIONS: usize = 1000;

/// Returns whether `name` matches a glob of `*` and `?`.
pub fn matches_glob(glob: &str, name: &str) -> bool {
    let (glob, name) = (glob.as_bytes(), name.as_bytes());
    let (mut g, mut n) = (0, 0);
    // Position of the last star, and of the name when it was met.
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match glob.get(g) {
            Some(b'*') => {
                retry = Some((g, n));
                g += 1;
            }
            Some(c) if *c == b'?' || Some(c) == name.get(n) => {
                g += 1;
                n += 1;
            }
            _ => match retry {
                Some((star, at)) => {
                    retry = Some((star, at + 1));
                    g = star + 1;
                    n = at + 1;
                }
                None => return false,
            },
        }
    }
    glob.get(g..).is_some_and(|rest| rest.iter().all(|c| *c == b'*'))
}

/// Returns the functions that names and globs match, without duplicates, in the order of the kernel's list.
///
/// # Errors
/// [`LatencyError::NoFunction`] if a pattern matches none, [`LatencyError::TooMany`].
pub fn expand(tracefs: &Tracefs, patterns: &[String]) -> Result<Vec<String>, LatencyError> {
    let list = tracefs.read("available_filter_functions").or_else(|error| {
        // Without dynamic ftrace: the functions that kprobes accept.
        let names: String = Symbols::of_kernel().functions().map(|name| format!("{name}\n")).collect();
        if names.is_empty() { Err(error) } else { Ok(names) }
    })?;
    let found = choose(&list, patterns)?;
    if found.len() > MAX_FUNCTIONS {
        let (patterns, count) = (patterns.join(", "), found.len());
        return Err(LatencyError::TooMany { patterns, count, max: MAX_FUNCTIONS });
    }
    Ok(found)
}

fn choose(list: &str, patterns: &[String]) -> Result<Vec<String>, LatencyError> {
    let mut used = vec![false; patterns.len()];
    let mut found: Vec<String> = Vec::new();
    // The module of a function follows in brackets.
    for name in list.lines().filter_map(|line| line.split_whitespace().next()) {
        let mut wanted = false;
        for (used, pattern) in used.iter_mut().zip(patterns) {
            if matches_glob(pattern, name) {
                *used = true;
                wanted = true;
            }
        }
        if wanted && !found.iter().any(|earlier| earlier == name) {
            found.push(name.to_owned());
        }
    }
    match used.iter().zip(patterns).find(|(used, _)| !**used) {
        Some((_, pattern)) => {
            // Partial copies by the compiler: name.part.0, name.isra.0, name.constprop.0.
            let copy = list
                .lines()
                .filter_map(|line| line.split_whitespace().next())
                .find(|name| name.strip_prefix(pattern.as_str()).is_some_and(|rest| rest.starts_with('.')));
            let why = match copy {
                Some(copy) => format!("the compiler left only {copy}"),
                None => {
                    "it may be inlined, marked notrace, in a module that is not loaded, or have another name"
                        .into()
                }
            };
            Err(LatencyError::NoFunction { pattern: pattern.clone(), why })
        }
        None => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_as_in_a_shell() {
        for (glob, name, expected) in [
            ("vfs_read", "vfs_read", true),
            ("vfs_read", "vfs_readv", false),
            ("vfs_*", "vfs_read", true),
            ("*_node", "purge_vmap_node", true),
            ("*a*a*", "banana", true),
            ("?fs_*", "vfs_", true),
            ("*", "", true),
            ("?", "", false),
            ("a*b*c", "a.b.b.d", false),
        ] {
            assert_eq!(matches_glob(glob, name), expected, "{glob} {name}");
        }
    }

    #[test]
    fn every_pattern_has_to_mean_something() {
        let list = "vfs_read\nvfs_write\next4_read [ext4]\nvfs_read\n";
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert_eq!(choose(list, &words(&["*_read"])).unwrap(), ["vfs_read", "ext4_read"]);
        let error = choose(list, &words(&["vfs_write", "vfs_seek"])).unwrap_err().to_string();
        assert!(error.starts_with("no function vfs_seek can be traced"), "{error}");
        let error = choose("walk.part.0\n", &words(&["walk"])).unwrap_err().to_string();
        assert!(error.contains("only walk.part.0"), "{error}");
    }
}
