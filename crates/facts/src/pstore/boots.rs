//! Which records are of one event: records of several boots can have the same reason, count and parts.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use super::record::{Event, Part};
use super::{PANIC, PstoreError, Remark, crash_of, first_time, last_time, priority_and_line};

/// Seconds that may be between the records of one event: a slow backend takes a while, and copies are made one by one.
const GAP: u64 = 10;
/// Seconds between records of one event that say that they may be of several.
const DOUBTFUL: u64 = 600;
/// Events that are named as left out. The rest are counted.
const EVENTS: usize = 10;
/// Nanoseconds by which the clocks of CPUs may differ.
const SKEW: u64 = 1_000_000_000;

/// The parts of one event of one boot.
struct Written {
    event: Event,
    /// In order of the log.
    parts: Vec<Part>,
    /// When the newest of its files was written, in seconds since 1970.
    time: Option<u64>,
    release: Option<String>,
    /// Whether it has lines of a crash, once that was asked.
    has_crash: OnceCell<bool>,
}

/// Which event is explained, and what is to be said of the others.
pub(super) struct Choice {
    /// Its parts, in order of the log.
    pub(super) parts: Vec<Part>,
    /// Events that would be explained, but have no line of their crash.
    pub(super) faults: Vec<Remark>,
    pub(super) left_out: Vec<Remark>,
}

/// Chooses the event to explain: one with lines of a crash if there is any, a panic rather than an oops, one whose end is there, the newest
/// by the times at which its files were written, and then by its count.
///
/// # Errors
/// [`PstoreError::Twice`] if records of one name cannot be told apart.
pub(super) fn choose(parts: Vec<Part>, times: &[Option<u64>]) -> Result<Choice, PstoreError> {
    let (parts, mut copies) = without_copies(parts);
    let mut events: BTreeMap<Event, Vec<Part>> = BTreeMap::new();
    for part in parts {
        events.entry(part.event).or_default().push(part);
    }
    let (mut written, mut preferred, mut chosen) = (Vec::new(), None, None);
    // In order of reasons.
    let mut events = events.into_iter().peekable();
    while let Some(reason) = events.peek().map(|(event, _)| event.reason) {
        let start = written.len();
        while let Some((event, parts)) = events.next_if(|(event, _)| event.reason == reason) {
            // Those of the other reasons are left out in any case.
            let boots = if chosen.is_none() { divide(parts, times)? } else { vec![parts] };
            written.extend(boots.into_iter().map(|parts| Written::new(event, parts, times)));
        }
        let of_reason = start..written.len();
        preferred = preferred.or_else(|| newest(&written, of_reason.clone(), |_| true));
        let is_explained = |index: &usize| written.get(*index).is_some_and(Written::has_crash);
        chosen = chosen
            .or_else(|| preferred.filter(is_explained))
            .or_else(|| newest(&written, of_reason, Written::has_crash));
    }
    let chosen = chosen.or(preferred).ok_or(PstoreError::NoRecord)?;
    let without = preferred.filter(|index| *index != chosen);
    let mut faults = Vec::new();
    if let Some(without) = without.and_then(|index| written.get(index))
        && let Some(of) = without.event.crash()
    {
        let what = format!(
            "the records of {} are left out: they are of {of}, but have no line of it: these are missing or damaged",
            without.event
        );
        faults.push(Remark::new(without.files(), what));
    }
    let is_told = !faults.is_empty();
    let others: Vec<&Written> = written
        .iter()
        .enumerate()
        .filter(|(index, _)| *index != chosen && !(is_told && Some(*index) == without))
        .map(|(_, one)| one)
        .collect();
    let of_chosen = written.get(chosen).ok_or(PstoreError::NoRecord)?;
    let mut left_out: Vec<Remark> = of_chosen.doubt(times).into_iter().collect();
    left_out.extend(others.iter().take(EVENTS).map(|other| other.compared_with(of_chosen)));
    if let more @ 1.. = others.len().saturating_sub(EVENTS) {
        let what = format!("the records of {more} more events are left out");
        left_out.push(Remark::new(Vec::new(), what));
    }
    left_out.append(&mut copies);
    let parts = written.swap_remove(chosen).parts;
    Ok(Choice { parts, faults, left_out })
}

