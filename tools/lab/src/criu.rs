//! CRIU 4.1 of Debian 13, unpacked into the cache: Debian 12's version fails on newer kernels.

use crate::apt::Apt;
use crate::cache;
use anyhow::{Context, Result};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

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
