//! pagehaul-core in a Debian 13 guest with systemd-coredump: processes and a service crash, with systemd-coredump, with the package
//! installed, and with it removed.

use crate::cache;
use crate::kdump_tools::{Boot, Guest, IMAGE, RELEASES, Release, SILENCE, UNIT, make_image};
use crate::kernels::Kernel;
use crate::tools::Tools;
use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const GUEST: &str = include_str!("../core-handler/guest.py");
const SUBJECT: &str = include_str!("../core-handler/subject.py");
const RUN: &str = "exec python3 /lab/guest.py\n";
const PACKAGES: [&str; 4] = ["systemd-coredump", "gdb", "python3", "zstd"];
/// Room for cores of 4 GiB, which systemd-coredump writes before it compresses them.
const SIZE: &str = "24G";
/// Without ERMS: QEMU translates `rep movsb` to a loop over bytes, and the kernel would copy several times slower than programs.
const CPU: &str = "Haswell-noTSX,-erms";
const LIMIT: Duration = Duration::from_secs(3 * 60 * 60);

/// Where each takes cores.
const SYSTEMD: &str = "|/usr/lib/systemd/systemd-coredump ";
const OURS: &str = "|/usr/lib/pagehaul/core-handler ";
/// Bytes that each handler of a storm may take whatever the budget is: `least` of crates/process/src/handler/mod.rs with two threads.
const LEAST: u64 = 12 << 20;
/// Anonymous memory of a handler besides its buffer: stacks, zstd's tables, packed tiles.
const OTHER: u64 = 40 << 20;
/// Fields of systemd-coredump's entries that the handler writes as well; what else they have is reported.
const FIELDS: [&str; 17] = [
    "CGROUP",
    "CMDLINE",
    "COMM",
    "CWD",
    "EXE",
    "FILENAME",
    "GID",
    "HOSTNAME",
    "PID",
    "PROC_CGROUP",
    "PROC_LIMITS",
    "PROC_STATUS",
    "SIGNAL",
    "SIGNAL_NAME",
    "TIMESTAMP",
    "UID",
    "UNIT",
];

/// Crashes processes with each size of memory in MiB, and returns tables of Markdown. Fails if a core is not as it has to be.
pub fn validate(deb: &Path, memory: &[u64], rounds: u32) -> Result<String> {
    let release = RELEASES.iter().find(|release| release.suite == "trixie").context("no trixie")?;
    let tools = Tools::get()?;
    let image = image(release)?;
    let scratch = cache::directory()?.join(format!("core-handler-{}", std::process::id()));
    let guest = Guest::copy(release, &tools, &image, &scratch)?;
    let said = run(&guest, deb, memory, rounds);
    let result = said.and_then(|said| {
        fs::write(scratch.join("said.json"), json!(said).to_string()).context("writing said.json")?;
        Said(said).check()
    });
    // Kept on failure, to look at.
    if result.is_ok() {
        fs::remove_dir_all(&scratch).with_context(|| scratch.display().to_string())?;
    }
    result.with_context(|| format!("the guest's disk and console are kept in {}", scratch.display()))
}

/// The directory of a guest with systemd-coredump.
fn image(release: &Release) -> Result<PathBuf> {
    let kernel = Kernel::get(release.series)?.release;
    let key =
        cache::Key::default().with(IMAGE).with(UNIT).with(PACKAGES.concat()).with(SIZE).with(&kernel).short();
    let directory = cache::directory()?.join("core-handler").join(format!("{}-{key}", release.suite));
    cache::once(&directory, |draft| make_image(release, draft, SIZE, &PACKAGES))?;
    Ok(directory)
}

fn run(guest: &Guest<'_>, deb: &Path, memory: &[u64], rounds: u32) -> Result<Vec<(String, Value)>> {
    let package = fs::read(deb).with_context(|| deb.display().to_string())?;
    let case = |mib: u64, pages: &str| json!({ "mib": mib, "pages": pages, "rounds": rounds });
    let mut cases: Vec<Value> = memory.iter().map(|&mib| case(mib, "huge")).collect();
    cases.extend(memory.first().map(|&mib| case(mib, "small")));
    let settings = json!({ "cases": cases }).to_string();
    guest.put(&[
        ("run.sh", RUN.as_bytes()),
        ("guest.py", GUEST.as_bytes()),
        ("subject.py", SUBJECT.as_bytes()),
        ("settings.json", settings.as_bytes()),
        ("pagehaul-core.deb", package.as_slice()),
    ])?;
    let largest = memory.iter().max().copied().context("no size of memory to measure")?;
    let mut said = Vec::new();
    let boot =
        Boot { memory_mib: 3 * largest + 2048, cpu: CPU, limit: LIMIT, silence: SILENCE, ..Boot::default() };
    let result = guest.run_saying(boot, &mut said);
    for (what, detail) in &said {
        eprintln!("{what} {}", detail.chars().take(400).collect::<String>());
    }
    result?;
    let parse = |(what, detail): (String, String)| {
        let value =
            serde_json::from_str(&detail).with_context(|| format!("the guest said: {what} {detail}"))?;
        Ok((what, value))
    };
    said.into_iter().map(parse).collect()
}