/// Returns the index of the newest of the events in a range that are as they should be.
fn newest(written: &[Written], range: Range<usize>, is_wanted: impl Fn(&Written) -> bool) -> Option<usize> {
    let numbered = written.iter().enumerate().skip(range.start).take(range.len());
    let candidates: Vec<(usize, &Written)> = numbered.filter(|(_, one)| is_wanted(one)).collect();
    let has_end = candidates.iter().any(|(_, one)| one.has_end());
    let with_end = candidates.iter().filter(|(_, one)| one.has_end() == has_end);
    let latest = with_end.clone().filter_map(|(_, one)| one.time).max();
    let is_newest = |one: &Written| {
        one.time.is_none_or(|time| latest.is_none_or(|latest| time.saturating_add(GAP) >= latest))
    };
    // Of those that are equal, the first has the end of the log.
    with_end
        .filter(|(_, one)| is_newest(one))
        .min_by_key(|(_, one)| std::cmp::Reverse(one.event.count))
        .map(|(index, _)| *index)
}

/// Returns each part once, in the same order, and what is to be said of the copies that are cut. Of those that are whole, nothing: a
/// file of all records can be next to its records.
fn without_copies(parts: Vec<Part>) -> (Vec<Part>, Vec<Remark>) {
    let mut sorted: Vec<usize> = (0..parts.len()).collect();
    let key = |index: &usize| parts.get(*index).map(|part| (part.event, part.number, part.text.as_str()));
    sorted.sort_by_key(key);
    sorted.dedup_by_key(|index| key(index));
    // Texts that begin with another follow it; those of one event and number that are not cut copies of another are kept.
    let (mut kept, mut cut) = (HashSet::new(), Vec::new());
    let mut longest: Option<&Part> = None;
    for index in sorted.into_iter().rev() {
        let Some(part) = parts.get(index) else { continue };
        match longest {
            Some(longest)
                if (longest.event, longest.number) == (part.event, part.number)
                    && longest.text.starts_with(&part.text) =>
            {
                cut.push((index, part, longest.file));
            }
            _ => {
                kept.insert(index);
                longest = Some(part);
            }
        }
    }
    cut.sort_by_key(|(index, ..)| *index);
    let mut remarks: Vec<Remark> = cut
        .iter()
        .take(EVENTS)
        .map(|(_, part, longest)| Remark {
            files: vec![part.file],
            what: format!(
                "part {} of {} is left out: it is the beginning of that in",
                part.number, part.event
            ),
            other: Some(*longest),
        })
        .collect();
    if let more @ 1.. = cut.len().saturating_sub(EVENTS) {
        remarks.push(Remark::new(Vec::new(), format!("{more} more copies that are cut are left out")));
    }
    let parts = parts.into_iter().enumerate().filter(|(index, _)| kept.contains(index));
    (parts.map(|(_, part)| part).collect(), remarks)
}

impl Written {
    fn new(event: Event, mut parts: Vec<Part>, times: &[Option<u64>]) -> Self {
        // The first part has the end of the log.
        parts.sort_by_key(|part| std::cmp::Reverse(part.number));
        let time = parts.iter().filter_map(|part| time_of(part, times)).max();
        let release = parts.iter().find_map(|part| part.release.clone());
        Self { event, parts, time, release, has_crash: OnceCell::new() }
    }

    /// Whether the log has lines of a crash.
    fn has_crash(&self) -> bool {
        *self.has_crash.get_or_init(|| crash_of(&self.parts).is_some())
    }

