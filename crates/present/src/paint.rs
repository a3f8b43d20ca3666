//! Colours of reports on a terminal: severity, headings and names.
//!
//! They are added to the finished text, which is the same with and without them.

use crate::wrap;

const RESET: &str = "\u{1b}[0m";
const HEADING: &str = "\u{1b}[1m";
const BAD: &str = "\u{1b}[1;31m";
const WARNING: &str = "\u{1b}[1;33m";
const GOOD: &str = "\u{1b}[32m";
const NAME: &str = "\u{1b}[36m";

/// Starts of lines, behind their indent, and what they colour.
const STARTS: [(&str, &str, Reach); 9] = [
    ("PROBLEM ", BAD, Reach::Start),
    ("warning ", WARNING, Reach::Start),
    ("advice ", NAME, Reach::Start),
    ("note: ", WARNING, Reach::Start),
    ("not checked: ", WARNING, Reach::Start),
    ("deadlock: ", BAD, Reach::Start),
    ("taint ", WARNING, Reach::Start),
    ("next: ", GOOD, Reach::Line),
    ("fix  ", GOOD, Reach::Line),
];
/// Words that have one meaning in every report.
const WORDS: [(&str, &str); 4] = [("BROKEN", BAD), ("INCOMPLETE", BAD), ("worse", BAD), ("better", GOOD)];
/// States of a link of `kdump check`, at the ends of lines.
const ENDS: [(&str, &str); 2] = [("  ok", GOOD), ("not checked", WARNING)];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Start,
    Line,
}

/// Returns a report with escape sequences for colours, its lines broken as by [`wrap`]. The text must be free of escape sequences:
/// [`printable_lines`](crate::printable_lines).
pub fn paint(report: &str, width: Option<usize>) -> String {
    let mut out = String::with_capacity(report.len() * 2);
    let mut after_blank = true;
    for line in report.split_inclusive('\n') {
        let colour = whole_line(line, after_blank);
        after_blank = line == "\n";
        let broken = width.map_or_else(|| line.to_owned(), |width| wrap(line, width));
        for (at, part) in broken.split_inclusive('\n').enumerate() {
            let (text, end) = part.strip_suffix('\n').map_or((part, ""), |text| (text, "\n"));
            match colour {
                Some(colour) => put(&mut out, colour, text),
                None => paint_line(&mut out, text, at == 0),
            }
            out.push_str(end);
        }
    }
    out
}

/// The colour of a line that has one.
fn whole_line(line: &str, after_blank: bool) -> Option<&'static str> {
    let text = line.trim();
    if let Some((_, colour, _)) =
        STARTS.iter().find(|(start, _, reach)| *reach == Reach::Line && text.starts_with(start))
    {
        return Some(colour);
    }
    // "  1. what was found" of a verdict.
    let is_finding = line.starts_with("  ")
        && text
            .split_once(". ")
            .is_some_and(|(number, _)| number.len() == 1 && number != "0" && is_number(number));
    // "Verdict", behind an empty line.
    let is_title =
        after_blank && line.starts_with(|first: char| first.is_ascii_uppercase()) && !text.contains(':');
    (is_finding || is_title && !text.starts_with("PROBLEM ")).then_some(HEADING)
}

fn paint_line(out: &mut String, line: &str, is_first: bool) {
    let indent = line.len() - line.trim_start().len();
    out.push_str(&line[..indent]);
    let mut rest = &line[indent..];
    if is_first {
        if let Some((start, colour, _)) = STARTS.iter().find(|(start, ..)| rest.starts_with(start)) {
            put(out, colour, start.trim_end());
            rest = &rest[start.trim_end().len()..];
        } else if let Some((title, _)) = rest
            .split_once(':')
            .filter(|(title, _)| indent == 0 && title.starts_with(|first: char| first.is_ascii_uppercase()))
        {
            // "Memory: 1.0 GiB managed".
            put(out, HEADING, title);
            rest = &rest[title.len()..];
        }
    }
    let end = ENDS.iter().find(|(end, _)| rest.ends_with(end));
    let (middle, end) = end.map_or((rest, None), |(end, colour)| {
        let word = end.trim_start();
        (&rest[..rest.len() - word.len()], Some((word, *colour)))
    });
    for word in middle.split_inclusive([' ', ',', '(', ')']) {
        paint_word(out, word);
    }
    if let Some((end, colour)) = end {
        put(out, colour, end);
    }
}

