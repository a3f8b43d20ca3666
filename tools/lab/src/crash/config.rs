//! The configuration of a guest, and the plan for the guest program that follows from it.

use super::Pstore;
use crate::Architecture;
use crate::cache::Key;
use crate::vm::Accelerator;
use crate::{kernels, tree};
use anyhow::{Result, bail};
use lab_guest::plan::{Fill, Plan, Run};
use lab_guest::workload::Step;
use std::path::PathBuf;

/// The machine to crash, and what to run in its capture kernel.
#[derive(Clone, Debug)]
pub struct Config {
    /// Name of a kernel series, as in [`kernels::SERIES`](crate::kernels::SERIES).
    pub kernel: String,
    /// Guest memory in MiB.
    pub memory_mib: u64,
    /// CPUs of both kernels.
    pub cpus: u32,
    /// QEMU's CPU model instead of [`Architecture::cpu`]. `max` has 5-level page tables on x86_64, and LPA2 and pointer
    /// authentication on arm64.
    pub cpu: Option<String>,
    /// How QEMU executes the guest's instructions.
    pub accelerator: Accelerator,
    /// Appended to the first kernel's command line.
    pub append: String,
    /// Value of `crashkernel=`.
    pub crashkernel: String,
    /// Percent of available memory to fill with stamped pages.
    pub fill: u32,
    /// Arguments of each run of `pagehaul capture` in the capture kernel, without source and output. Arguments that
    /// contain `{out}` are the whole command line instead.
    pub captures: Vec<Vec<String>>,
    /// The pagehaul to run. By default the lab builds it from this workspace.
    pub pagehaul: Option<PathBuf>,
    /// Time limit of each capture in seconds.
    pub time_limit: u64,
    /// Runs of any program after the captures.
    pub runs: Vec<Run>,
    /// Directories to copy to the disk for results, with their names there.
    pub tools: Vec<(PathBuf, &'static str)>,
    /// Maximum write rate of the disks for results and dumps, in bytes per second.
    pub write_rate: Option<u64>,
    /// Size of the raw disk for dumps in MiB. 0: no such disk.
    pub dump_disk_mib: u64,
    /// Whether the capture kernel saves all of /proc/vmcore.
    pub save_vmcore: bool,
    /// How to crash: one of [`validate::triage::names`](crate::validate::triage::names). Without it, by SysRq c.
    pub scenario: Option<String>,
    /// CPUs of the capture kernel (`nr_cpus=`) instead of `cpus`.
    pub capture_cpus: Option<u32>,
    /// Appended to the capture kernel's command line.
    pub capture_append: String,
    /// The CPU that panics.
    pub crash_cpu: usize,
    /// Arguments of a run of pagehaul in the first kernel, just before the crash.
    pub before: Vec<String>,
    /// Whether to keep the initial contents of the disks for results and dumps, and a log of all writes to them.
    pub record: bool,
    /// Whether QEMU saves images of the guest's memory before the crash, and while its capture kernel runs.
    pub images: bool,
    /// Whether kexec(8) in a riscv64 guest sees all of /proc/iomem, so that the vmcore lacks the struct pages.
    pub whole_iomem: bool,
    /// What the kernel's log is kept in, besides the dump.
    pub pstore: Option<Pstore>,
    /// Scripts that run in a Debian tree once the capture kernel has reset the machine, whose kernel boots again.
    pub after: Vec<Step>,
    /// Scripts that run in a Debian tree before memory is filled. They have disks for swap, LUKS and XFS.
    pub prepare: Vec<Step>,
    /// Debian packages in these trees.
    pub packages: Vec<String>,
    /// The Debian release that they are of.
    pub suite: &'static str,
    /// NUMA nodes, among which memory is divided. The first has the CPUs.
    pub nodes: u32,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            kernel: "6.12".into(),
            memory_mib: 640,
            cpus: 2,
            cpu: None,
            accelerator: Accelerator::default(),
            append: String::new(),
            crashkernel: "256M".into(),
            fill: 60,
            captures: Vec::new(),
            pagehaul: None,
            time_limit: 300,
            runs: Vec::new(),
            tools: Vec::new(),
            write_rate: None,
            dump_disk_mib: 0,
            save_vmcore: true,
            scenario: None,
            capture_cpus: None,
            capture_append: String::new(),
            crash_cpu: 0,
            before: Vec::new(),
            record: false,
            images: false,
            whole_iomem: false,
            pstore: None,
            after: Vec::new(),
            prepare: Vec::new(),
            packages: Vec::new(),
            suite: tree::SUITE,
            nodes: 1,
        }
    }
}