    /// When the kernel wrote that it panics, in nanoseconds since it started.
    fn panicked(&self) -> Option<u64> {
        let lines = self.parts.iter().flat_map(|part| part.text.lines()).map(priority_and_line);
        let mut panics = lines.filter(|(_, line)| line.text.starts_with(PANIC));
        panics.next().map(|(_, line)| line.nanoseconds)
    }

    /// In ascending order.
    fn files(&self) -> Vec<usize> {
        let mut files: Vec<usize> = self.parts.iter().map(|part| part.file).collect();
        files.sort_unstable();
        files.dedup();
        files
    }

    fn has_end(&self) -> bool {
        self.parts.last().is_some_and(|part| part.number == 1)
    }

    /// Says that its files may be of different boots, though their text does not show it.
    fn doubt(&self, times: &[Option<u64>]) -> Option<Remark> {
        let oldest = self.parts.iter().filter_map(|part| time_of(part, times)).min()?;
        let apart = self.time?.saturating_sub(oldest);
        (apart > DOUBTFUL).then(|| {
            let (event, minutes) = (self.event, apart / 60);
            let what = format!(
                "the files of {event} were written {minutes} minutes apart: they may be of different boots"
            );
            Remark::new(Vec::new(), what)
        })
    }

    fn end(&self) -> u64 {
        self.parts.iter().map(|part| last_time(&part.text)).max().unwrap_or(0)
    }

    /// Returns why this is another event than the one that is explained.
    fn compared_with(&self, chosen: &Self) -> Remark {
        let other_release = match (&self.release, &chosen.release) {
            (Some(one), Some(other)) if one != other => format!(", of Linux {one}"),
            _ => String::new(),
        };
        let (own, others) = (self.event, chosen.event);
        let (earlier, later) = if own.count < others.count { (self, chosen) } else { (chosen, self) };
        // `pstore_dump` counts each event of a boot, and no crash follows a panic.
        let is_other_boot = !other_release.is_empty()
            || own.count == others.count && (own.reason != others.reason || self.has_other_times(chosen))
            || own != others && own.is_panic() && others.is_panic()
            || own.count != others.count && earlier.event.is_panic() && later.event.is_crash();
        // A log that is cut ends earlier than it should, but for one that has the panic.
        let goes_back = own.count != others.count && earlier.end() > later.end().saturating_add(SKEW);
        let is_whole = || later.panicked().is_some_and(|time| earlier.end() > time.saturating_add(SKEW));
        let is_other_boot = is_other_boot || goes_back && later.event.is_panic() && is_whole();
        let why = match (is_other_boot, self.time, chosen.time) {
            (true, ..) => format!("they are of another boot{other_release}"),
            _ if goes_back => "they are perhaps of another boot".to_owned(),
            _ if own != others => "they are of another event".to_owned(),
            (_, Some(time), Some(of_chosen)) if time != of_chosen => format!(
                "they were written {} {}, so they are perhaps of another boot",
                duration(time.abs_diff(of_chosen)),
                if time < of_chosen { "earlier" } else { "later" }
            ),
            _ => "they are perhaps of another boot".to_owned(),
        };
        Remark::new(self.files(), format!("the records of {own} are left out: {why}"))
    }

    /// Returns whether the times in the log show that parts of the same event are of another boot than those of `chosen`: one part has
    /// another time, or times go back from one to the next.
    fn has_other_times(&self, chosen: &Self) -> bool {
        self.parts.iter().any(|own| {
            let (older, others) =
                chosen.parts.split_at(chosen.parts.partition_point(|other| other.number > own.number));
            let is_same = |other: &&Part| other.number == own.number;
            let newer = others.iter().find(|other| !is_same(other));
            others.first().filter(is_same).is_some_and(|same| starts_at_another_time(own, same))
                || older.last().is_some_and(|older| !precedes(older, own))
                || newer.is_some_and(|newer| !precedes(own, newer))
        })
    }
}

fn duration(seconds: u64) -> String {
    if seconds > DOUBTFUL { format!("{} minutes", seconds / 60) } else { format!("{seconds} s") }
}

