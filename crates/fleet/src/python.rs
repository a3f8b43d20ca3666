//! Tables that functions in Python make: `pagehaul.fleet.table` in the Python package.

use std::env;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use pagehaul_facts::Missing;
use pagehaul_physmem::file::is_url;
use pagehaul_present::sentence;
use pagehaul_run::{ChildOutput, output_within};
use pagehaul_sandbox::{Sandbox, limit_memory};
use serde::Deserialize;

use crate::manifest::Row;
use crate::names::{MANIFEST, key_column};
use crate::one::is_facts;
use crate::place::others_stay;
use crate::stage::Stage;

/// Names the Python that has the package, where the package runs this program.
const VARIABLE: &str = "PAGEHAUL_PYTHON";
/// What Python runs. Without the package or pyarrow, the answer is what to do.
const START: &str = r#"
import sys
try:
    import pyarrow, pagehaul._extractor
except ImportError as why:
    import json
    missing = (why.name or '').split('.')[0]
    hint = {'pyarrow': 'run `pip install pyarrow` for it', 'pagehaul': 'install the wheel of pagehaul for it'}.get(missing)
    hint = f'; {hint}, or name a Python that has both by --python' if hint else ''
    print(json.dumps({'rows': 0, 'error': f'{sys.executable} lacks what tables in Python need: {why}{hint}'}))
else:
    pagehaul._extractor.main(sys.argv[1], sys.argv[2], sys.argv[3:])
"#;
/// Bytes of what the process of a function prints.
const MAX_OUTPUT: u64 = 1 << 16;
const MIB: u64 = 1 << 20;

#[derive(Debug, Args)]
#[command(next_help_heading = "Tables of Python functions")]
pub(crate) struct PythonArguments {
    /// Also make the table of a function, MODULE:NAME or FILE.py:NAME, which `pagehaul.fleet.table` of the Python package decorates. It
    /// runs in another process with the time limit of a stage. It can read every file that you can, and writes to the files of its table
    /// only
    #[arg(long = "python-table", value_name = "FUNCTION", conflicts_with = "redact")]
    pub(crate) functions: Vec<Function>,
    /// MiB of memory for such a function. drgn with the debug symbols of a kernel takes more than the default
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(64..=1 << 20))]
    python_memory: u64,
    /// Python that has the package [default: the one whose package runs this program, then python3]
    #[arg(long, value_name = "PROGRAM")]
    python: Option<PathBuf>,
}

/// A function in Python, whose name is that of its table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    /// `MODULE:NAME` or `FILE.py:NAME`.
    place: String,
    pub(crate) name: String,
}

impl FromStr for Function {
    type Err = String;

    fn from_str(place: &str) -> Result<Self, String> {
        let Some((module, name)) = place.rsplit_once(':').filter(|(module, _)| !module.is_empty()) else {
            return Err("write MODULE:NAME or FILE.py:NAME".to_owned());
        };
        // The views of `sql` have such names.
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
            return Err(format!("{name} cannot be a table: name the function by a to z and _"));
        }
        if is_own(name) {
            return Err(format!("there is a table {name} already: rename the function"));
        }
        let place = match module.ends_with(".py") {
            // The process may have another working directory.
            true => {
                format!("{}:{name}", std::path::absolute(module).map_err(|why| why.to_string())?.display())
            }
            false => place.to_owned(),
        };
        Ok(Self { place, name: name.to_owned() })
    }
}

/// Whether `extract` makes a table of this name without Python.
pub(crate) fn is_own(table: &str) -> bool {
    table == MANIFEST
        || key_column(table) == "run_id"
        || Stage::value_variants().iter().any(|stage| stage.tables().contains(&table))
}

/// What a function made.
#[derive(Deserialize)]
struct Made {
    rows: usize,
    error: Option<String>,
}

impl PythonArguments {
    /// Runs all functions on a dump. `row` has what they made, or why they did not.
    pub(crate) fn extract(
        &self,
        program: &Path,
        dump: &[PathBuf],
        to: &Path,
        limit: Duration,
        row: &mut Row,
    ) {
        let stay = row.missing.iter().find(|missing| others_stay(&missing.reason)).cloned();
        for function in &self.functions {
            let reason = if dump.first().is_some_and(|path| is_facts(path)) {
                Err("facts have no pages: this table needs the dump".to_owned())
            } else if let Some(stay) = &stay {
                Err(stay.reason.clone())
            } else {
                self.run(program, function, dump, to, limit).map_err(|why| sentence(why.chain()))
            };
            match reason {
                Ok(0) => {}
                Ok(rows) => row.tables.push((function.name.clone(), rows)),
                Err(reason) => row.missing.push(Missing { what: function.name.clone(), reason }),
            }
        }
    }