impl Config {
    /// Refuses machines that QEMU or the guest program cannot handle.
    pub(super) fn check(&self) -> Result<()> {
        if self.memory_mib < 512 || self.memory_mib > 1 << 20 {
            bail!("guest memory of {} MiB: the lab supports 512 MiB to 1 TiB", self.memory_mib);
        }
        if self.cpus == 0 || self.cpus > 64 {
            bail!("{} CPUs: the lab supports 1 to 64", self.cpus);
        }
        if self.nodes == 0 || !self.memory_mib.is_multiple_of(self.nodes.into()) {
            bail!("{} nodes cannot share {} MiB evenly", self.nodes, self.memory_mib);
        }
        if let Some(path) = &self.pagehaul
            && !path.is_file()
        {
            bail!("pagehaul binary {} does not exist", path.display());
        }
        Ok(())
    }

    /// Returns QEMU's CPU model.
    pub(super) fn cpu(&self) -> &str {
        let default = || {
            kernels::series(&self.kernel).map_or_else(|_| Architecture::default(), |s| s.architecture).cpu()
        };
        self.cpu.as_deref().unwrap_or_else(default)
    }

    /// Returns what the guest program has to do.
    pub(super) fn plan(&self, architecture: Architecture) -> Plan {
        let mut runs: Vec<Run> = Vec::new();
        for arguments in &self.captures {
            let name = run_name(arguments, &runs);
            let complete = arguments.iter().any(|a| a.contains("{out}"));
            let arguments = if complete {
                arguments.clone()
            } else {
                let ends = |words: [&str; 2]| words.map(str::to_owned);
                [vec!["capture".to_owned()], arguments.clone(), ends(["/proc/vmcore", "{out}"]).to_vec()]
                    .concat()
            };
            runs.push(Run { name, arguments, time_limit: self.time_limit, ..Run::default() });
        }
        runs.extend(self.runs.iter().cloned());
        Plan {
            fill: Fill::Stamps(self.fill),
            // Both kernels run without watchdogs and the timer check: under translation a CPU can seem stuck for
            // longer than a watchdog allows, and a kernel that counts ticks for a moment can miss its timer. The capture
            // kernel has a periodic tick: where it asked for each interrupt, one that was lost left a CPU asleep.
            capture_command_line: format!(
                "console={} panic=-1 nowatchdog no_timer_check nohz=off highres=off reset_devices nr_cpus={} \
                 cgroup_disable=memory {} {}",
                architecture.console(),
                self.capture_cpus.unwrap_or(self.cpus),
                self.capture_append,
                self.pstore.map_or("", Pstore::in_capture_kernel)
            )
            .trim_end()
            .to_owned(),
            save_vmcore: self.save_vmcore,
            runs,
            scenario: self.scenario.clone(),
            crash_cpu: self.crash_cpu,
            before: self.before.clone(),
            whole_iomem: self.whole_iomem,
            images: self.images,
            prepare: self.prepare.clone(),
            after: self.after.clone(),
        }
    }

    /// Returns the command line of the first kernel.
    pub(super) fn command_line(&self, architecture: Architecture) -> String {
        let console = architecture.console();
        let base = format!("console={console} panic=-1 nowatchdog no_timer_check random.trust_cpu=on");
        let pstore = self.pstore.map_or("", Pstore::in_first_kernel);
        format!("{base} crashkernel={} {} {pstore}", self.crashkernel, self.append).trim_end().to_owned()
    }