fn starts_at_another_time(one: &Part, other: &Part) -> bool {
    let (one, other) = (first_time(&one.text), first_time(&other.text));
    one != other && one != u64::MAX && other != u64::MAX
}

fn time_of(part: &Part, times: &[Option<u64>]) -> Option<u64> {
    times.get(part.file).copied().flatten()
}

/// Divides parts of the same event by the boots that wrote them, if their text shows that there are several.
fn divide(mut parts: Vec<Part>, times: &[Option<u64>]) -> Result<Vec<Vec<Part>>, PstoreError> {
    if are_of_one_boot(&mut parts) {
        return Ok(vec![parts]);
    }
    if parts.iter().any(|part| time_of(part, times).is_none()) {
        return divide_by_log(parts);
    }
    parts.sort_by_key(|part| time_of(part, times));
    let mut boots = Vec::new();
    let is_near = |one: &Part, next: &Part| match (time_of(one, times), time_of(next, times)) {
        (Some(one), Some(next)) => next.saturating_sub(one) <= GAP,
        _ => true,
    };
    for parts in parts.chunk_by(is_near) {
        let mut parts = parts.to_vec();
        match are_of_one_boot(&mut parts) {
            true => boots.push(parts),
            false => boots.extend(divide_by_log(parts)?),
        }
    }
    Ok(boots)
}

/// Brings parts in the order of the log. Returns whether they can be of one boot.
fn are_of_one_boot(parts: &mut [Part]) -> bool {
    parts.sort_by_key(|part| std::cmp::Reverse(part.number));
    let mut releases = parts.iter().filter_map(|part| part.release.as_deref());
    let release = releases.next();
    let is_one_kernel = releases.all(|other| release == Some(other));
    let follow = |pair: &[Part]| match pair {
        [older, newer] => older.number != newer.number && precedes(older, newer),
        _ => true,
    };
    is_one_kernel && parts.windows(2).all(follow)
}

/// Returns whether the times of a part are before those of the part that follows it in the log.
fn precedes(older: &Part, newer: &Part) -> bool {
    last_time(&older.text) <= first_time(&newer.text).saturating_add(SKEW)
}

/// Divides parts into those that end with the end of the log, and all others.
fn divide_by_log(mut parts: Vec<Part>) -> Result<Vec<Vec<Part>>, PstoreError> {
    parts.sort_by_key(|part| part.number);
    let (mut chain, mut others): (Vec<Part>, Vec<Part>) = (Vec::new(), Vec::new());
    let mut release = None;
    for same in parts.chunk_by(|one, next| one.number == next.number) {
        let fits = |part: &&Part| {
            chain.last().is_none_or(|newer| precedes(part, newer))
                && part
                    .release
                    .as_ref()
                    .is_none_or(|own| release.as_ref().is_none_or(|release| release == own))
        };
        let mut fitting = same.iter().filter(fits);
        let (found, another) = (fitting.next(), fitting.next());
        if let (Some(one), Some(other)) = (found, another) {
            return Err(PstoreError::Twice {
                reason: one.event.name_of_reason(),
                count: one.event.count,
                part: one.number,
                files: [one.file, other.file],
            });
        }
        let found = found.cloned();
        others.extend(
            same.iter().filter(|part| found.as_ref().is_none_or(|found| part.file != found.file)).cloned(),
        );
        if let Some(found) = found {
            release = release.or_else(|| found.release.clone());
            chain.push(found);
        }
    }
    chain.reverse();
    others.reverse();
    Ok([chain, others].into_iter().filter(|parts| !parts.is_empty()).collect())
}

#[cfg(test)]
mod tests {
    use super::super::{PstoreFile, PstoreRecords};
    use super::*;
    use crate::Facts;

