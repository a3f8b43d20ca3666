//! Parses the fields of an event, as its print format prints them.

use crate::event::{Span, Value, number};

/// Byte ranges of a name and a value.
pub(super) type Pair = (Span, Span);

/// Finds `name=value` pairs; a value extends to the word with the next `=`.
pub(super) fn pairs(bytes: &[u8], out: &mut Vec<Pair>) {
    out.clear();
    let mut word = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b' ' | b'\t' => word = at + 1,
            b'=' if at > word && (bytes[word].is_ascii_alphabetic() || bytes[word] == b'_') => {
                // A second `=` in the same word belongs to the value.
                if let Some((_, value)) = out.last_mut() {
                    if value.start as usize > word {
                        continue;
                    }
                    value.end = trimmed_end(bytes, value.start as usize, word);
                }
                out.push((Span::new(word, at), Span::new(at + 1, bytes.len())));
            }
            _ => {}
        }
    }
    if let Some((_, value)) = out.last_mut() {
        value.end = trimmed_end(bytes, value.start as usize, bytes.len());
    }
}

/// Fast path of [`pairs`] for known fields: `names` are the prefixes of the values in order, and no value
/// contains a space. Fills as many values as there are names. Returns false if the line does not match.
#[inline]
pub(super) fn expected(line: &[u8], names: &[Box<[u8]>], values: &mut [Value]) -> bool {
    let mut at = 0;
    for (name, value) in names.iter().zip(values) {
        if !line.get(at..).is_some_and(|rest| begins(rest, name)) {
            return false;
        }
        let start = at + name.len();
        if name.is_empty() {
            // A word without a name.
            let rest = line.get(start..).unwrap_or_default();
            let end = start + memchr::memchr2(b' ', b'=', rest).unwrap_or(rest.len());
            if line.get(end) == Some(&b'=') {
                return false;
            }
            *value = Value { span: Span::new(start, end), number: None };
            at = end + 1;
            continue;
        }
        // Most values are short decimal numbers: one loop finds their end and their value.
        let mut end = start;
        let mut decimal = 0_u64;
        while let Some(digit) = line.get(end).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit < 10)
        {
            decimal = decimal.wrapping_mul(10).wrapping_add(u64::from(digit));
            end += 1;
        }
        let over = matches!(line.get(end), None | Some(b' '));
        let parsed = if over && (1..20).contains(&(end - start)) {
            Some(decimal)
        } else {
            let rest = line.get(end..).unwrap_or_default();
            end += memchr::memchr2(b' ', b'=', rest).unwrap_or(rest.len());
            if line.get(end) == Some(&b'=') {
                return false;
            }
            number(&line[start..end])
        };
        *value = Value { span: Span::new(start, end), number: parsed };
        at = end + 1;
    }
    at > line.len()
}

/// Returns whether `text` starts with `name`. Names have 4 to 30 bytes: two overlapping word comparisons are
/// faster than memcmp.
#[inline]
pub(super) fn begins(text: &[u8], name: &[u8]) -> bool {
    let Some(text) = text.get(..name.len()) else { return false };
    match name.len() {
        0 => true,
        4..8 => ends::<4>(text) == ends::<4>(name),
        8..16 => ends::<8>(text) == ends::<8>(name),
        16..=32 => ends::<16>(text) == ends::<16>(name),
        _ => text == name,
    }
}

/// Returns the first and the last `N` bytes.
#[inline]
fn ends<const N: usize>(text: &[u8]) -> Option<(&[u8; N], &[u8; N])> {
    text.first_chunk::<N>().zip(text.last_chunk::<N>())
}

/// Parses shrinker events, which have no `=`: `FUNCTION ADDRESS: nid: 1 objects to shrink 12 gfp_flags
/// GFP_KERNEL cache items 5 …`. Names are words; values are numbers or flags in capitals.
pub(super) fn shrinker(args: &[u8], out: &mut Vec<Pair>) {
    out.clear();
    let mut offset = 0;
    let mut words = args.split(|&byte| byte == b' ').map(|word| {
        let start = offset;
        offset += word.len() + 1;
        (start, word)
    });
    let (Some(function), Some(address)) = (words.next(), words.next()) else { return };
    // These two values have no name in the line: empty spans, which `SHRINKER_NAMES` names by position.
    out.push((Span::new(0, 0), Span::new(0, function_len(function.1))));
    out.push((Span::new(0, 0), Span::new(address.0, address.0 + without_colon(address.1))));
    let mut label: Option<(usize, usize)> = None;
    for (start, word) in words {
        if is_value(word) {
            if let Some((first, last)) = label.take() {
                out.push((Span::new(first, last), Span::new(start, start + word.len())));
            }
        } else if !word.is_empty() {
            let end = start + without_colon(word);
            label = Some((label.map_or(start, |(first, _)| first), end));
        }
    }
}

