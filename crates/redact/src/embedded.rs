//! Finds addresses inside words: the kernel and its drivers glue ports, prefixes, names and arrows to them.

use crate::KINDS;

/// Digits of a hash.
const HASH: usize = 12;
/// Types of Rust that read like a group of an IPv6 address: `core::f64::`.
const RUST_TYPES: [&str; 4] = ["f16", "f32", "f64", "f128"];

/// A part of a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) start: usize,
    pub(super) end: usize,
    /// None for a hash that took the place of a name.
    pub(super) kind: Option<&'static str>,
}

/// Groups of digits, without those of other runs.
struct Run<'a> {
    text: &'a str,
    groups: Vec<(usize, usize)>,
}

impl Run<'_> {
    fn group(&self, at: usize) -> &str {
        self.groups.get(at).and_then(|(start, end)| self.text.get(*start..*end)).unwrap_or_default()
    }

    fn has_digit(&self) -> bool {
        (0..self.groups.len()).any(|at| self.group(at).bytes().any(|byte| byte.is_ascii_digit()))
    }

    /// Whether `size` groups in a row satisfy `inner`, but for the first and the last: digits may touch those.
    fn has(&self, size: usize, outer: usize, inner: impl Fn(&str) -> bool) -> bool {
        (0..(self.groups.len() + 1).saturating_sub(size)).any(|first| {
            let last = first + size - 1;
            (first + 1..last).all(|at| inner(self.group(at)))
                && self.group(first).len() >= outer
                && self.group(last).len() >= outer
        })
    }

    fn found(&self, kind: &'static str) -> Option<Found> {
        let ((start, _), (_, end)) = (*self.groups.first()?, *self.groups.last()?);
        Some(Found { start, end, kind: Some(kind) })
    }
}

/// Returns the addresses in a word and the hashes that it has already, in order and without overlaps.
///
/// Digits that touch an address are taken for a part of it: nothing tells where they end.
pub(super) fn find(word: &str) -> Vec<Found> {
    let hashes = hashes(word);
    let is_hashed = |at: usize| hashes.iter().any(|hash| (hash.start..hash.end).contains(&at));
    let mut found = hashes.clone();
    if word.bytes().filter(|byte| b".:-".contains(byte)).count() >= 2 {
        let decimal = |byte: u8| byte.is_ascii_digit();
        let hex = |byte: u8| byte.is_ascii_hexdigit();
        for separator in [b'.', b'-', b':'] {
            let runs = runs(word, separator, hex, is_hashed);
            found.extend(runs.iter().filter_map(|run| hardware(run, separator)));
        }
        for separator in [b'.', b'-'] {
            let runs = runs(word, separator, decimal, is_hashed);
            found.extend(runs.iter().filter_map(quad));
        }
        found.extend(compressed(word, is_hashed));
    }
    found.sort_by_key(|part| (part.start, part.end));
    let mut merged: Vec<Found> = Vec::new();
    for part in found {
        match merged.last_mut() {
            // An IPv6 address can end with an IPv4 one.
            Some(last) if part.start < last.end => {
                if (last.start, last.end) != (part.start, part.end) {
                    last.kind = Some("ip");
                }
                last.end = last.end.max(part.end);
            }
            _ => merged.push(part),
        }
    }
    merged
}

/// Whether a word has an address.
pub(super) fn has_address(word: &str) -> bool {
    find(word).iter().any(|part| part.kind.is_some())
}

/// Returns one spelling of an address for all that the kernel has: `%pi4` pads with zeros, Cisco's hardware addresses have dots.
pub(super) fn canonical(kind: &str, address: &str) -> String {
    let lower = address.to_ascii_lowercase();
    if kind == "mac" {
        let digits: String = lower.chars().filter(char::is_ascii_hexdigit).collect();
        return if digits.len() == HASH { digits } else { lower };
    }
    let groups: Vec<&str> = lower.split(['.', '-']).collect();
    if kind == "ip" && groups.len() == 4 && !lower.contains(':') {
        let short = |group: &&str| match group.trim_start_matches('0') {
            "" => "0".to_owned(),
            group => group.to_owned(),
        };
        return groups.iter().map(short).collect::<Vec<_>>().join(".");
    }
    lower.parse::<std::net::IpAddr>().map_or(lower, |address| address.to_string())
}