    fn read(files: &[(String, Option<u64>)]) -> Result<PstoreRecords, PstoreError> {
        let file =
            |(text, written): &(String, _)| PstoreFile { bytes: text.clone().into(), written: *written };
        Facts::from_pstore(&files.iter().map(file).collect::<Vec<_>>(), "test".into())
    }

    fn sentences(records: &PstoreRecords) -> Vec<String> {
        records.left_out.iter().map(|remark| remark.sentence(|file| format!("file {file}"))).collect()
    }

    fn part(event: &str, number: u32, seconds: u32, release: &str) -> String {
        format!("{event} Part{number}\n<0>[ {seconds:4}.000000] Linux version {release} (x)\n")
    }

    #[test]
    fn the_newest_of_several_boots_is_explained_alone() {
        let boot = |seconds: u32, written: u64| {
            let panic = format!("<0>[ {seconds:4}.000000] Kernel panic - not syncing: x\n");
            [(1, panic.as_str()), (2, "")].map(|(number, end)| {
                (part("Panic#1", number, seconds - number, "6.1.0") + end, Some(written))
            })
        };
        let (old, new) = (boot(100, 5000), boot(70, 9000));
        for files in [[old.clone(), new.clone()], [new.clone(), old.clone()]] {
            let at_new = usize::from(files[0] == old) * 2;
            let records = read(&files.concat()).unwrap();
            assert_eq!(records.files, [at_new + 1, at_new]);
            assert_eq!(records.facts.log[0].time_ns, 68_000_000_000);
            let files = if at_new == 2 { "file 0, file 1" } else { "file 2, file 3" };
            let left_out = format!("{files}: the records of Panic#1 are left out: they are of another boot");
            assert_eq!((sentences(&records), records.faults.len()), (vec![left_out], 0));
        }
        // What is left out need not be told apart.
        let mut files = boot(70, 9000).to_vec();
        files.extend([1, 2].map(|seconds| (part("Oops#1", 1, seconds, "6.1.0"), Some(9000))));
        let left_out = "file 2, file 3: the records of Oops#1 are left out: they are of another boot";
        assert_eq!(sentences(&read(&files).unwrap()), [left_out]);
        // Of copies that were made at once, nothing tells them apart.
        let copies: Vec<_> = [old, new].concat().into_iter().map(|(text, _)| (text, Some(9000))).collect();
        let twice = PstoreError::Twice { reason: "Panic", count: 1, part: 1, files: [0, 2] };
        assert_eq!(read(&copies).unwrap_err(), twice);
    }

    #[test]
    fn a_copy_that_is_cut_is_left_out() {
        let end =
            "Panic#1 Part1\n<0>[    3.000000] Kernel panic - not syncing: x\n<4>[    3.100000] Call Trace:\n";
        let whole = [(part("Panic#1", 2, 1, "6.1.0"), Some(5000)), (end.to_owned(), Some(5000))];
        let facts = read(&whole).unwrap().facts;
        for kept in [17, 40, 62, end.len() - 1] {
            for (at, written) in [(0, 5020), (2, 5020), (1, 4000), (2, 5000)] {
                let mut files = whole.to_vec();
                files.insert(at, (end[..kept].to_owned(), Some(written)));
                let records = read(&files).unwrap();
                let of = if at == 2 { 1 } else { 2 };
                let left_out = format!(
                    "file {at}: part 1 of Panic#1 is left out: it is the beginning of that in file {of}"
                );
                assert_eq!(sentences(&records), [left_out], "{kept}");
                assert!(records.faults.is_empty());
                assert_eq!((&records.facts.log, &records.facts.crash), (&facts.log, &facts.crash));
            }
        }
        // They are counted.
        let mut files = whole.to_vec();
        files.extend((20..50).map(|kept| (end[..kept].to_owned(), None)));
        let said = sentences(&read(&files).unwrap());
        assert_eq!(
            (said.len(), said[EVENTS].as_str()),
            (EVENTS + 1, "20 more copies that are cut are left out")
        );
    }

