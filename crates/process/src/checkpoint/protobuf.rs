//! Protobuf messages in CRIU's images, each after its length in 32 bits.

/// A field's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Number(u64),
    /// Text, bytes or a message.
    Bytes(&'a [u8]),
}

/// A message after its length, and what follows.
pub(crate) fn message(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(u32::from_le_bytes(*length) as usize)
}

/// The first field of a message with its number, and what follows. None if its type is one that CRIU's images do not have.
pub(crate) fn field(bytes: &[u8]) -> Option<(u64, Value<'_>, &[u8])> {
    let (key, rest) = varint(bytes)?;
    let (value, rest) = varint(rest)?;
    match key & 7 {
        0 => Some((key >> 3, Value::Number(value), rest)),
        2 => {
            let (content, rest) = rest.split_at_checked(usize::try_from(value).ok()?)?;
            Some((key >> 3, Value::Bytes(content), rest))
        }
        _ => None,
    }
}

/// The next field of a message of which all fields are numbers.
pub(crate) fn number_field(bytes: &[u8]) -> Option<(u64, u64, &[u8])> {
    match field(bytes)? {
        (number, Value::Number(value), rest) => Some((number, value, rest)),
        _ => None,
    }
}

/// A number in protobuf's variable length, and what follows.
pub(crate) fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0u64;
    for (index, &byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f).checked_shl(7 * index as u32)?;
        if byte & 0x80 == 0 {
            return Some((value, bytes.get(index + 1..)?));
        }
    }
    None
}

/// Adds a field to a message.
pub(crate) fn put(out: &mut Vec<u8>, number: u64, value: Value<'_>) {
    match value {
        Value::Number(value) => {
            put_varint(out, number << 3);
            put_varint(out, value);
        }
        Value::Bytes(bytes) => {
            put_varint(out, number << 3 | 2);
            put_varint(out, bytes.len() as u64);
            out.extend(bytes);
        }
    }
}

/// Adds a message after its length.
pub(crate) fn put_message(out: &mut Vec<u8>, message: &[u8]) {
    out.extend((message.len() as u32).to_le_bytes());
    out.extend(message);
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_have_their_length() {
        assert_eq!(varint(&[0x96, 0x01, 7]), Some((150, &[7][..])));
        assert_eq!(varint(&[0x80; 11]), None);
    }

    proptest! {
        #[test]
        fn fields_come_back_as_they_were(number in 1u64..1000, value: u64, bytes: Vec<u8>) {
            let mut out = Vec::new();
            put(&mut out, number, Value::Number(value));
            put(&mut out, number, Value::Bytes(&bytes));
            let (first, found, rest) = field(&out).unwrap();
            prop_assert_eq!((first, found), (number, Value::Number(value)));
            prop_assert_eq!(field(rest), Some((number, Value::Bytes(&bytes), &[][..])));
        }

        #[test]
        fn any_message_is_no_reason_to_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut rest = message(&bytes).map_or(&bytes[..], |(message, _)| message);
            while let Some((_, _, after)) = field(rest) {
                rest = after;
            }
        }
    }
}
