//! Internal parsers, for fuzz targets.

use crate::checkpoint::{container, pids, timers, wire};
use crate::mapping;
use crate::procfs::{Stat, Status};
use crate::units::PAGE;

/// `/proc/PID/smaps` or `maps`: mappings lie where pages do.
pub fn mappings(text: &[u8]) {
    for mapping in mapping::parse(text).unwrap_or_default() {
        assert!(mapping.range.start < mapping.range.end);
        assert!(mapping.range.start.is_multiple_of(PAGE) && mapping.len().is_multiple_of(PAGE));
    }
}

/// `/proc/PID/stat`: the name is part of the line.
pub fn stat(line: &[u8]) {
    if let Some(stat) = Stat::parse(line) {
        assert!(stat.name.is_empty() || line.windows(stat.name.len()).any(|part| part == stat.name));
    }
}

/// `/proc/PID/status`.
pub fn status(text: &str) {
    let _ = Status::parse(text).is_dead();
}

/// CRIU's image of a process tree, and its messages: names have no directories in them.
pub fn criu(bytes: &[u8]) {
    let _ = pids::parse(bytes);
    let mut length = (bytes.len() as u32).to_le_bytes().to_vec();
    length.extend(bytes);
    for mut message in [bytes, &length] {
        if let Ok(Some(name)) = wire::read_name(&mut message) {
            assert!(!name.contains('/'));
        }
    }
}

/// CRIU's images that a restart reads and changes: what it has changed is as it should be.
pub fn restart(bytes: &[u8]) {
    let _ = pids::parse(bytes);
    if let Some((changed, _)) = timers::rearm(bytes) {
        let again = timers::rearm(&changed).expect("it is as CRIU writes it");
        assert!(again == (changed, 0));
    }
}

/// A checkpoint with these bytes as its index, and the right checksum for it.
pub fn with_index(index: &[u8]) -> Vec<u8> {
    let mut out = container::header(false);
    let words = [container::HEADER, index.len() as u64, container::checksum(index)];
    out.extend(index);
    out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    out.extend(container::MAGIC);
    out
}