    fn run(
        &self,
        program: &Path,
        function: &Function,
        dump: &[PathBuf],
        to: &Path,
        limit: Duration,
    ) -> anyhow::Result<usize> {
        // All that it can write to: not the other tables.
        let table = to.join(&function.name);
        fs::create_dir_all(&table).with_context(|| format!("cannot create {}", table.display()))?;
        // What the function leaves is removed.
        let scratch = tempfile::tempdir_in(to).context("cannot create a directory for temporary files")?;
        let python = self.python.clone().or_else(|| env::var_os(VARIABLE).map(PathBuf::from));
        let mut command = Command::new(program);
        command.env("TMPDIR", scratch.path());
        // Other allocators of pyarrow reserve more memory than the limit before they need it.
        command.env("ARROW_DEFAULT_MEMORY_POOL", "system");
        command.arg("extract-python").arg("--to").arg(to).arg("--function").arg(&function.place);
        command.arg("--memory").arg(self.python_memory.to_string());
        command.arg("--python").arg(python.unwrap_or_else(|| "python3".into())).arg("--").args(dump);
        let ChildOutput { bytes, status } = output_within(&mut command, limit, MAX_OUTPUT)?;
        let made: Made = serde_json::from_slice(&bytes).map_err(|_| {
            let ended = status.map_or_else(String::new, |status| format!(" ({status})"));
            let bytes = String::from_utf8_lossy(&bytes);
            let said = bytes.trim();
            anyhow::anyhow!(
                "the process that runs it failed{ended}{}{said}",
                if said.is_empty() { "" } else { ": " }
            )
        })?;
        match made.error {
            Some(error) => bail!(error),
            None => Ok(made.rows),
        }
    }
}

/// Arguments of the process that becomes Python.
#[derive(Debug, Args)]
pub(crate) struct ProgramArguments {
    #[arg(long)]
    to: PathBuf,
    #[arg(long)]
    function: String,
    #[arg(long)]
    memory: u64,
    #[arg(long)]
    python: PathBuf,
    dumps: Vec<PathBuf>,
}

/// Becomes Python, confined.
pub(crate) fn run(arguments: &ProgramArguments) -> anyhow::Result<ExitCode> {
    limit_memory(arguments.memory.saturating_mul(MIB));
    // What an old kernel cannot enforce is in the guide. The package itself fetches URLs.
    let network = arguments.dumps.iter().any(|path| is_url(path));
    let name = arguments.function.rsplit(':').next().unwrap_or_default();
    let confined = Sandbox::reading(&arguments.dumps)
        .writing_below(arguments.to.join(name))
        .writing_below(env::temp_dir())
        .enter_for_program(network);
    if let Err(why) = confined {
        return failed(&why.to_string());
    }
    let mut command = Command::new(&arguments.python);
    command.args(["-c", START]).arg(&arguments.to).arg(&arguments.function);
    if !network {
        // Credentials of object stores, tokens of build systems.
        let kept = env::vars_os().filter(|(name, _)| is_harmless(&name.to_string_lossy()));
        command.env_clear().envs(kept);
    }
    let error = command.args(&arguments.dumps).exec();
    failed(&format!("cannot run {}: {error}; name a Python by --python", arguments.python.display()))
}

/// Prints why no table was made.
fn failed(why: &str) -> anyhow::Result<ExitCode> {
    crate::console::say(&serde_json::json!({ "rows": 0, "error": why }).to_string())?;
    Ok(ExitCode::FAILURE)
}

/// Whether a function gets a variable of the environment when it has no network: what Python and libraries need.
fn is_harmless(name: &str) -> bool {
    ["PYTHON", "PAGEHAUL_", "LC_", "LD_", "DRGN", "DEBUGINFOD_", "VIRTUAL_ENV", "PYENV", "ARROW_"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
        || ["PATH", "HOME", "LANG", "TMPDIR", "TZ", "TZDIR", "OMP_NUM_THREADS"].contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_places_whose_names_can_be_tables() {
        let function: Function = "team.tables:open_files".parse().unwrap();
        assert_eq!(
            (function.place.as_str(), function.name.as_str()),
            ("team.tables:open_files", "open_files")
        );
        let file: Function = "tables.py:sockets".parse().unwrap();
        assert!(file.place.starts_with('/') && file.place.ends_with("/tables.py:sockets"), "{file:?}");
        for wrong in [
            "",
            "sockets",
            ":sockets",
            "m:",
            "m:Sockets",
            "m:a.b",
            "m:a/b",
            "m:tasks",
            "m:manifest",
            "m:latency_hist",
        ] {
            assert!(wrong.parse::<Function>().is_err(), "{wrong}");
        }
    }
}