/// Returns each `KIND-` and hash that no letter or digit touches, in order.
pub(super) fn hashes(word: &str) -> Vec<Found> {
    let inside = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let bytes = word.as_bytes();
    let mut found = Vec::new();
    for (dash, _) in word.match_indices('-') {
        let (Some(before), Some(hash)) = (word.get(..dash), word.get(dash + 1..dash + 1 + HASH)) else {
            continue;
        };
        let Some(kind) = KINDS.iter().find(|kind| before.ends_with(**kind)) else { continue };
        let (start, end) = (dash - kind.len(), dash + 1 + HASH);
        let touched = inside(start.checked_sub(1).and_then(|at| bytes.get(at))) || inside(bytes.get(end));
        if !touched && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            found.push(Found { start, end, kind: None });
        }
    }
    found
}

/// Returns the groups of digits that one separator each joins.
fn runs(
    word: &str,
    separator: u8,
    is_digit: impl Fn(u8) -> bool,
    is_hashed: impl Fn(usize) -> bool,
) -> Vec<Run<'_>> {
    let mut runs = Vec::new();
    let mut groups: Vec<(usize, usize)> = Vec::new();
    let digits = word.bytes().enumerate().filter(|(at, byte)| is_digit(*byte) && !is_hashed(*at));
    for (at, _) in digits {
        match groups.last_mut() {
            Some((_, end)) if *end == at => *end = at + 1,
            Some((_, end)) if *end + 1 == at && word.as_bytes().get(*end) == Some(&separator) => {
                groups.push((at, at + 1));
            }
            _ => {
                runs.push(Run { text: word, groups: std::mem::take(&mut groups) });
                groups.push((at, at + 1));
            }
        }
    }
    runs.push(Run { text: word, groups });
    runs
}

/// `10.1.2.3`, and `10-1-2-3` as in the names that clouds give hosts.
fn quad(run: &Run) -> Option<Found> {
    let is_byte = |group: &str| group.len() <= 3 && group.parse::<u8>().is_ok();
    if run.has(4, 1, is_byte) { run.found("ip") } else { None }
}

/// Hardware addresses, UUIDs, and IPv6 addresses with all groups.
fn hardware(run: &Run, separator: u8) -> Option<Found> {
    let sizes: Vec<usize> = run.groups.iter().map(|(start, end)| end - start).collect();
    if separator != b':' {
        let is_cisco = run.has(3, 4, |group| group.len() == 4);
        let is_mac = separator == b'-' && run.has(6, 2, |group| group.len() == 2);
        let kind = if sizes == [8, 4, 4, 4, 12] { "uuid" } else { "mac" };
        return if run.has_digit() && (is_cisco || is_mac) { run.found(kind) } else { None };
    }
    let mut found = run.found(if sizes.len() == 8 { "ip" } else { "mac" })?;
    match sizes.as_slice() {
        // The number of a device or a port is next to it.
        [first, rest @ ..] if rest == [2; 6] && *first != 2 => found.start = run.groups.get(1)?.0,
        [rest @ .., last] if rest == [2; 6] && *last != 2 => found.end = run.groups.get(5)?.1,
        [] | [_] | [_, _] | [_, _, _] | [_, _, _, _] | [_, _, _, _, _] => return None,
        _ => {}
    }
    Some(found)
}

/// IPv6 addresses with `::`.
fn compressed(word: &str, is_hashed: impl Fn(usize) -> bool) -> Vec<Found> {
    let is_part = |at: usize, byte: u8| (byte.is_ascii_hexdigit() || byte == b':') && !is_hashed(at);
    let mut found = Vec::new();
    let mut start = None;
    for (at, byte) in word.bytes().enumerate().chain([(word.len(), b' ')]) {
        match (start, is_part(at, byte)) {
            (None, true) => start = Some(at),
            (Some(from), false) => {
                start = None;
                found.extend(compressed_run(word, from, at));
            }
            _ => {}
        }
    }
    found
}

fn compressed_run(word: &str, mut start: usize, mut end: usize) -> Option<Found> {
    let run = word.get(start..end)?;
    let has_digit =
        |group: &str| group.bytes().any(|byte| byte.is_ascii_digit()) && !RUST_TYPES.contains(&group);
    if !run.contains("::") || !run.split(':').any(has_digit) {
        return None;
    }
    if run.starts_with(':') && !run.starts_with("::") {
        start += 1;
    }
    if run.ends_with(':') && !run.ends_with("::") {
        end -= 1;
    }
    Some(Found { start, end, kind: Some("ip") })
}
