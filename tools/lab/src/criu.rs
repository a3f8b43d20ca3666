//! CRIU 4.1 of Debian 13, unpacked into the cache: Debian 12's version fails on newer kernels.

use crate::apt::Apt;
use crate::cache;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where its libraries are in its tree.
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// Fetches CRIU unless the cache has it, and returns the path of a script that runs it with its libraries.
pub fn criu() -> Result<PathBuf> {
    let tree = cache::directory()?.join("tools").join("criu-trixie");
    cache::once(&tree, |draft| {
        Apt::new(&["trixie"], false)?.unpack_closure(&["criu"], draft)?;
        let script = "#!/bin/sh\ntree=$(dirname \"$(readlink -f \"$0\")\")/usr\nlibraries=$tree/lib/x86_64-linux-gnu\n\
                      exec \"$libraries/ld-linux-x86-64.so.2\" --library-path \"$libraries\" \"$tree/sbin/criu\" \"$@\"\n";
        let program = draft.join("criu");
        fs::write(&program, script).context("writing the program that runs CRIU")?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).context("making it executable")
    })?;
    Ok(tree.join("criu"))
}

/// Returns the files that it takes to run CRIU in a guest, with their paths below a directory there. The script is `DIRECTORY/criu`.
pub fn files(directory: &str) -> Result<Vec<(PathBuf, String)>> {
    let script = criu()?;
    let tree = script.parent().context("CRIU has a directory")?;
    let mut names = vec!["criu".to_owned(), "usr/sbin/criu".to_owned()];
    let libraries = tree.join(LIBRARIES);
    for entry in fs::read_dir(&libraries).with_context(|| libraries.display().to_string())? {
        let entry = entry.with_context(|| libraries.display().to_string())?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Links are copied as what they lead to.
        if name.contains(".so") {
            names.push(format!("{LIBRARIES}/{name}"));
        }
    }
    Ok(names.into_iter().map(|name| at(tree, directory, &name)).collect())
}

fn at(tree: &Path, directory: &str, name: &str) -> (PathBuf, String) {
    (tree.join(name), format!("{directory}/{name}"))
}
