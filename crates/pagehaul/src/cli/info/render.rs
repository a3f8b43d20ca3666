use pagehaul_present::number::{bytes, count};
use pagehaul_present::printable;
use pagehaul_present::time::utc;

use super::Description;

/// What `info` prints; with `all_notes`, every note and all registers too.
pub(super) fn text(found: &Description, all_notes: bool) -> String {
    let mut out = String::new();
    let mut row = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            out.push_str(&format!("{name:14}{}\n", printable(&value)));
        }
    };
    let version = found.version.map_or(String::new(), |version| format!(", version {version}"));
    let encrypted = if found.encrypted { "encrypted (age), " } else { "" };
    row("format", Some(format!("{encrypted}{}{version}", found.format)));
    row("complete", Some(found.incomplete_because.as_ref().map_or("yes".into(), |why| format!("no: {why}"))));
    for remark in &found.remarks {
        let name = format!("{}: ", found.path);
        row("remark", Some(remark.strip_prefix(&name).unwrap_or(remark).to_owned()));
    }
    row("kernel", found.release.clone());
    row("", found.kernel_version.clone());
    let words = format!(
        "{}-endian, {}-bit pointers, pages of {}",
        found.byte_order,
        found.pointer_bytes * 8,
        bytes(found.page_size.into())
    );
    row("machine", Some(format!("{}: {words}", found.machine)));
    row("host", found.hostname.clone());
    row("build ID", found.build_id.clone());
    row("crash time", found.crash_time.map(utc));
    row("crash ID", found.id.as_ref().map(|id| id.crash_id.clone()));
    if let Some(crash) = &found.crash {
        row("crash", Some(crash.title.clone()));
        row("signature", Some(format!("{} ({})", crash.signature.sig, crash.signature.text())));
    }
    row("KASLR", found.kaslr_offset.map(|offset| format!("kernel image moved by {offset:#x}")));
    row("CPUs", Some(found.cpus.to_string()));
    row("dump level", found.dump_level.map(level));
    row("memory", Some(bytes(found.memory_bytes)));
    row("PFNs", Some(format!("{:#x} to {:#x}", found.first_pfn, found.end_pfn.saturating_sub(1))));
    row("part", found.split.map(|(start, end)| format!("PFNs {start:#x} to {:#x}", end.saturating_sub(1))));
    row(
        "pages",
        Some(format!("{} ({})", count(found.pages), bytes(found.pages * u64::from(found.page_size)))),
    );
    for codec in &found.codecs {
        row("", Some(format!("{} {}", count(codec.pages), codec.codec)));
    }
    if found.zero_pages > 0 {
        row("", Some(format!("{} share one page (zeros)", count(found.zero_pages))));
    }
    if found.partly_stored_pages > 0 {
        row(
            "",
            Some(format!("{} in part: other bytes of them were excluded", count(found.partly_stored_pages))),
        );
    }
    if found.missing_pages > 0 {
        row("", Some(format!("{} missing", count(found.missing_pages))));
    }
    row("stored", found.stored_bytes.map(bytes));
    let lines = |text: &Option<String>| Some(text.as_ref()?.trim_end().replace('\n', "; "));
    row("erased", lines(&found.erased));
    row("owners", lines(&found.owners));
    for class in &found.classes {
        let kept = count(class.in_dump);
        row(
            "class",
            Some(format!("{:14}{:>12} pages, {kept:>12} in the dump", class.class, count(class.pages))),
        );
    }
    for (start, end) in &found.memory_map {
        row("RAM", Some(format!("{start:#014x} to {:#014x}  {}", end - 1, bytes(end - start))));
    }
    for cpu in &found.cpu_registers {
        let mut text = format!("PID {}", cpu.pid);
        for (at, (name, value)) in cpu.summary().enumerate() {
            // Addresses have a fixed width.
            let width = if at < 2 { 18 } else { 0 };
            text.push_str(&format!(", {name} {value:#0width$x}"));
        }
        row(&format!("CPU {}", cpu.cpu), Some(text));
        for four in cpu.registers.chunks(4).filter(|_| all_notes) {
            let four = four.iter().map(|(name, value)| format!("{name:>8} {value:016x}"));
            row("", Some(four.collect::<Vec<_>>().join(" ")));
        }
    }
    for note in found.notes.iter().filter(|_| all_notes) {
        row("note", Some(format!("{}, type {:#x}, {} bytes", note.name, note.kind, note.bytes)));
    }
    for fault in &found.faults {
        row("fault", Some(fault.clone()));
    }
    out
}

/// "31 (zero, cache, cache-private, user, free)".
fn level(bits: u32) -> String {
    let names = ["zero", "cache", "cache-private", "user", "free"];
    let set: Vec<&str> = (0..5).filter(|bit| bits >> bit & 1 == 1).map(|bit| names[bit as usize]).collect();
    if set.is_empty() { bits.to_string() } else { format!("{bits} ({})", set.join(", ")) }
}