/// Fast path of [`shrinker`] for a line that matched: trims its first two words, and checks that the others
/// are values.
#[inline]
pub(super) fn cut_shrinker(args: &[u8], values: &mut [Value]) -> bool {
    let [function, address, others @ ..] = values else { return false };
    let word =
        |value: &Value| args.get(value.span.start as usize..value.span.end as usize).unwrap_or_default();
    for (value, len_of) in [(function, function_len as fn(&[u8]) -> usize), (address, without_colon)] {
        value.span.end = value.span.start + len_of(word(value)) as u32;
    }
    others.iter().all(|value| {
        // Most values are short decimal numbers.
        let word = word(value);
        value.number.is_some() && matches!(word, [b'0'..=b'9'] | [b'0'..=b'9', b'0'..=b'9', ..])
            || is_value(word)
    })
}

/// Returns the length of `super_cache_scan+0x0/0x1b0` without the offset.
fn function_len(word: &[u8]) -> usize {
    word.iter().position(|&byte| byte == b'+').unwrap_or(word.len())
}

fn without_colon(word: &[u8]) -> usize {
    word.strip_suffix(b":").unwrap_or(word).len()
}

/// Names of the first two values of a shrinker event.
pub(super) const SHRINKER_NAMES: [&str; 2] = ["shrink", "shr"];

fn is_value(word: &[u8]) -> bool {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    let digits = digits.strip_prefix(b"0x").unwrap_or(digits);
    let number = digits.first().is_some_and(u8::is_ascii_digit) && digits.iter().all(u8::is_ascii_hexdigit);
    number || word.starts_with(b"GFP_") || word.starts_with(b"__GFP_") || word == b"none"
}

fn trimmed_end(bytes: &[u8], start: usize, mut end: usize) -> u32 {
    while end > start && matches!(bytes[end - 1], b' ' | b'\t') {
        end -= 1;
    }
    end as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(args: &str, parse: fn(&[u8], &mut Vec<Pair>)) -> Vec<(String, String)> {
        let mut out = Vec::new();
        parse(args.as_bytes(), &mut out);
        let text = |span: Span| args[span.start as usize..span.end as usize].to_owned();
        out.into_iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    fn own(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn pairs_may_hold_spaces_and_flags() {
        assert_eq!(names("nid=0 order=-1", pairs), own(&[("nid", "0"), ("order", "-1")]));
        assert_eq!(
            names("comm=Web Content pid=7 flags=A|B ", pairs),
            own(&[("comm", "Web Content"), ("pid", "7"), ("flags", "A|B")])
        );
        assert_eq!(
            names("zone=DMA32    order=3 x=a=b", pairs),
            own(&[("zone", "DMA32"), ("order", "3"), ("x", "a=b")])
        );
        assert_eq!(names("", pairs), own(&[]));
        assert_eq!(names("=5 ==", pairs), own(&[]));
        assert_eq!(names("order=2 (in-irq)", pairs), own(&[("order", "2 (in-irq)")]));
    }

    #[test]
    fn known_names_give_the_same_values() {
        let own: Vec<Box<[u8]>> = ["nid=", "order=", "reclaim_flags=", "a_very_long_name_of_a_field="]
            .map(|name| name.as_bytes().into())
            .into();
        let mut values = [Value::default(); 4];
        let line = b"nid=0 order=-1 reclaim_flags=A|B a_very_long_name_of_a_field=0x10";
        assert!(expected(line, &own, &mut values));
        let mut slow = Vec::new();
        pairs(line, &mut slow);
        assert_eq!(
            values.map(|value| value.span).to_vec(),
            slow.iter().map(|&(_, value)| value).collect::<Vec<_>>()
        );
        assert_eq!(values.map(|value| value.number), [Some(0), Some(u64::MAX), None, Some(16)]);
        for other in [
            "nid=0",
            "nid=0 order=1 more=2",
            "nid=0 order=1 2",
            "order=1 nid=0",
            "nid=0  order=1",
            "nid=a=b order=1",
            "nid=1=b order=1",
            "",
        ] {
            assert!(!expected(other.as_bytes(), &own[..2], &mut values), "{other:?}");
        }
        for (text, number) in
            [("99999999999999999999", None), ("18446744073709551615", Some(u64::MAX)), ("", None)]
        {
            assert!(expected(format!("nid={text}").as_bytes(), &own[..1], &mut values));
            assert_eq!(values[0].number, number, "{text}");
        }
    }

    #[test]
    fn shrinkers_are_words() {
        let line = "super_cache_scan+0x0/0x1b0 00000000abcd: nid: 1 objects to shrink 12 gfp_flags GFP_KERNEL|__GFP_X cache items 100 delta 5 total_scan 7 priority 12";
        assert_eq!(
            names(line, shrinker),
            own(&[
                ("", "super_cache_scan"),
                ("", "00000000abcd"),
                ("nid", "1"),
                ("objects to shrink", "12"),
                ("gfp_flags", "GFP_KERNEL|__GFP_X"),
                ("cache items", "100"),
                ("delta", "5"),
                ("total_scan", "7"),
                ("priority", "12"),
            ])
        );
        assert_eq!(names("alone", shrinker), own(&[]));
    }
}
