//! Thrift's compact protocol, as far as the sizes in Parquet files need it (thrift/doc/specs/thrift-compact-protocol.md). Whatever the
//! bytes are, nothing is allocated.

/// Structs in structs. Those of Parquet have fewer.
const MAX_DEPTH: usize = 16;

/// Types of values.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
pub(crate) const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
pub(crate) const LIST: u8 = 9;
const SET: u8 = 10;
pub(crate) const STRUCT: u8 = 12;

/// What is left of the bytes. Methods return `None` where they end early or mean nothing.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// Reads a number of any size.
    pub(crate) fn number(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    fn pass(&mut self, count: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(count).ok()?..)?;
        Some(())
    }

    /// Reads the head of a list: how many values of which type. Each takes a byte or more.
    pub(crate) fn list(&mut self) -> Option<(usize, u8)> {
        let head = self.byte()?;
        let count = if head >> 4 == 15 { self.varint()? } else { u64::from(head >> 4) };
        let count = usize::try_from(count).ok().filter(|count| *count <= self.0.len())?;
        Some((count, head & 15))
    }

    /// Reads a struct. `field` gets the number and type of each field, and returns whether it has read the value; others are skipped.
    pub(crate) fn fields(&mut self, field: &mut dyn FnMut(i64, u8, &mut Self) -> Option<bool>) -> Option<()> {
        self.fields_at(0, field)
    }

    fn fields_at(
        &mut self,
        depth: usize,
        field: &mut dyn FnMut(i64, u8, &mut Self) -> Option<bool>,
    ) -> Option<()> {
        let mut number: i64 = 0;
        loop {
            let head = self.byte()?;
            if head == 0 {
                return Some(());
            }
            number = match head >> 4 {
                0 => self.number()?,
                step => number.checked_add(step.into())?,
            };
            if !field(number, head & 15, self)? {
                self.skip(head & 15, depth + 1)?;
            }
        }
    }

    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        match kind {
            _ if depth > MAX_DEPTH => None,
            TRUE | FALSE => Some(()),
            BYTE => self.pass(1),
            I16 | I32 | I64 => self.varint().map(drop),
            DOUBLE => self.pass(8),
            BINARY => {
                let length = self.varint()?;
                self.pass(length)
            }
            LIST | SET => {
                let (count, kind) = self.list()?;
                (0..count).try_for_each(|_| match kind {
                    TRUE | FALSE => self.pass(1),
                    kind => self.skip(kind, depth + 1),
                })
            }
            STRUCT => self.fields_at(depth, &mut |_, _, _| Some(false)),
            // Parquet has no maps.
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The fields of a struct with a number in its first and third field.
    fn numbers(bytes: &[u8]) -> Option<(i64, i64, usize)> {
        let (mut first, mut third, mut reader) = (0, 0, Reader(bytes));
        reader.fields(&mut |number, kind, reader| {
            match (number, kind) {
                (1, I32) => first = reader.number()?,
                (3, I32) => third = reader.number()?,
                _ => return Some(false),
            }
            Some(true)
        })?;
        Some((first, third, reader.0.len()))
    }

    #[test]
    fn fields_are_read_and_others_skipped() {
        // A binary of two bytes, a list of two structs, and a struct lie between and after them.
        let bytes = [0x15, 3, 0x18, 2, 9, 9, 0x15, 0xff, 0x0f, 0x19, 0x2c, 0, 0, 0x1c, 0x11, 0, 0, 7];
        assert_eq!(numbers(&bytes), Some((-2, -1024, 1)));
        // A length beyond the end, a list longer than the rest, a varint without an end.
        for bytes in [&[0x18, 0xff, 0xff, 0xff, 0xff, 0x0f][..], &[0x19, 0xf5, 0xff, 0x0f], &[0x15, 0xff]] {
            assert_eq!(numbers(bytes), None);
        }
        assert_eq!(numbers(&[0x1c; 1000]), None);
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = numbers(&bytes);
        }
    }
}
