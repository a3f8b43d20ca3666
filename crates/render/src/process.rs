//! Cores and checkpoints of processes: what saving them did, and what is in them.

use pagehaul_present::number::{bytes, count, counted};
use pagehaul_present::printable;
use pagehaul_present::time::{seconds, utc};
use pagehaul_process::{
    CheckpointInfo, CheckpointReport, CoreInfo, CoreReport, Generation, RestartReport, WholeReport,
};

/// Formats what saving a core did. `peak` is the most anonymous memory in use.
pub fn core(report: &CoreReport, is_encrypted: bool, peak: u64) -> String {
    let time = &report.seconds;
    let rate = |amount: u64, spent: f64| bytes((amount as f64 / spent.max(1e-9)) as u64);
    let zeros = match report.zero_bytes {
        0 => String::new(),
        zeros => format!(", {} of zeros", bytes(zeros)),
    };
    let mut out = format!(
        "process {} ({}): {}, {} mapped, {} excluded, {} of pages{zeros}\n",
        report.pid,
        report.name,
        counted(report.threads_saved as u64, "thread"),
        bytes(report.mapped_bytes),
        bytes(report.excluded_bytes),
        bytes(report.page_bytes),
    );
    let codec =
        if report.codec == "none" { "ELF".to_owned() } else { format!("ELF in {} frames", report.codec) };
    let encrypted = if is_encrypted { ", encrypted" } else { "" };
    out += &format!("{}: {} as {codec}{encrypted}", report.output, bytes(report.output_bytes));
    if report.outcome.is_success() || !is_encrypted {
        out += &format!(" ({:.2} to 1)", report.page_bytes as f64 / report.output_bytes.max(1) as f64);
    }
    out += "\n";
    out += &format!(
        "pause {:.1} ms ({}), copy {} ({}/s); prepare {}, all {}, finish {}; {}, {} anonymous memory at most\n",
        time.pause * 1e3,
        report.mode,
        seconds(time.copy),
        rate(report.page_bytes, time.copy),
        seconds(time.prepare),
        seconds(time.pack),
        seconds(time.finish),
        counted(report.threads as u64, "thread"),
        bytes(peak),
    );
    if report.buffer_was_short {
        out += &format!(
            "note: the copy did not fit {} of memory: the process stayed stopped until the rest was written \
             (--max-memory, --snapshot)\n",
            bytes(report.buffer_bytes)
        );
    }
    for warning in &report.warnings {
        out += &format!("note: {warning}\n");
    }
    out
}

/// Returns why a core is incomplete, in one sentence; `None` if it is complete.
pub fn core_failure(report: &CoreReport, is_encrypted: bool) -> Option<String> {
    let why = report.outcome.why()?;
    // Pages in the pipe and in the last chunk are lost, so that the number of pages in the file is not known.
    if is_encrypted {
        return Some(format!("{why}; {} ends early", report.output));
    }
    let pages = bytes(report.page_bytes);
    Some(format!("{why}; {} is incomplete and marked so, with {pages} of pages in it", report.output))
}

/// Formats the description of a core.
pub fn core_info(info: &CoreInfo) -> String {
    let complete = info.incomplete_because.as_ref().map_or("yes".into(), |why| format!("no: {why}"));
    let mut rows = vec![
        ("format", info.format.to_owned()),
        ("complete", complete),
        ("process", format!("{} ({})", info.pid, info.name)),
        ("arguments", info.arguments.clone()),
        ("threads", count(info.threads)),
        ("mappings", format!("{} ({})", count(info.mappings), bytes(info.mapped_bytes))),
        ("held", bytes(info.held_bytes)),
        ("file", bytes(info.file_bytes)),
    ];
    if info.frames > 0 {
        rows.push(("frames", count(info.frames)));
    }
    rows.iter().map(|(name, value)| format!("{name:14}{}\n", printable(value))).collect()
}

