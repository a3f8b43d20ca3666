//! kexec(8) for arm64 guests: Debian's arm64 kernels lack kexec_file_load (CONFIG_KEXEC_FILE), and kexec_load takes a program
//! that edits the device tree.

use crate::apt::Apt;
use crate::{Architecture, cache};
use anyhow::{Context, Result};
use lab_guest::plan;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const SUITE: &str = "bookworm";
const LOADER: &str = "ld-linux-aarch64.so.1";
/// Directories of libraries in the packages. The loader looks for them in the first.
const LIBRARIES: [&str; 2] = ["lib/aarch64-linux-gnu", "usr/lib/aarch64-linux-gnu"];

/// Returns the files of the program, each with its path in the guest.
pub fn files() -> Result<Vec<(String, Vec<u8>)>> {
    let tree = cache::directory()?.join("tools").join("kexec-arm64");
    cache::once(&tree, |draft| {
        let apt = Apt::with_packages_for(Architecture::Arm64, &[SUITE], false)?;
        apt.unpack_closure(&["kexec-tools"], draft).map(drop)
    })
    .context("fetching kexec-tools")?;
    let mut libraries = BTreeMap::new();
    for directory in LIBRARIES {
        let Ok(entries) = fs::read_dir(tree.join(directory)) else { continue };
        let names =
            entries.flatten().filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())));
        libraries.extend(names.filter(|(name, _)| name.contains(".so")));
    }
    let mut files = Vec::new();
    add(plan::KEXEC.to_owned(), &tree.join("sbin/kexec"), &mut libraries, &mut files)?;
    Ok(files)
}

/// Adds a file and the libraries that it names, which are taken out of `libraries`.
fn add(
    to: String,
    from: &Path,
    libraries: &mut BTreeMap<String, PathBuf>,
    files: &mut Vec<(String, Vec<u8>)>,
) -> Result<()> {
    let content = fs::read(from).with_context(|| from.display().to_string())?;
    let needed: Vec<String> = libraries.keys().filter(|name| names(&content, name)).cloned().collect();
    files.push((to, content));
    for name in needed {
        let Some(path) = libraries.remove(&name) else { continue };
        let directory = if name == LOADER { "lib" } else { LIBRARIES[0] };
        add(format!("/{directory}/{name}"), &path, libraries, files)?;
    }
    Ok(())
}

/// Returns whether a program has this library's name as a string, as its dynamic section has those that it needs.
fn names(content: &[u8], library: &str) -> bool {
    let string = [b"\0", library.as_bytes(), b"\0"].concat();
    content.windows(string.len()).any(|window| window == string)
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn libraries_are_named_by_whole_strings() {
        let program = b"\x7fELF..\0libz.so.1\0libc.so.6\0";
        assert!(names(program, "libz.so.1") && names(program, "libc.so.6"));
        assert!(!names(program, "z.so.1") && !names(program, "libc.so"));
    }
}
