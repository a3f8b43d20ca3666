//! Untrusted text (of dumps, processes and traces, and file names) on a terminal: it must not control the terminal, hide
//! other text, or pass for a line of this program.

use std::borrow::Cow;
use std::fmt::Write;

/// Returns `text` as one line: control characters, line breaks among them, and characters that reorder text become escapes
/// such as `\u{1b}` and `\n`. Tabs stay.
pub fn printable(text: &str) -> Cow<'_, str> {
    escape(text, |c| is_harmful(c) || c == '\n', as_rust)
}

/// Like [`printable`], for text of several lines.
pub fn printable_lines(text: &str) -> Cow<'_, str> {
    escape(text, is_harmful, as_rust)
}

/// Like [`printable_lines`], for JSON: the escapes are those of JSON, which only its strings can need.
pub fn printable_json(text: &str) -> Cow<'_, str> {
    escape(text, is_harmful, |c, out| {
        c.encode_utf16(&mut [0; 2]).iter().try_for_each(|unit| write!(out, "\\u{unit:04x}"))
    })
}

fn is_harmful(c: char) -> bool {
    // In addition to control characters: the marks that reverse text (UAX #9).
    c.is_control() && c != '\n' && c != '\t' || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn as_rust(c: char, out: &mut String) -> std::fmt::Result {
    write!(out, "{}", c.escape_default())
}

fn escape(
    text: &str,
    is_harmful: impl Fn(char) -> bool,
    write: impl Fn(char, &mut String) -> std::fmt::Result,
) -> Cow<'_, str> {
    if !text.contains(&is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        // Writing to a string does not fail.
        let _ = if is_harmful(c) { write(c, &mut out) } else { out.write_char(c) };
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_escaped() {
        assert_eq!(
            printable("\u{1b}[2Jx\r\n\u{9b}\u{7f}\u{202e}"),
            "\\u{1b}[2Jx\\r\\n\\u{9b}\\u{7f}\\u{202e}"
        );
        assert_eq!(printable_lines("a\nb\tc\u{7}"), "a\nb\tc\\u{7}");
        assert_eq!(printable_json("{\n\"\u{9b}\u{7f}\u{202e}\"}"), "{\n\"\\u009b\\u007f\\u202e\"}");
        assert!(matches!(printable("héllo\tworld — 漢"), Cow::Borrowed(_)));
    }
}
