//! CRIU 4.1 of Debian 13, unpacked into the cache: Debian 12's version fails on newer kernels.

use crate::apt::Apt;
use crate::{Architecture, cache};
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Fetches CRIU unless the cache has it, and returns the path of a script that runs it with its libraries.
pub fn criu(architecture: Architecture) -> Result<PathBuf> {
    let name = match architecture {
        Architecture::X86_64 => "criu-trixie".to_owned(),
        other => format!("criu-trixie-{}", other.debian()),
    };
    let tree = cache::directory()?.join("tools").join(name);
    cache::once(&tree, |draft| {
        Apt::with_packages_for(architecture, &["trixie"], false)?.unpack_closure(&["criu"], draft)?;
        let (libraries, loader) = (libraries(architecture), architecture.loader());
        let script = format!(
            "#!/bin/sh\ntree=$(dirname \"$(readlink -f \"$0\")\")\nlibraries=$tree/{libraries}\n\
             exec \"$libraries/{loader}\" --library-path \"$libraries\" \"$tree/usr/sbin/criu\" \"$@\"\n"
        );
        let program = draft.join("criu");
        fs::write(&program, script).context("writing the program that runs CRIU")?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).context("making it executable")
    })?;
    Ok(tree.join("criu"))
}

/// Where its libraries are in its tree.
fn libraries(architecture: Architecture) -> String {
    format!("usr/lib/{}", architecture.triplet())
}

/// Returns the files that it takes to run CRIU in a guest, with their paths below a directory there. The script is `DIRECTORY/criu`.
pub fn files(architecture: Architecture, directory: &str) -> Result<Vec<(PathBuf, String)>> {
    let script = criu(architecture)?;
    let tree = script.parent().context("CRIU has a directory")?;
    let mut names = vec!["criu".to_owned(), "usr/sbin/criu".to_owned()];
    let below = libraries(architecture);
    let libraries = tree.join(&below);
    for entry in fs::read_dir(&libraries).with_context(|| libraries.display().to_string())? {
        let entry = entry.with_context(|| libraries.display().to_string())?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Links are copied as what they lead to.
        if name.contains(".so") {
            names.push(format!("{below}/{name}"));
        }
    }
    Ok(names.into_iter().map(|name| at(tree, directory, &name)).collect())
}

fn at(tree: &Path, directory: &str, name: &str) -> (PathBuf, String) {
    (tree.join(name), format!("{directory}/{name}"))
}
