//! `pagehaul-fleet sql`: queries by DuckDB, which is not part of this program (docs/schema.md says why).

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail, ensure};
use clap::Args;
use pagehaul_facts::SCHEMA_VERSION;
use pagehaul_present::{printable_json, printable_lines};

use crate::names::key_column;
use crate::read::files;

/// Runs a query in DuckDB's Python package. Arguments: the views, the query, the format.
const PYTHON: &str = r#"
import sys
try:
    import duckdb
except ImportError:
    sys.exit('no module duckdb')
views, query, kind = sys.argv[1:]
connection = duckdb.connect()
try:
    connection.execute(views)
    if kind == 'json':
        query = query.rstrip().rstrip(';')
        connection.execute('COPY (' + query + '\n) TO \'/dev/stdout\' (FORMAT json, ARRAY true)')
    else:
        relation = connection.sql(query)
        if relation is not None:
            relation.show(max_rows=1000000, max_width=1000000)
except duckdb.Error as error:
    sys.exit(str(error))
"#;

/// Query the tables of `extract` by SQL, with DuckDB
///
/// Each table is a view, in which each crash is once. DuckDB is its command line program, or the package `duckdb` of Python. --views prints
/// the statements that make the views, for a DuckDB session; other engines read the files as they are.
///
/// Exit status: 0, the result was printed; 1, there are no tables, no DuckDB, or the query fails; 2, the command line is wrong.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  pagehaul-fleet sql tables 'SELECT kind, release, count(*) FROM dumps GROUP BY ALL ORDER BY 3 DESC'
  pagehaul-fleet sql tables --json 'SELECT crash_id, comm FROM tasks WHERE crashing'
  pagehaul-fleet sql tables --views > views.sql")]
pub(crate) struct SqlArguments {
    /// Directory of the tables
    directory: PathBuf,
    /// The query
    #[arg(required_unless_present = "views")]
    query: Option<String>,
    /// Print the statements that make the views, instead of a query's result
    #[arg(long, conflicts_with_all = ["query", "json", "engine"])]
    views: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// DuckDB, or a Python that has it [default: duckdb, then python3]
    #[arg(long, value_name = "PROGRAM")]
    engine: Option<PathBuf>,
}

pub(crate) fn run(arguments: &SqlArguments) -> anyhow::Result<ExitCode> {
    let views = views(&arguments.directory)?;
    let Some(query) = arguments.query.as_ref().filter(|_| !arguments.views) else {
        crate::console::say(&views)?;
        return Ok(ExitCode::SUCCESS);
    };
    let candidates = match &arguments.engine {
        Some(engine) => vec![engine.clone()],
        None => vec!["duckdb".into(), "python3".into()],
    };
    for engine in &candidates {
        let Some(text) = query_by(engine, &views, query, arguments.json)? else { continue };
        let escape = if arguments.json { printable_json } else { printable_lines };
        crate::console::say(&escape(&text))?;
        return Ok(ExitCode::SUCCESS);
    }
    bail!("DuckDB is not installed: run `pip install duckdb`, or name a program by --engine");
}

/// Runs a query. `None` if the program is not there, or is a Python without DuckDB.
fn query_by(engine: &Path, views: &str, query: &str, json: bool) -> anyhow::Result<Option<String>> {
    let name = engine.file_name().unwrap_or_default().to_string_lossy();
    let mut command = Command::new(engine);
    if name.starts_with("python") {
        command.args(["-c", PYTHON, views, query, if json { "json" } else { "text" }]);
    } else {
        command.args(["-bail", "-no-init", if json { "-json" } else { "-box" }, "-c", views, "-c", query]);
    }
    let output = match command.stdin(Stdio::null()).output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        output => output.with_context(|| format!("cannot run {}", engine.display()))?,
    };
    let said = String::from_utf8_lossy(&output.stderr);
    if said.trim_end().ends_with("no module duckdb") {
        return Ok(None);
    }
    let why = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("the query failed");
    ensure!(output.status.success(), "{}: {why}", engine.display());
    Ok(Some(String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Statements that make a view of each table.
fn views(directory: &Path) -> anyhow::Result<String> {
    let context = || format!("cannot read {}", directory.display());
    let root = fs::canonicalize(directory).with_context(context)?;
    let root = root.to_str().with_context(|| format!("{}: the path is not UTF-8", directory.display()))?;
    ensure!(
        !root.contains(['*', '?', '[', ']']),
        "{root}: DuckDB takes *, ?, [ and ] in a path for patterns; rename it"
    );
    let mut views = String::new();
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).with_context(context)? {
        names.push(entry.with_context(context)?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    for name in names.iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
    {
        if files(directory, name)?.is_empty() {
            continue;
        }
        let key = key_column(name);
        let pattern = format!("{root}/{name}/v={SCHEMA_VERSION}/**/*.parquet").replace('\'', "''");
        // A crash that two files have counts in the one whose name comes first.
        writeln!(
            views,
            "CREATE VIEW {name} AS WITH rows AS (SELECT * EXCLUDE v FROM read_parquet('{pattern}', union_by_name = true, \
             hive_partitioning = true, filename = 'file')) SELECT * EXCLUDE file FROM rows WHERE ({key}, file) IN \
             (SELECT ({key}, min(file)) FROM rows GROUP BY {key});"
        )?;
    }
    ensure!(!views.is_empty(), "{} has no tables: run pagehaul-fleet extract", directory.display());
    Ok(views)
}
