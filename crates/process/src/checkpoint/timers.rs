//! Periodic timers (timerfd) that had expired when CRIU saved them.
//!
//! The kernel does not start such a timer again before its process reads the descriptor, and until then shows no time to its
//! next expiry. CRIU restores that as a timer that is not armed, which never fires again (its issue 3162).

use super::protobuf::{Value, field, message, put, put_message};

/// CRIU's image of open files.
pub(super) const IMAGE: &str = "files.img";
/// Bytes of an image's magic numbers.
const MAGIC: usize = 8;
/// The timer in an entry (images/fdinfo.proto).
const TIMER: u64 = 12;
/// Fields of a timer (images/timerfd.proto): expirations that were not read; seconds and nanoseconds to the next one; those
/// between two.
const TICKS: u64 = 5;
const NEXT: [u64; 2] = [7, 8];
const INTERVAL: [u64; 2] = [9, 10];

/// Has expired periodic timers in an image of open files fire one interval after the restart. Returns the image and the
/// number of these timers. None if it is not as CRIU writes it.
pub(crate) fn rearm(image: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (magic, mut rest) = image.split_at_checked(MAGIC)?;
    let (mut out, mut count) = (magic.to_vec(), 0);
    while !rest.is_empty() {
        let (entry, after) = message(rest)?;
        rest = after;
        match rearm_entry(entry)? {
            Some(changed) => {
                count += 1;
                put_message(&mut out, &changed);
            }
            None => put_message(&mut out, entry),
        }
    }
    Some((out, count))
}

/// An entry, if it changes.
fn rearm_entry(mut entry: &[u8]) -> Option<Option<Vec<u8>>> {
    let (mut out, mut is_changed) = (Vec::new(), false);
    while !entry.is_empty() {
        let (number, value, after) = field(entry)?;
        entry = after;
        match value {
            Value::Bytes(timer) if number == TIMER => {
                let changed = rearm_timer(timer)?;
                is_changed |= changed.is_some();
                put(&mut out, number, Value::Bytes(changed.as_deref().unwrap_or(timer)));
            }
            value => put(&mut out, number, value),
        }
    }
    Some(is_changed.then_some(out))
}

/// A timer, if it has expired and is periodic.
fn rearm_timer(timer: &[u8]) -> Option<Option<Vec<u8>>> {
    let (mut fields, mut rest) = (Vec::new(), timer);
    while !rest.is_empty() {
        let (number, value, after) = field(rest)?;
        rest = after;
        fields.push((number, value));
    }
    let of = |wanted: u64| {
        fields.iter().find_map(|(number, value)| match value {
            Value::Number(value) if *number == wanted => Some(*value),
            _ => None,
        })
    };
    let both = |numbers: [u64; 2]| Some([of(numbers[0])?, of(numbers[1])?]);
    let (next, interval) = (both(NEXT)?, both(INTERVAL)?);
    // One that was disarmed has no expirations.
    if of(TICKS)? == 0 || next != [0, 0] || interval == [0, 0] {
        return Some(None);
    }
    let mut out = Vec::with_capacity(timer.len() + 10);
    for (number, value) in fields {
        match NEXT.iter().position(|wanted| *wanted == number) {
            Some(which) => put(&mut out, number, Value::Number(interval[which])),
            None => put(&mut out, number, value),
        }
    }
    Some(Some(out))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An image with another file, and a timer.
    fn image(ticks: u64, next: [u64; 2], interval: [u64; 2]) -> Vec<u8> {
        let mut timer = Vec::new();
        for (number, value) in [(1, 9), (2, 2)] {
            put(&mut timer, number, Value::Number(value));
        }
        put(&mut timer, 3, Value::Bytes(&[8, 0]));
        let numbers = [1, ticks, 0, next[0], next[1], interval[0], interval[1]];
        (4..).zip(numbers).for_each(|(number, value)| put(&mut timer, number, Value::Number(value)));
        let mut out = vec![7; MAGIC];
        put_message(&mut out, &[8, 1, 16, 3, 26, 1, 5]);
        let mut entry = vec![8, 17, 16, 9];
        put(&mut entry, TIMER, Value::Bytes(&timer));
        put_message(&mut out, &entry);
        out
    }

    #[test]
    fn expired_periodic_timers_are_armed_again() {
        let expired = image(3, [0, 0], [2, 500_000_000]);
        assert_eq!(rearm(&expired), Some((image(3, [2, 500_000_000], [2, 500_000_000]), 1)));
        // Running; expired once and for all; not armed.
        for (ticks, next, interval) in
            [(0, [1, 5], [2, 0]), (3, [0, 7], [2, 0]), (1, [0, 0], [0, 0]), (0, [0, 0], [2, 0])]
        {
            let same = image(ticks, next, interval);
            assert_eq!(rearm(&same), Some((same.clone(), 0)));
        }
        assert_eq!(rearm(&expired[..expired.len() - 1]), None);
    }

    proptest! {
        #[test]
        fn any_image_is_no_reason_to_panic(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = rearm(&bytes);
        }
    }
}
