//! Confines commands that parse files from elsewhere: a dump or trace may be crafted to exploit the parser.
//!
//! From [`Sandbox::enter`] on, the process can open only the files that the command line names (and `/proc`, `/sys` and the
//! time zone for reading), cannot start programs, and cannot use the network or change the machine. Kernels without Landlock
//! (before 5.13) or seccomp run the command with what they have.

mod files;
mod system_calls;

use std::path::{Path, PathBuf};

/// What a command may still do. By default no file can be opened: files that are open stay open.
#[derive(Debug, Default)]
pub(crate) struct Sandbox {
    inputs: Vec<PathBuf>,
    outputs: Vec<PathBuf>,
}

impl Sandbox {
    /// A sandbox in which `inputs` can be read.
    pub(crate) fn reading<'a>(inputs: impl IntoIterator<Item = &'a PathBuf>) -> Self {
        Self { inputs: inputs.into_iter().cloned().collect(), outputs: Vec::new() }
    }

    /// Also allows writing to `outputs`, and to new files next to them.
    pub(crate) fn writing<'a>(mut self, outputs: impl IntoIterator<Item = &'a PathBuf>) -> Self {
        self.outputs.extend(outputs.into_iter().cloned());
        self
    }

    /// Confines the process, for good. Must precede the first thread, since Landlock binds only its caller and later threads.
    ///
    /// URLs among the inputs are fetched by another process, which is not confined and parses nothing.
    pub(crate) fn enter(self) {
        #[cfg(feature = "remote")]
        if let Err(error) = pagehaul_remote::fetch_in_another_process(&self.inputs) {
            tell!("pagehaul: cannot start the process that fetches URLs: {error}");
        }
        files::restrict(&self.inputs, &self.outputs);
        system_calls::restrict();
    }
}

/// The directory of a file.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::net::TcpListener;
    use std::process::Command;

    use super::*;

    /// Set in the process that [`confined`] confines.
    const DIRECTORY: &str = "PAGEHAUL_TEST_SANDBOX";

    #[test]
    fn only_named_files_are_within_reach() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["input", "secret"] {
            fs::write(directory.path().join(name), name).unwrap();
        }
        fs::create_dir(directory.path().join("out")).unwrap();
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sandbox::tests::confined", "--ignored", "--nocapture"])
            .env(DIRECTORY, directory.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    }

    #[test]
    #[ignore = "confines its process: run by only_named_files_are_within_reach"]
    fn confined() {
        let directory = PathBuf::from(std::env::var_os(DIRECTORY).expect("run by the other test"));
        let (input, output) = (directory.join("input"), directory.join("out/report"));
        Sandbox::reading([&input]).writing([&output]).enter();
        assert_eq!(fs::read_to_string(&input).unwrap(), "input");
        fs::write(&output, "report").unwrap();
        fs::rename(&output, directory.join("out/renamed")).unwrap();
        let denied = |what: &str, result: std::io::Result<()>| {
            let error = result.expect_err(what);
            assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied, "{what}: {error}");
        };
        denied("socket", TcpListener::bind("127.0.0.1:0").map(drop));
        denied("exec", Command::new("true").status().map(drop));
        // SAFETY: no pointers; the calling thread only reads its own restriction.
        let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, 1) };
        if abi < 1 {
            return; // A kernel without Landlock: the system calls are all there is.
        }
        denied("read", File::open(directory.join("secret")).map(drop));
        denied("write", fs::write(directory.join("new"), "new"));
        denied("overwrite", fs::write(&input, "other"));
        denied("remove", fs::remove_file(&input));
    }
}