    #[test]
    fn what_does_not_show_another_boot_is_no_proof() {
        let end = |text: &str| format!("Panic#1 Part1\n<0>[    3.000000] one\n<0>[    3.000000] {text}\n");
        for (written, what) in [(5020, "20 s"), (6200, "20 minutes")] {
            let files = [
                (part("Panic#1", 2, 1, "6.1.0"), Some(5000)),
                (end("a"), Some(5000)),
                (end("b"), Some(written)),
            ];
            let left_out = format!(
                "file 0, file 1: the records of Panic#1 are left out: they were written {what} earlier, so they are \
                 perhaps of another boot"
            );
            assert_eq!(sentences(&read(&files).unwrap()), [left_out]);
        }
    }

    #[test]
    fn a_line_that_is_cut_has_no_time() {
        let two = part("Panic#1", 2, 9, "6.1.0");
        for kept in ["<0>[   1", "<0>[   12.3", "<0>[   12.345678", "<0>[    1.000000] x"] {
            let records = read(&[(two.clone(), None), (format!("Panic#1 Part1\n{kept}"), None)]).unwrap();
            assert_eq!((records.files, records.left_out.len()), (vec![0, 1], 0), "{kept}");
            assert_eq!(records.faults.len(), 1);
        }
        // Neither has a line without one.
        for lines in ["<0>x\n", "<0>[    1.00\n", "<0>[    9.000000] x\n<0>[    1.00"] {
            let records = read(&[(two.clone(), None), (format!("Panic#1 Part1\n{lines}"), None)]).unwrap();
            assert_eq!((records.files, records.left_out.len()), (vec![0, 1], 0), "{lines}");
        }
        let older = ("Panic#1 Part2\n<0>[    1.000000] x\n<0>[   99.000000] y".to_owned(), None);
        let end = (part("Panic#1", 1, 9, "6.1.0"), None);
        assert_eq!(read(&[older, end]).unwrap().files, [0, 1]);
    }

    #[test]
    fn a_panic_is_explained_rather_than_an_oops_of_another_kernel() {
        let (panic, oops) = (part("Panic#2", 1, 50, "6.12.1"), part("Oops#1", 1, 20, "5.10.0"));
        let records = read(&[(oops, Some(9000)), (panic, Some(5000))]).unwrap();
        assert_eq!(records.facts.release.as_deref(), Some("6.12.1"));
        let left_out =
            "file 0: the records of Oops#1 are left out: they are of another boot, of Linux 5.10.0";
        assert_eq!(sentences(&records), [left_out]);
        // Of the same boot; of a later time of another one; a panic is the last event.
        let panic = "Panic#2 Part1\n<0>[   50.000000] Kernel panic - not syncing: x\n";
        for (event, seconds, of) in [
            ("Oops#1", 20, "of another event"),
            ("Oops#1", 90, "of another boot"),
            ("Oops#3", 20, "of another boot"),
            ("Panic#1", 20, "of another boot"),
        ] {
            let files = [(part(event, 1, seconds, "6.12.1"), None), (panic.to_owned(), None)];
            let left_out = format!("file 0: the records of {event} are left out: they are {of}");
            assert_eq!(sentences(&read(&files).unwrap()), [left_out]);
        }
        // The end of the panic may be missing.
        let panic = (part("Panic#2", 1, 50, "6.12.1"), None);
        let records = read(&[(part("Oops#1", 1, 90, "6.12.1"), None), panic]).unwrap();
        let left_out = "file 0: the records of Oops#1 are left out: they are perhaps of another boot";
        assert_eq!(sentences(&records), [left_out]);
    }

    #[test]
    fn the_newest_is_explained_whatever_newer_ones_lack() {
        // The newest decides which are of its time.
        let panic = |count: u32, line: &str, written| {
            (format!("Panic#{count} Part1\n<0>[    3.000000] {line}\n"), Some(written))
        };
        let whole = "Kernel panic - not syncing: x";
        let files = [panic(9, whole, 4985), panic(5, whole, 4995), panic(1, "x", 5000)];
        let records = read(&files).unwrap();
        assert_eq!((records.files, records.faults.len(), records.left_out.len()), (vec![1], 0, 2));
    }

