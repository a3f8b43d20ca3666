use std::borrow::Cow;

use crate::abi::Abi;
use crate::comms::Comms;
use crate::format::{EventFormat, FieldKind, Slot};

/// A trace event, borrowed from the buffer that holds it.
#[derive(Debug, Clone, Copy)]
pub struct Event<'a> {
    pub(crate) ts: u64,
    pub(crate) cpu: u32,
    pub(crate) after_gap: bool,
    pub(crate) format: &'a EventFormat,
    pub(crate) body: Body<'a>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Body<'a> {
    Binary { data: &'a [u8], abi: Abi, comms: &'a Comms },
    Text { line: &'a [u8], values: &'a [Value], pid: i32, comm: &'a str },
}

/// A value of a text line, with its number if it is numeric.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Value {
    pub(crate) span: Span,
    pub(crate) number: Option<u64>,
}

/// Byte range of a value in a text line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// First byte.
    pub(crate) start: u32,
    /// One past the last byte.
    pub(crate) end: u32,
}

impl Span {
    /// Lines are shorter than 4 GiB.
    #[inline]
    pub(crate) fn new(start: usize, end: usize) -> Self {
        Self { start: start as u32, end: end as u32 }
    }

    /// Returns the bytes of a line; none if the span is not of this line.
    #[inline]
    pub(crate) fn of(self, line: &[u8]) -> &[u8] {
        line.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

impl<'a> Event<'a> {
    /// Returns the time stamp in nanoseconds of the trace clock.
    #[inline]
    pub fn ts(&self) -> u64 {
        self.ts
    }

    /// Returns the CPU that recorded the event.
    #[inline]
    pub fn cpu(&self) -> u32 {
        self.cpu
    }

    /// Returns whether events of this CPU were lost or unreadable just before this one, so that a begin or an
    /// end may be missing.
    #[inline]
    pub fn after_gap(&self) -> bool {
        self.after_gap
    }

    /// Returns the format of the event.
    #[inline]
    pub fn format(&self) -> &'a EventFormat {
        self.format
    }

    /// Returns the PID of the current task, or -1 if the trace does not have it.
    #[inline]
    pub fn pid(&self) -> i32 {
        match self.body {
            Body::Binary { .. } => {
                self.format.common_pid.and_then(|slot| self.i64(slot)).map_or(-1, |pid| pid as i32)
            }
            Body::Text { pid, .. } => pid,
        }
    }

    /// Returns the name of the current task, if known.
    pub fn comm(&self) -> Option<&'a str> {
        match self.body {
            Body::Binary { comms, .. } => comms.get(self.pid()),
            Body::Text { comm, .. } => Some(comm),
        }
    }

    /// Returns an integer field, sign-extended to 64 bits. Returns `None` if the record is too short or the
    /// field is not an integer. In text, decimal and 0x numbers count.
    #[inline]
    pub fn u64(&self, slot: Slot) -> Option<u64> {
        match (slot.kind, self.body) {
            (FieldKind::Integer { signed }, Body::Binary { data, abi, .. }) => {
                let bytes = data.get(slot.offset as usize..)?.get(..slot.size as usize)?;
                let value = abi.unsigned(bytes)?;
                let spare = 64 - slot.size * 8;
                Some(if signed { ((value << spare) as i64 >> spare) as u64 } else { value })
            }
            (FieldKind::Text, Body::Text { values, .. }) => values.get(slot.offset as usize)?.number,
            _ => None,
        }
    }

    /// Returns an integer field in two's complement.
    #[inline]
    pub fn i64(&self, slot: Slot) -> Option<i64> {
        self.u64(slot).map(|value| value as i64)
    }

    /// Returns a string: a `char` array, a dynamic string, or the value as a text trace prints it.
    pub fn text(&self, slot: Slot) -> Option<Cow<'a, str>> {
        match self.body {
            Body::Text { .. } => self.spelling(slot).map(String::from_utf8_lossy),
            Body::Binary { .. } => match slot.kind {
                FieldKind::Chars | FieldKind::DataLoc { element: 1 } | FieldKind::RelLoc { element: 1 } => {
                    let bytes = self.bytes(slot)?;
                    let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
                    Some(String::from_utf8_lossy(&bytes[..end]))
                }
                _ => None,
            },
        }
    }

    /// Returns the value as a text trace prints it; `None` for binary events.
    #[inline]
    pub fn spelling(&self, slot: Slot) -> Option<&'a [u8]> {
        let Body::Text { line, values, .. } = self.body else { return None };
        let span = values.get(slot.offset as usize)?.span;
        line.get(span.start as usize..span.end as usize)
    }

    /// Returns the bytes of a field, or those that a dynamic field points to; `None` for text.
    pub fn bytes(&self, slot: Slot) -> Option<&'a [u8]> {
        let Body::Binary { data, abi, .. } = self.body else { return None };
        let own = data.get(slot.offset as usize..)?.get(..slot.size as usize)?;
        let base = match slot.kind {
            FieldKind::DataLoc { .. } => 0,
            FieldKind::RelLoc { .. } => slot.offset as usize + slot.size as usize,
            _ => return Some(own),
        };
        let word = abi.unsigned(own.get(..4)?)?;
        let (offset, len) = ((word & 0xffff) as usize, (word >> 16) as usize);
        data.get(base + offset..)?.get(..len)
    }

    /// Returns the elements of an integer array or dynamic array; `None` for text.
    pub fn elements(&self, slot: Slot) -> Option<impl Iterator<Item = u64> + 'a> {
        let (FieldKind::Array { element, .. }
        | FieldKind::DataLoc { element }
        | FieldKind::RelLoc { element }) = slot.kind
        else {
            return None;
        };
        let Body::Binary { abi, .. } = self.body else { return None };
        let bytes = self.bytes(slot)?;
        Some(bytes.chunks_exact(element.max(1) as usize).filter_map(move |bytes| abi.unsigned(bytes)))
    }
}

/// Parses a number as traces print it: decimal, or hexadecimal after 0x. A comment may follow a space: "3
/// (in-irq)".
pub(crate) fn number(bytes: &[u8]) -> Option<u64> {
    let (negative, bytes) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    let (base, bytes) = match bytes {
        [b'0', b'x', digits @ ..] => (16, digits),
        digits => (10, digits),
    };
    let mut value = 0_u64;
    let mut count = 0;
    for &byte in bytes {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' if base == 16 => byte - b'a' + 10,
            b'A'..=b'F' if base == 16 => byte - b'A' + 10,
            b' ' => break,
            _ => return None,
        };
        value = value.checked_mul(base)?.checked_add(u64::from(digit))?;
        count += 1;
    }
    (count > 0).then(|| if negative { value.wrapping_neg() } else { value })
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_as_traces_print_them() {
        assert_eq!(number(b"42"), Some(42));
        assert_eq!(number(b"-1"), Some(u64::MAX));
        assert_eq!(number(b"0xfF"), Some(255));
        assert_eq!(number(b"3 (in-irq)"), Some(3));
        for odd in ["", "-", "0x", "12a", "GFP_KERNEL", "99999999999999999999999"] {
            assert_eq!(number(odd.as_bytes()), None, "{odd:?}");
        }
    }
}