    /// Returns the part of a result's directory name that is the same for all versions of the programs.
    pub(super) fn name(&self, runs: &[Run]) -> String {
        let mut parts = vec![self.kernel.clone(), format!("{}M", self.memory_mib)];
        if self.cpus != 2 {
            parts.push(format!("{}cpus", self.cpus));
        }
        parts.push(self.cpu().replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "_"));
        if !self.append.is_empty() {
            parts.push(self.append.replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
        }
        if self.crashkernel != "256M" {
            parts.push(self.crashkernel.clone());
        }
        if self.whole_iomem {
            parts.push("whole_iomem".into());
        }
        if self.images {
            parts.push("images".into());
        }
        parts.extend(self.pstore.map(|pstore| pstore.name().to_owned()));
        parts.extend(self.scenario.clone());
        if self.nodes > 1 {
            parts.push(format!("{}nodes", self.nodes));
        }
        if !runs.is_empty() {
            // Different runs serve different purposes: they do not replace each other's results.
            let lines = runs.iter().map(|run| format!("{} {}", run.name, run.arguments.join(" ")));
            let key = lines.fold(Key::default(), |key, line| key.with(line)).short();
            parts.push(format!("runs_{}", key.get(..4).unwrap_or_default()));
        }
        parts.join("-")
    }

    /// Returns QEMU's arguments that divide the memory among nodes.
    pub(super) fn node_arguments(&self) -> Vec<String> {
        if self.nodes == 1 {
            return Vec::new();
        }
        let size = self.memory_mib / u64::from(self.nodes);
        let of_node = |node: u32| {
            let cpus = if node == 0 { format!(",cpus=0-{}", self.cpus - 1) } else { String::new() };
            [
                "-object".into(),
                format!("memory-backend-ram,id=node{node},size={size}M"),
                "-numa".into(),
                format!("node,nodeid={node}{cpus},memdev=node{node}"),
            ]
        };
        (0..self.nodes).flat_map(of_node).collect()
    }

    /// Returns the longest time that a run may say nothing, in seconds.
    pub(super) fn longest_time_limit(&self) -> u64 {
        let steps = self.prepare.iter().chain(&self.after);
        steps.map(|step| step.time_limit).chain([self.time_limit]).max().unwrap_or_default()
    }

    /// Returns the sum of the time limits of all runs, in seconds.
    pub(super) fn total_time_limit(&self) -> u64 {
        let others: u64 = self.runs.iter().map(|run| run.time_limit).sum();
        let steps: u64 = self.prepare.iter().chain(&self.after).map(|step| step.time_limit).sum();
        self.time_limit * self.captures.len() as u64 + others + steps
    }
}

/// Makes a file name of a capture's arguments, different from those of `runs`.
fn run_name(arguments: &[String], runs: &[Run]) -> String {
    let name = arguments.join("-").replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let name = name.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    if name.is_empty() || runs.iter().any(|run| run.name == name) {
        return format!("{name}-{}", runs.len()).trim_start_matches('-').to_owned();
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_get_names_and_complete_command_lines() {
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let captures =
            vec![words("-d 31 -c zstd:-3"), words("-d 31 -c zstd:3"), words(""), words("info {out}")];
        let plan = Config { captures, ..Config::default() }.plan(Architecture::X86_64);
        let names: Vec<&str> = plan.runs.iter().map(|run| run.name.as_str()).collect();
        assert_eq!(names, ["d-31-c-zstd-3", "d-31-c-zstd-3-1", "2", "info-out"]);
        assert_eq!(plan.runs[0].arguments, words("capture -d 31 -c zstd:-3 /proc/vmcore {out}"));
        assert_eq!(plan.runs[3].arguments, words("info {out}"));
    }

    #[test]
    fn impossible_machines_are_refused() {
        for config in [
            Config { memory_mib: 64, ..Config::default() },
            Config { cpus: 0, ..Config::default() },
            Config { pagehaul: Some("/nonexistent/pagehaul".into()), ..Config::default() },
        ] {
            assert!(config.check().is_err(), "{config:?}");
        }
        assert!(Config::default().check().is_ok());
    }
}