/// What the guest said.
struct Said(Vec<(String, Value)>);

impl Said {
    fn all<'a>(&'a self, what: &'static str) -> impl Iterator<Item = &'a Value> {
        self.0.iter().filter(move |(name, _)| name == what).map(|(_, value)| value)
    }

    /// The message whose field has this value.
    fn one(&self, what: &'static str, field: &str, value: &str) -> Result<&Value> {
        let found = self.all(what).find(|said| said[field] == value);
        found.with_context(|| format!("the guest did not say {what} with {field} {value}"))
    }

    fn check(&self) -> Result<String> {
        ensure!(self.all("done").count() == 1, "the guest did not come to its end");
        for (when, start) in [("before", SYSTEMD), ("installed", OURS), ("removed", SYSTEMD)] {
            let pattern = self.one("pattern", "when", when)?["pattern"].as_str().unwrap_or_default();
            ensure!(pattern.starts_with(start), "core_pattern {when}: {pattern}");
        }
        for said in self.all("measured").filter(|said| said["by"] == "pagehaul") {
            let is_good = said["dumped"] == true && said["truncated"] == false && said["whole"].is_number();
            ensure!(is_good, "a core of pagehaul: {said}");
        }
        self.check_services()?;
        self.check_shown()?;
        self.check_storm()?;
        self.check_killed()?;
        self.table()
    }

    fn check_services(&self) -> Result<()> {
        for by in ["systemd-coredump", "pagehaul"] {
            let said = self.one("service", "by", by)?;
            let is_good =
                said["restarts"] == 1 && said["serves"] == true && said["unit"] == "subject.service";
            ensure!(is_good, "the service: {said}");
        }
        Ok(())
    }

    fn check_shown(&self) -> Result<()> {
        let theirs = self.one("shown", "by", "systemd-coredump")?;
        let fields = theirs["fields"].as_object().context("systemd-coredump's entry has no fields")?;
        for said in self.all("shown") {
            let text = |name: &str| said[name].as_str().unwrap_or_default();
            let pid = said["pid"].to_string();
            ensure!(
                text("list").contains(&pid) && text("list").contains("present"),
                "coredumpctl list: {said}"
            );
            ensure!(
                text("info").contains(text("file")) && text("info").contains("(present)"),
                "coredumpctl info: {said}"
            );
            ensure!(
                text("debug").contains("#0 ") && text("debug").contains("$1 = 6"),
                "coredumpctl debug: {said}"
            );
            let directory = if said["by"] == "pagehaul" {
                "/var/lib/pagehaul/core/"
            } else {
                "/var/lib/systemd/coredump/"
            };
            ensure!(text("file").starts_with(directory), "where a core is: {said}");
            ensure!(said["fields"]["COREDUMP_PID"] == *pid, "the process of an entry: {said}");
            if said["by"] != "pagehaul" {
                continue;
            }
            ensure!(said["whole"] == true, "pagehaul verify: {said}");
            let own = said["fields"].as_object().context("pagehaul's entry has no fields")?;
            for field in FIELDS.map(|name| format!("COREDUMP_{name}")) {
                ensure!(
                    own.contains_key(&field) && fields.contains_key(&field),
                    "{field} of an entry: {said}"
                );
            }
            ensure!(said["priority"] == theirs["priority"], "the entry's priority: {said}");
            let is_contained = said["contained"] == true;
            ensure!(
                is_contained == (said["inner"] != said["pid"]),
                "a process's number in its namespace: {said}"
            );
        }
        let count = self.all("shown").filter(|said| said["by"] == "pagehaul").count();
        ensure!(count == 2, "{count} cores of pagehaul were shown, expected 2");
        self.one("shown", "by", "removed").map(drop)
    }

    fn check_storm(&self) -> Result<()> {
        let said = self.all("storm").next().context("there was no storm")?;
        let number = |name: &str| said[name].as_u64().with_context(|| format!("the storm's {name}"));
        let (crashes, budget) = (number("crashes")?, number("budget")?);
        let most = budget + crashes * LEAST;
        ensure!(number("whole")? == crashes && number("handlers")? > 1, "the storm: {said}");
        ensure!(
            number("reserved")? <= most && number("resident")? <= most + crashes * OTHER,
            "the storm: {said}"
        );
        Ok(())
    }

