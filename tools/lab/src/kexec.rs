//! kexec(8) for arm64 and riscv64 guests: Debian's kernels for them lack kexec_file_load (CONFIG_KEXEC_FILE), and kexec_load takes a
//! program that edits the device tree.

use crate::apt::Apt;
use crate::{Architecture, cache};
use anyhow::{Context, Result};
use lab_guest::plan;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the files of the program, each with its path in the guest. None where kernels load the capture kernel themselves.
pub fn files(architecture: Architecture) -> Result<Vec<(String, Vec<u8>)>> {
    let suite = match architecture {
        Architecture::X86_64 => return Ok(Vec::new()),
        Architecture::Arm64 => "bookworm",
        // The first suite that has kexec-tools for it.
        Architecture::Riscv64 => "sid",
    };
    let tree = cache::directory()?.join("tools").join(format!("kexec-{}", architecture.debian()));
    cache::once(&tree, |draft| {
        let apt = Apt::with_packages_for(architecture, &[suite], false)?;
        apt.unpack_closure(&["kexec-tools"], draft).map(drop)
    })
    .context("fetching kexec-tools")?;
    let mut libraries = BTreeMap::new();
    for directory in library_directories(architecture) {
        let Ok(entries) = fs::read_dir(tree.join(directory)) else { continue };
        let names =
            entries.flatten().filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())));
        libraries.extend(names.filter(|(name, _)| name.contains(".so")));
    }
    let programs = ["sbin/kexec", "usr/sbin/kexec"].map(|path| tree.join(path));
    let program = programs.iter().find(|path| path.exists()).context("kexec-tools has no kexec")?;
    let mut files = Vec::new();
    add(architecture, plan::KEXEC.to_owned(), program, &mut libraries, &mut files)?;
    Ok(files)
}

/// Returns the directories of libraries in the packages. The loader looks for them in the first.
fn library_directories(architecture: Architecture) -> [String; 2] {
    ["lib", "usr/lib"].map(|place| format!("{place}/{}", architecture.triplet()))
}

/// Adds a file and the libraries that it names, which are taken out of `libraries`.
fn add(
    architecture: Architecture,
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
        let [libraries_of_guest, _] = library_directories(architecture);
        let directory = if name == architecture.loader() { "lib" } else { &libraries_of_guest };
        add(architecture, format!("/{directory}/{name}"), &path, libraries, files)?;
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
