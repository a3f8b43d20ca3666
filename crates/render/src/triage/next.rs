//! Which command shows more of a finding: libraries name what to look at, and this is the command line's knowledge.

use pagehaul_inspect::{Next, TriageReport};

use super::Section;

/// Returns the command.
pub(super) fn command(next: Next) -> String {
    match next {
        Next::Log { level: None } => "pagehaul dmesg DUMP".into(),
        Next::Log { level: Some(level) } => format!("pagehaul dmesg DUMP --level {level}"),
        Next::DriverLog => "pagehaul dmesg DUMP: messages of the driver, NETDEV WATCHDOG".into(),
        Next::Cpus => of_section(Section::Cpus),
        Next::Tasks => of_section(Section::Tasks),
        Next::Waits => of_section(Section::Waits),
        Next::Memory => of_section(Section::Memory),
        Next::Network => of_section(Section::Net),
        Next::Owners => "pagehaul pages DUMP --owners".into(),
        Next::Requests => "crash: dev -d, struct request ADDRESS".into(),
        Next::Suspender => {
            "find what suspended the device and did not resume it: LVM, multipath, dmsetup".into()
        }
        Next::Backtrace => "crash: bt".into(),
        Next::Code(address) => format!("crash: dis -rl {address:x}"),
    }
}

fn of_section(section: Section) -> String {
    format!("pagehaul triage DUMP --section {}", section.name())
}

/// Names the commands in a report that is to be JSON.
pub fn name_commands(report: &mut TriageReport) {
    for finding in &mut report.verdict {
        finding.command = Some(command(finding.next));
    }
}
