//! Stalls as a Perfetto trace: a track for each task that stalled and for each kswapd.
//!
//! The format is protocol buffers, `protos/perfetto/trace/trace.proto` of Perfetto. Only the fields below are written.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::model::AllIntervals;

/// The one writer of the trace.
const SEQUENCE: u64 = 1;
/// `SEQ_INCREMENTAL_STATE_CLEARED`: nothing before the first packet is needed.
const SEQUENCE_STARTS: u64 = 1;
/// Tracks of kswapd have the numbers of nodes, tracks of tasks those of threads after this.
const TASKS: u64 = 1 << 32;

/// Fields of messages, by the names of Perfetto.
mod field {
    pub(super) const TRACE_PACKET: u32 = 1;

    pub(super) const PACKET_TIMESTAMP: u32 = 8;
    pub(super) const PACKET_SEQUENCE_ID: u32 = 10;
    pub(super) const PACKET_TRACK_EVENT: u32 = 11;
    pub(super) const PACKET_SEQUENCE_FLAGS: u32 = 13;
    pub(super) const PACKET_TRACK_DESCRIPTOR: u32 = 60;

    pub(super) const TRACK_UUID: u32 = 1;
    pub(super) const TRACK_NAME: u32 = 2;

    pub(super) const EVENT_ANNOTATION: u32 = 4;
    pub(super) const EVENT_TYPE: u32 = 9;
    pub(super) const EVENT_TRACK_UUID: u32 = 11;
    pub(super) const EVENT_CATEGORY: u32 = 22;
    pub(super) const EVENT_NAME: u32 = 23;

    pub(super) const ANNOTATION_UINT: u32 = 3;
    pub(super) const ANNOTATION_INT: u32 = 4;
    pub(super) const ANNOTATION_NAME: u32 = 10;
}

/// `TrackEvent.Type`.
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;

/// Returns the intervals as a Perfetto trace. Times are those of the recording's clock.
pub fn perfetto(intervals: AllIntervals) -> Vec<u8> {
    let mut out = Vec::new();
    for (uuid, (name, slices)) in tracks(intervals) {
        let mut track = Vec::new();
        number(&mut track, field::TRACK_UUID, uuid);
        bytes(&mut track, field::TRACK_NAME, name.as_bytes());
        let flags = if out.is_empty() { SEQUENCE_STARTS } else { 0 };
        packet(&mut out, None, flags, field::PACKET_TRACK_DESCRIPTOR, &track);
        put_slices(&mut out, uuid, slices);
    }
    out
}

/// A slice of a track.
struct Slice {
    begin: u64,
    end: u64,
    /// Name, category and annotations, encoded.
    event: Vec<u8>,
}

/// Returns the name and the slices of each track.
fn tracks(intervals: AllIntervals) -> BTreeMap<u64, (String, Vec<Slice>)> {
    let mut tracks: BTreeMap<u64, (String, Vec<Slice>)> = BTreeMap::new();
    for (node, begin, end) in intervals.kswapd {
        let uuid = 1 + u64::from(node.unsigned_abs());
        let track = tracks.entry(uuid).or_insert_with(|| (format!("kswapd{node}"), Vec::new()));
        track.1.push(Slice { begin, end, event: event("awake", "kswapd") });
    }
    for stall in intervals.stalls {
        let uuid = TASKS + u64::from(stall.pid.unsigned_abs());
        let track =
            tracks.entry(uuid).or_insert_with(|| (format!("{}/{}", stall.comm, stall.pid), Vec::new()));
        let mut event = event(stall.reclaimer.name(), "reclaim");
        annotate(&mut event, "order", field::ANNOTATION_INT, i64::from(stall.order) as u64);
        for (name, value) in [
            ("scanned_pages", stall.scanned),
            ("reclaimed_pages", stall.reclaimed),
            ("written_folios", stall.written),
            ("throttled_ns", stall.throttled_ns),
            ("shrinkers_ns", stall.shrinkers_ns),
            ("compaction_ns", stall.compaction_ns),
            ("unfinished", u64::from(stall.unfinished)),
            ("uncertain", u64::from(stall.uncertain)),
        ] {
            if value > 0 {
                annotate(&mut event, name, field::ANNOTATION_UINT, value);
            }
        }
        let end = stall.begin_ns.saturating_add(stall.duration_ns);
        track.1.push(Slice { begin: stall.begin_ns, end, event });
    }
    tracks
}

/// Writes the slices of a track, properly nested: one that begins in another ends in it.
fn put_slices(out: &mut Vec<u8>, uuid: u64, mut slices: Vec<Slice>) {
    slices.sort_by_key(|slice| (slice.begin, Reverse(slice.end)));
    let mut put = |time: u64, kind: u64, rest: &[u8]| {
        let mut event = Vec::new();
        number(&mut event, field::EVENT_TYPE, kind);
        number(&mut event, field::EVENT_TRACK_UUID, uuid);
        event.extend_from_slice(rest);
        packet(out, Some(time), 0, field::PACKET_TRACK_EVENT, &event);
    };
    let mut open: Vec<u64> = Vec::new();
    for slice in slices {
        while let Some(end) = open.pop_if(|end| *end <= slice.begin) {
            put(end, SLICE_END, &[]);
        }
        put(slice.begin, SLICE_BEGIN, &slice.event);
        open.push(open.last().map_or(slice.end, |outer| slice.end.min(*outer)));
    }
    while let Some(end) = open.pop() {
        put(end, SLICE_END, &[]);
    }
}

