//! The fields of an event as its print format spells them.

use crate::Span;

/// A name and a value in a line of fields, in bytes.
pub(super) type Pair = (Span, Span);

/// Finds `name=value` pairs; a value lasts until the word that holds the next `=`.
pub(super) fn pairs(args: &str, out: &mut Vec<Pair>) {
    out.clear();
    let bytes = args.as_bytes();
    let mut word = 0;
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b' ' | b'\t' => word = at + 1,
            b'=' if at > word && (bytes[word].is_ascii_alphabetic() || bytes[word] == b'_') => {
                // A second `=` in one word belongs to the value.
                if let Some((_, value)) = out.last_mut() {
                    if value.start as usize > word {
                        continue;
                    }
                    value.end = trimmed_end(bytes, value.start as usize, word);
                }
                out.push((span(word, at), span(at + 1, bytes.len())));
            }
            _ => {}
        }
    }
    if let Some((_, value)) = out.last_mut() {
        value.end = trimmed_end(bytes, value.start as usize, bytes.len());
    }
}

/// The same for fields whose names are known: `names` in their order, none of the values with a space. False if the line is
/// not so.
#[inline]
pub(super) fn expected(args: &str, names: &[Box<str>], out: &mut Vec<Span>) -> bool {
    out.clear();
    let bytes = args.as_bytes();
    let mut at = 0;
    for name in names {
        let value = at + name.len() + 1;
        if bytes.get(at..value - 1) != Some(name.as_bytes()) || bytes.get(value - 1) != Some(&b'=') {
            return false;
        }
        // Values are short: a loop is faster than a search.
        let mut end = value;
        while let Some(&byte) = bytes.get(end) {
            match byte {
                b' ' => break,
                b'=' => return false,
                _ => end += 1,
            }
        }
        out.push(span(value, end));
        at = end + 1;
    }
    at > bytes.len()
}

/// The shrinkers' events have no `=`: `FUNCTION ADDRESS: nid: 1 objects to shrink 12 gfp_flags GFP_KERNEL cache items 5 …`.
/// Names are words, values are numbers or flags in capitals.
pub(super) fn shrinker(args: &str, out: &mut Vec<Pair>) {
    out.clear();
    let mut offset = 0;
    let mut words = args.split(' ').map(|word| {
        let start = offset;
        offset += word.len() + 1;
        (start, word)
    });
    let (Some(function), Some(address)) = (words.next(), words.next()) else { return };
    let name_end = function.1.find('+').unwrap_or(function.1.len());
    // Names of their own are not in the line: zero-length spans, which `shrinker_name` knows by their position.
    out.push((span(0, 0), span(0, name_end)));
    out.push((span(0, 0), span(address.0, address.0 + address.1.trim_end_matches(':').len())));
    let mut label: Option<(usize, usize)> = None;
    for (start, word) in words {
        if is_value(word) {
            if let Some((first, last)) = label.take() {
                out.push((span(first, last), span(start, start + word.len())));
            }
        } else if !word.is_empty() {
            let end = start + word.trim_end_matches(':').len();
            label = Some((label.map_or(start, |(first, _)| first), end));
        }
    }
}

/// The names of the first two values of a shrinker's event.
pub(super) const SHRINKER_NAMES: [&str; 2] = ["shrink", "shr"];

fn is_value(word: &str) -> bool {
    let digits = word.strip_prefix('-').unwrap_or(word);
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    let number = !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
        && digits.as_bytes()[0].is_ascii_digit();
    number || word.starts_with("GFP_") || word.starts_with("__GFP_") || word == "none"
}

fn span(start: usize, end: usize) -> Span {
    // Lines are shorter than 4 GiB.
    Span { start: start as u32, end: end as u32 }
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

    fn names(args: &str, parse: fn(&str, &mut Vec<Pair>)) -> Vec<(String, String)> {
        let mut out = Vec::new();
        parse(args, &mut out);
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
    fn known_names_give_the_same_spans() {
        let own: Vec<Box<str>> = vec!["nid".into(), "order".into()];
        let mut spans = Vec::new();
        assert!(expected("nid=0 order=-1", &own, &mut spans));
        let mut slow = Vec::new();
        pairs("nid=0 order=-1", &mut slow);
        assert_eq!(spans, slow.iter().map(|&(_, value)| value).collect::<Vec<_>>());
        for other in [
            "nid=0",
            "nid=0 order=1 more=2",
            "nid=0 order=1 2",
            "order=1 nid=0",
            "nid=0  order=1",
            "nid=a=b order=1",
            "",
        ] {
            assert!(!expected(other, &own, &mut spans), "{other:?}");
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