    #[test]
    fn records_with_a_crash_are_explained_rather_than_those_without() {
        let oops = "Oops#1 Part1\n<1>[    5.000000] BUG: kernel NULL pointer dereference, address: 0000000000000008\n";
        let cut = |event: &str| format!("{event} Part1\n<6>[    3.000000] x\n");
        let what = "they are of a panic, but have no line of it: these are missing or damaged";
        for (panic, oops_written) in [("Panic#2", 5000), ("Panic#2", 1000), ("Panic#1", 5000)] {
            let records = read(&[(oops.into(), Some(oops_written)), (cut(panic), Some(5000))]).unwrap();
            assert!(records.facts.crash.is_some() && records.files == [0]);
            let fault = format!("file 2: the records of {panic} are left out: {what}");
            assert!(records.left_out.is_empty());
            assert!(records.facts.missing.iter().any(|missing| missing.reason == fault));
            assert_eq!(records.faults.iter().map(Remark::numbered).collect::<Vec<_>>(), [fault]);
        }
        // The newest of those that have one, and all others are named.
        let files = [
            (oops.to_owned(), Some(1000)),
            (oops.replace("Oops#1", "Oops#2"), Some(2000)),
            (cut("Oops#3"), Some(9000)),
            (cut("Restart#1"), Some(9900)),
        ];
        let records = read(&files).unwrap();
        assert_eq!((records.files, records.faults.len(), records.left_out.len()), (vec![1], 1, 2));
        // Records of a shutdown that lack lines are not reported: no crash is lost with them.
        let records = read(&[files[3].clone(), files[0].clone()]).unwrap();
        assert_eq!((records.files, records.faults.len(), records.left_out.len()), (vec![1], 0, 1));
        let with_crash = oops.replace("Oops", "Shutdown");
        let records = read(&[(with_crash, Some(1000)), (cut("Shutdown#2"), Some(2000))]).unwrap();
        assert_eq!((records.files, records.faults.len(), records.left_out.len()), (vec![0], 0, 1));
    }

    #[test]
    fn parts_of_two_kernels_or_of_times_that_go_back_are_not_joined() {
        let end = part("Panic#1", 1, 50, "6.12.1");
        for other in [part("Panic#1", 2, 20, "6.1.0"), part("Panic#1", 2, 60, "6.12.1")] {
            for (of_end, of_other) in [(None, None), (Some(5000), Some(9000))] {
                let records = read(&[(other.clone(), of_other), (end.clone(), of_end)]).unwrap();
                assert_eq!(records.files, [1], "the end of the log has the crash");
                assert!(sentences(&records)[0].starts_with("file 0: the records of Panic#1 are left out"));
            }
        }
        // Only the files show it.
        let earlier = part("Panic#1", 2, 20, "6.12.1");
        let records = read(&[(earlier.clone(), Some(1000)), (end.clone(), Some(2800))]).unwrap();
        assert_eq!(records.files, [0, 1]);
        let doubt = "the files of Panic#1 were written 30 minutes apart: they may be of different boots";
        assert_eq!(sentences(&records), [doubt]);
        assert!(read(&[(earlier, Some(1000)), (end, Some(1030))]).unwrap().left_out.is_empty());
    }

    #[test]
    fn many_events_are_counted() {
        let files: Vec<_> =
            (1..40).map(|count| (part(&format!("Oops#{count}"), 1, count, "6.1.0"), None)).collect();
        let records = read(&files).unwrap();
        assert_eq!(records.facts.log[0].time_ns, 39_000_000_000);
        assert_eq!(sentences(&records).len(), EVENTS + 1);
        assert_eq!(sentences(&records)[EVENTS], "the records of 28 more events are left out");
    }
}