fn paint_word(out: &mut String, word: &str) {
    let bare = word.trim_end_matches([' ', ',', '(', ')']);
    let rest = &word[bare.len()..];
    if let Some((_, colour)) = WORDS.iter().find(|(known, _)| *known == bare) {
        put(out, colour, bare);
    } else if let Some(name) = symbol(bare) {
        put(out, NAME, name);
        out.push_str(&bare[name.len()..]);
    } else {
        out.push_str(bare);
    }
    out.push_str(rest);
}

/// The name in "function+0x10/0x20".
fn symbol(word: &str) -> Option<&str> {
    let (name, place) = word.split_once("+0x")?;
    let (offset, size) = place.split_once("/0x")?;
    let is_hexadecimal = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_hexadecimal(offset) && is_hexadecimal(size) && !name.is_empty()).then_some(name)
}

fn is_number(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn put(out: &mut String, colour: &str, text: &str) {
    if text.is_empty() {
        return;
    }
    let words = text.trim_start();
    out.push_str(&text[..text.len() - words.len()]);
    out.push_str(colour);
    out.push_str(words);
    out.push_str(RESET);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> String {
        let mut out = String::new();
        for part in text.split('\u{1b}') {
            out.push_str(if out.is_empty() && text.starts_with(part) {
                part
            } else {
                part.split_once('m').unwrap().1
            });
        }
        out
    }

    #[test]
    fn severity_headings_and_names_have_colours() {
        for (line, painted) in [
            ("PROBLEM  no memory [x]\n", format!("{BAD}PROBLEM{RESET}  no memory [x]\n")),
            ("     fix  reboot\n", format!("     {GOOD}fix  reboot{RESET}\n")),
            ("firmware      ok\n", format!("firmware      {GOOD}ok{RESET}\n")),
            ("units         BROKEN\n", format!("units         {BAD}BROKEN{RESET}\n")),
            ("Verdict\n", format!("{HEADING}Verdict{RESET}\n")),
            ("Memory: 1 GiB\n", format!("{HEADING}Memory{RESET}: 1 GiB\n")),
            ("  1. dm-0 is suspended\n", format!("  {HEADING}1. dm-0 is suspended{RESET}\n")),
            ("    do_fsync+0x39/0x70\n", format!("    {NAME}do_fsync{RESET}+0x39/0x70\n")),
            ("  took 1.5 s, 2. x\n", "  took 1.5 s, 2. x\n".to_owned()),
            (" 9.5. a\n a+0xg/0x1\n", " 9.5. a\n a+0xg/0x1\n".to_owned()),
        ] {
            assert_eq!(paint(line, None), painted);
        }
    }

    #[test]
    fn the_text_stays_the_same_and_lines_break_where_they_would() {
        let report = "Linux 6.1, 2 CPUs\n\nwarning  a long finding that does not fit into a line [id]\n     fix  \
                      another long command that does not fit into it: do_fsync+0x39/0x70 worse\n\n  2. Name: more \
                      than can be in forty characters\nNo end of line: not checked";
        assert_eq!(plain(&paint(report, None)), report);
        assert_eq!(plain(&paint(report, Some(40))), wrap(report, 40));
        // Each line ends what it begins.
        assert!(paint(report, Some(40)).lines().all(|line| line.matches('\u{1b}').count() % 2 == 0));
    }
}
