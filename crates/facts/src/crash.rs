//! A crash, as its log describes it.

use serde::{Deserialize, Serialize};

use crate::event::{Event, Kind, PANIC};
use crate::line::Line;
use crate::signature::Signature;
use crate::signature::normal;
use crate::trace;

/// Lines of the report that are kept as text.
const MAX_TEXT_LINES: usize = 200;

/// A crash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crash {
    /// How the machine died; groups crashes of the same cause.
    #[serde(flatten)]
    pub signature: Signature,
    /// One line: `null-deref in ext4:ext4_writepages`.
    pub title: String,
    /// The text of the panic.
    pub panic: Option<String>,
    /// Name of the task that crashed, was stuck or blocked.
    pub task: Option<String>,
    /// Its thread ID.
    pub pid: Option<u32>,
    /// CPU that crashed.
    pub cpu: Option<u32>,
    /// Letters of the taint flags; empty if the kernel is not tainted.
    pub taint: Option<String>,
    /// The machine: `Hardware name`.
    pub hardware: Option<String>,
    /// Nanoseconds from the start of the machine to the first line of the crash.
    pub uptime_ns: u64,
    /// The lines of the report.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

impl Crash {
    /// Finds the crash in the log of a kernel. `None` if there is none: the memory of a running or silent machine.
    pub fn find(lines: &[Line<'_>]) -> Option<Self> {
        Self::new(lines, &Event::find(lines)?)
    }

    /// Reads a crash that was found. `None` if `event` is one of other lines.
    pub fn new(lines: &[Line<'_>], event: &Event) -> Option<Self> {
        let report = trace::lines_of_event(lines, event);
        let panic = event.panic.and_then(|at| lines.get(at)).and_then(|line| line.text.strip_prefix(PANIC));
        let first = lines.get(event.start)?;
        let frames = match event.kind {
            // What the CPU did when its hardware failed is chance.
            Kind::Mce => Vec::new(),
            kind => trace::frames(&report, kind),
        };
        let message = if event.panic == Some(event.start) { panic.unwrap_or_default() } else { first.text };
        let signature = Signature::new(event.kind, &frames, message);
        let title = match signature.frames.first() {
            Some(frame) => format!("{} in {frame}", event.kind),
            None => format!("{}: {}", event.kind, normal(message)),
        };
        let header = Header::of(&report, event);
        Some(Self {
            signature,
            title,
            panic: panic.map(str::to_owned),
            task: header.task,
            pid: header.pid,
            cpu: header.cpu,
            taint: header.taint,
            hardware: header.hardware,
            uptime_ns: first.nanoseconds,
            text: text_of(lines, event, &report),
        })
    }
}

/// The lines of the report, up to where its trace ends.
fn text_of(lines: &[Line<'_>], event: &Event, report: &[Line<'_>]) -> String {
    let end = report
        .iter()
        .skip(1)
        .position(|line| line.text.starts_with("---[ end "))
        .map_or(report.len(), |at| at + 2);
    let kept = report.iter().take(end.min(MAX_TEXT_LINES)).map(|line| line.text);
    // The stalled CPU's lines are not the first of an RCU stall.
    let first = lines
        .get(event.start)
        .map(|line| line.text)
        .filter(|text| report.first().is_none_or(|line| line.text != *text));
    first.into_iter().chain(kept).collect::<Vec<_>>().join("\n")
}

/// What the header of a report says.
#[derive(Debug, Default)]
struct Header {
    task: Option<String>,
    pid: Option<u32>,
    cpu: Option<u32>,
    taint: Option<String>,
    hardware: Option<String>,
}

impl Header {
    fn of(report: &[Line<'_>], event: &Event) -> Self {
        let mut header = Self::default();
        let first = report.first().map_or("", |line| line.text);
        // Since 6.5 another CPU can find a hard lockup.
        let number = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok();
        let stuck: Option<u32> = match event.kind {
            Kind::SoftLockup => first.split_once(" CPU#").and_then(|(_, rest)| number(rest)),
            Kind::HardLockup => first.split_once(" on cpu ").and_then(|(_, rest)| number(rest)),
            _ => None,
        };
        header.cpu = stuck;
        match event.kind {
            Kind::HungTask => (header.task, header.pid) = task(between(first, "INFO: task ", " blocked ")),
            Kind::SoftLockup => {
                (header.task, header.pid) = task(
                    first.rsplit_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(name, _)| name),
                )
            }
            _ => {}
        }
        let mut found = false;
        for line in report {
            let text = line.text;
            if header.hardware.is_none()
                && let Some(name) = text.strip_prefix("Hardware name: ")
            {
                header.hardware = Some(name.trim().to_owned());
            }
            // `CPU: 0 UID: 0 PID: 1 Comm: init Kdump: loaded Tainted: G           OE       6.12.107 #1 …`, 2.6.39 on.
            let Some(rest) = text.strip_prefix("CPU: ").filter(|_| !found) else { continue };
            let Some((before, after)) = rest.split_once(" Comm: ") else { continue };
            header.taint.get_or_insert_with(|| taint(after));
            let cpu = before.split(' ').next().and_then(|number| number.parse().ok());
            // The watchdog's own report says nothing about the task that it found.
            if event.kind == Kind::HungTask || stuck.is_some() && cpu != stuck {
                continue;
            }
            found = true;
            header.cpu = cpu;
            header.pid = before.rsplit(' ').next().and_then(|number| number.parse().ok());
            let end =
                [" Kdump: ", " Tainted: ", " Not tainted"].iter().filter_map(|mark| after.find(mark)).min();
            header.task = end.and_then(|end| after.get(..end)).map(|name| name.trim_end().to_owned());
        }
        header
    }
}

/// `NAME:PID`, where a name can have colons.
fn task(text: Option<&str>) -> (Option<String>, Option<u32>) {
    match text.and_then(|text| text.rsplit_once(':')) {
        Some((name, pid)) => (Some(name.to_owned()), pid.parse().ok()),
        None => (None, None),
    }
}

/// The letters after `Tainted:`, up to the release, which begins with a digit.
fn taint(text: &str) -> String {
    let Some((_, rest)) = text.rsplit_once("Tainted: ") else { return String::new() };
    let letters =
        rest.split_whitespace().take_while(|word| word.bytes().all(|byte| byte.is_ascii_uppercase()));
    // G only says that P is not set.
    letters.collect::<String>().replace('G', "")
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    Some(text.split_once(start)?.1.split_once(end)?.0)
}