    fn check_killed(&self) -> Result<()> {
        for moment in ["copying", "writing"] {
            let said = self.one("killed", "moment", moment)?;
            let left = said["left"].as_array().context("what a killed handler left")?;
            let claims = left.iter().any(|file| file["whole"] != false);
            ensure!(!claims && said["journalled"] == 0, "what a killed handler left: {said}");
            ensure!(self.one("next", "moment", moment)?["whole"] == true, "the crash after a killed handler");
        }
        Ok(())
    }

    /// Medians by memory and handler.
    fn table(&self) -> Result<String> {
        let mut out = String::from(
            "| memory MiB | pages | memcpy s | its target touched | copy by the kernel s | end without a core s | cores by | gone s | \
             of it, copy s | core whole s | core MiB | gone / kernel's copy | gone / memcpy |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        );
        let mut cases: Vec<(&Value, &Value)> = Vec::new();
        for copied in self.all("copied") {
            let case = (&copied["mib"], &copied["pages"]);
            if !cases.contains(&case) {
                cases.push(case);
            }
        }
        for (mib, pages) in cases {
            let is_case = |said: &&Value| said["mib"] == *mib && said["pages"] == *pages;
            let copied = |name: &str| median(self.all("copied").filter(is_case).map(|said| &said[name]));
            let [fresh, touched, kernel, killed] =
                ["fresh", "touched", "kernel", "killed"].map(|name| copied(name).unwrap_or(f64::NAN));
            for by in ["systemd-coredump", "pagehaul"] {
                let of = |name: &str| {
                    median(
                        self.all("measured")
                            .filter(is_case)
                            .filter(|said| said["by"] == by)
                            .map(|said| &said[name]),
                    )
                };
                let gone = of("gone").context("nothing was measured")?;
                let seconds = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.2}"));
                let size = of("bytes").unwrap_or_default() / f64::from(1 << 20);
                writeln!(
                    out,
                    "| {mib} | {} | {fresh:.3} | {touched:.3} | {kernel:.3} | {killed:.3} | {by} | {gone:.3} | {} | {} | {size:.0} | {:.2} | {:.2} |",
                    pages.as_str().unwrap_or_default(),
                    seconds(of("held")),
                    seconds(of("whole")),
                    gone / kernel,
                    gone / fresh
                )?;
            }
        }
        out.push_str("\n| service of 256 MiB, cores by | gone s | started again s | core whole s |\n|---|---|---|---|\n");
        for said in self.all("service") {
            let number = |name: &str| said[name].as_f64().unwrap_or(f64::NAN);
            let by = said["by"].as_str().unwrap_or_default();
            writeln!(
                out,
                "| {by} | {:.2} | {:.2} | {:.2} |",
                number("gone"),
                number("started"),
                number("whole")
            )?;
        }
        let fields = |by: &str| {
            Ok::<_, anyhow::Error>(
                self.one("shown", "by", by)?["fields"].as_object().cloned().unwrap_or_default(),
            )
        };
        let (theirs, own) = (fields("systemd-coredump")?, fields("pagehaul")?);
        let lacking: Vec<&str> =
            theirs.keys().filter(|name| !own.contains_key(*name)).map(String::as_str).collect();
        writeln!(out, "\nFields of the journal that only systemd-coredump has: {}", lacking.join(", "))?;
        for what in ["guest", "storm", "killed"] {
            self.all(what).try_for_each(|said| writeln!(out, "\n{what}: {said}"))?;
        }
        Ok(out)
    }
}

/// The median of those that are numbers.
fn median<'a>(values: impl Iterator<Item = &'a Value>) -> Option<f64> {
    let mut values: Vec<f64> = values.filter_map(Value::as_f64).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_are_of_numbers() {
        let values = [json!(3.0), json!(null), json!(1.0), json!(2)];
        assert_eq!(median(values.iter()), Some(2.0));
        assert_eq!(median([json!(null)].iter()), None);
    }

    #[test]
    fn what_a_killed_handler_leaves_must_not_claim_to_be_whole() {
        let said = |whole: bool| {
            let killed = |moment: &str| {
                (
                    "killed".to_owned(),
                    json!({ "moment": moment, "left": [{ "whole": whole }], "journalled": 0 }),
                )
            };
            let next = |moment: &str| ("next".to_owned(), json!({ "moment": moment, "whole": true }));
            Said(vec![killed("copying"), killed("writing"), next("copying"), next("writing")])
        };
        said(false).check_killed().unwrap();
        assert!(said(true).check_killed().is_err());
    }
}