/// Formats what saving a checkpoint did.
pub fn checkpoint(report: &CheckpointReport) -> String {
    let encrypted = if report.encrypted { ", encrypted" } else { "" };
    let mut out = format!(
        "process {}: {} processes {}\n{}: {}{encrypted} for {} of images ({:.2} to 1)\n",
        report.pid,
        count(report.processes as u64),
        if report.left_running { "saved, and running on" } else { "saved and ended" },
        report.output,
        bytes(report.output_bytes),
        bytes(report.image_bytes),
        report.image_bytes as f64 / report.output_bytes.max(1) as f64,
    );
    out += &format!(
        "frozen {:.1} ms, CRIU {} took {}, all {}\n",
        report.frozen_seconds * 1e3,
        report.criu,
        seconds(report.criu_seconds),
        seconds(report.seconds),
    );
    if let Some(base) = &report.base {
        let way = if base.way == "marks" { "by marks of writes" } else { "compared" };
        out += &format!(
            "based on {}: {} unchanged ({way}), {} written\n",
            base.path,
            bytes(base.unchanged_bytes),
            bytes(report.image_bytes - base.unchanged_bytes),
        );
    }
    if let Some(copy) = &report.pre_copy {
        out += &format!(
            "copied {} while running, in {} rounds after a stop of {:.1} ms; {} while frozen\n",
            bytes(copy.running_bytes),
            copy.rounds,
            copy.stopped_seconds * 1e3,
            bytes(copy.frozen_bytes),
        );
        if copy.spilled_bytes > 0 {
            out += &format!("{} were compressed and written while running", bytes(copy.spilled_bytes));
            if copy.unused_bytes > 0 {
                out += &format!(", of which {} are unused", bytes(copy.unused_bytes));
            }
            out.push('\n');
        }
        for reason in &copy.copied_again {
            out += &format!("note: all memory was copied while frozen: {reason}\n");
        }
        for reason in &copy.walked {
            out += &format!("note: the kernel looked at each page while frozen: {reason}\n");
        }
    }
    if report.kept_marks {
        out += "writes are marked until the next checkpoint\n";
    }
    if let Some(reason) = &report.no_pre_copy {
        out += &format!("note: all memory was copied while frozen: {reason}\n");
    }
    for note in report.lost.iter().map(|lost| &lost.note).chain(&report.notes) {
        out += &format!("note: {note}\n");
    }
    if report.buffer_was_short {
        out += "note: the images did not fit the memory for them: the processes stayed frozen while they were \
                compressed (--max-memory)\n";
    }
    out
}

/// Formats what restarting from a checkpoint did.
pub fn restart(report: &RestartReport) -> String {
    let mut out = format!(
        "process {} runs again: {} of images checked in {}, all {}\n",
        report.pid,
        bytes(report.image_bytes),
        seconds(report.verify_seconds),
        seconds(report.seconds),
    );
    if report.rearmed_timers > 0 {
        out += &format!(
            "note: periodic timers (timerfd) that had expired when they were saved: {}; they fire one interval after the \
             restart\n",
            count(report.rearmed_timers as u64)
        );
    }
    for lost in &report.lost {
        out += &format!("note: {}\n", printable(&lost.note));
    }
    out
}

/// Formats what making a checkpoint whole did.
pub fn whole_checkpoint(report: &WholeReport) -> String {
    let encrypted = if report.encrypted { ", encrypted" } else { "" };
    format!(
        "{}: {}{encrypted} for {} of images, from {} in {}\n",
        report.output,
        bytes(report.output_bytes),
        bytes(report.image_bytes),
        counted(report.checkpoints as u64, "checkpoint"),
        seconds(report.seconds),
    )
}

/// What a file has before its format or size if it is encrypted.
fn age(is_encrypted: bool) -> &'static str {
    if is_encrypted { "encrypted (age), " } else { "" }
}

/// Formats the description of a checkpoint.
pub fn checkpoint_info(info: &CheckpointInfo) -> String {
    let text = |key: &str| match &info.about[key] {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let complete = info.broken.as_ref().map_or("yes".into(), |why| format!("no: {why}"));
    let mut rows = vec![
        ("format", format!("{}checkpoint of processes (CRIU images)", age(info.encrypted))),
        ("complete", complete),
        ("process", format!("{} ({})", text("pid"), text("name"))),
        ("processes", text("processes")),
        ("time", utc(info.about["time"].as_u64().unwrap_or(0))),
        ("CRIU", text("criu")),
        ("images", format!("{} ({})", info.images.len(), bytes(info.image_bytes))),
        ("file", bytes(info.file_bytes)),
    ];
    if info.unused_bytes > 0 {
        let unused = bytes(info.unused_bytes);
        rows.push((
            "unused",
            format!("{unused} of pages that changed later, before compression (convert leaves them out)"),
        ));
    }
    let mut size = info.file_bytes;
    for base in info.chain.iter().skip(1) {
        let Generation { path, time, file_bytes, encrypted, .. } = base;
        let age = age(*encrypted);
        rows.push(("based on", format!("{} of {}, {age}{}", path.display(), utc(*time), bytes(*file_bytes))));
        size += file_bytes;
    }
    if info.chain.len() > 1 {
        rows.push(("needs", format!("{}, {}", counted(info.chain.len() as u64, "file"), bytes(size))));
    }
    rows.extend(info.lost.iter().map(|lost| ("not restored", lost.note.clone())));
    rows.iter().map(|(name, value)| format!("{name:14}{}\n", printable(value))).collect()
}