fn event(name: &str, category: &str) -> Vec<u8> {
    let mut event = Vec::new();
    bytes(&mut event, field::EVENT_CATEGORY, category.as_bytes());
    bytes(&mut event, field::EVENT_NAME, name.as_bytes());
    event
}

fn annotate(event: &mut Vec<u8>, name: &str, kind: u32, value: u64) {
    let mut annotation = Vec::new();
    number(&mut annotation, kind, value);
    bytes(&mut annotation, field::ANNOTATION_NAME, name.as_bytes());
    bytes(event, field::EVENT_ANNOTATION, &annotation);
}

fn packet(out: &mut Vec<u8>, time: Option<u64>, flags: u64, kind: u32, message: &[u8]) {
    let mut packet = Vec::new();
    if let Some(time) = time {
        number(&mut packet, field::PACKET_TIMESTAMP, time);
    }
    number(&mut packet, field::PACKET_SEQUENCE_ID, SEQUENCE);
    if flags > 0 {
        number(&mut packet, field::PACKET_SEQUENCE_FLAGS, flags);
    }
    bytes(&mut packet, kind, message);
    bytes(out, field::TRACE_PACKET, &packet);
}

/// A field of wire type 0.
fn number(out: &mut Vec<u8>, field: u32, value: u64) {
    varint(out, u64::from(field) << 3);
    varint(out, value);
}

/// A field of wire type 2: bytes, text, or a message.
fn bytes(out: &mut Vec<u8>, field: u32, value: &[u8]) {
    varint(out, u64::from(field) << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads varint and delimited fields: number, and value or contents.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
        let take = |bytes: &mut &[u8]| {
            let (mut value, mut shift) = (0, 0);
            loop {
                let (byte, rest) = bytes.split_first().unwrap();
                *bytes = rest;
                value |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    return value;
                }
            }
        };
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let key = take(&mut bytes);
            let value = take(&mut bytes);
            let contents =
                if key & 7 == 2 { bytes.split_off(..value as usize).unwrap().to_vec() } else { Vec::new() };
            found.push((key >> 3, value, contents));
        }
        found
    }

    /// Time and type of the events of a track.
    fn events(slices: &[(u64, u64)]) -> Vec<(u64, u64)> {
        let slices = slices.iter().map(|(begin, end)| Slice { begin: *begin, end: *end, event: Vec::new() });
        let mut out = Vec::new();
        put_slices(&mut out, 7, slices.collect());
        let packets = fields(&out).into_iter().map(|(_, _, packet)| fields(&packet));
        packets
            .map(|packet| {
                let event = packet.iter().find(|(field, _, _)| *field == 11).unwrap();
                (packet[0].1, fields(&event.2)[0].1)
            })
            .collect()
    }

    #[test]
    fn slices_of_a_track_nest() {
        assert_eq!(events(&[(5, 9), (1, 4)]), [(1, 1), (4, 2), (5, 1), (9, 2)]);
        assert_eq!(events(&[(2, 3), (1, 4)]), [(1, 1), (2, 1), (3, 2), (4, 2)]);
        // One that lost its end ends with the outer one.
        assert_eq!(events(&[(1, 4), (2, 9)]), [(1, 1), (2, 1), (4, 2), (4, 2)]);
        assert_eq!(events(&[(3, 3), (3, 3)]), [(3, 1), (3, 2), (3, 1), (3, 2)]);
    }

    #[test]
    fn a_recording_gives_a_track_for_each_task_and_kswapd() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/guest-6.12.pht");
        let mut file = pagehaul_trace::TraceFile::open(std::path::Path::new(path)).unwrap();
        let (report, intervals) = crate::analyse_all(&mut file, path, "").unwrap();
        let awake = intervals.kswapd.len() as u64;
        let trace = perfetto(intervals);
        let (mut names, mut begins, mut ends) = (Vec::new(), 0_u64, 0_u64);
        for (_, _, packet) in fields(&trace) {
            for (field, _, message) in fields(&packet) {
                match field {
                    60 => names.push(String::from_utf8(fields(&message)[1].2.clone()).unwrap()),
                    11 if fields(&message)[0].1 == SLICE_BEGIN => begins += 1,
                    11 => ends += 1,
                    _ => {}
                }
            }
        }
        let stalls: u64 = report.stalls.iter().map(|stalls| stalls.count).sum();
        assert!(names.contains(&"kswapd0".to_owned()) && names.len() > 2, "{names:?}");
        assert!(
            begins == ends && begins == stalls + awake && stalls > 0 && awake > 0,
            "{begins} {ends} {stalls}"
        );
    }
}
