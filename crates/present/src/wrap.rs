//! Lines that fit a terminal.

/// What follows the first line of one that was broken is indented by so much more.
const HANGING: usize = 4;
/// Narrower terminals get the lines as they are.
const NARROWEST: usize = 40;

/// Breaks lines that are longer than `width` characters between words. The rest of a line is indented deeper than its start. A word
/// that is longer than a line stays whole.
pub fn wrap(text: &str, width: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let line_end = line.trim_end_matches('\n');
        if width < NARROWEST || line_end.chars().count() <= width {
            out.push_str(line);
            continue;
        }
        broken(&mut out, line_end, width);
        out.push_str(&line[line_end.len()..]);
    }
    out
}

fn broken(out: &mut String, line: &str, width: usize) {
    let words = line.trim_start_matches(' ');
    let start = line.len() - words.len();
    // Deeply indented text keeps half of the terminal.
    let indent = (start + HANGING).min(width / 2);
    out.push_str(&line[..start]);
    let mut used = start;
    let mut is_first = true;
    // Words are followed by the spaces that align columns.
    for word in words.split_inclusive(' ') {
        let length = word.trim_end_matches(' ').chars().count();
        if !is_first && used + length > width && length > 0 {
            out.truncate(out.trim_end_matches(' ').len());
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            used = indent;
        }
        // Spaces at a break are dropped.
        if length == 0 && used >= width {
            continue;
        }
        out.push_str(word);
        used += word.chars().count();
        is_first = false;
    }
    out.truncate(out.trim_end_matches(' ').len());
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn lines_break_between_words() {
        let line = "  Memory: 326.4 MiB managed, anonymous 72.6 MiB, files 36.2 MiB\n";
        assert_eq!(
            wrap(line, 40),
            "  Memory: 326.4 MiB managed, anonymous\n      72.6 MiB, files 36.2 MiB\n"
        );
        assert_eq!(wrap(line, 80), line);
        assert_eq!(wrap(line, 10), line);
        // Columns stay where they are on the first line.
        let columns = format!("{:30}{:30}tail", "a", "b");
        assert_eq!(wrap(&columns, 50), format!("{:30}b\n    tail", "a"));
        // Words are never broken, and no line is longer unless a word is.
        let text = "a verylongwordthatdoesnotfitintofortycolumnsatall b ".repeat(5);
        let wrapped = wrap(&text, 40);
        assert_eq!(
            wrapped.split_whitespace().collect::<Vec<_>>(),
            text.split_whitespace().collect::<Vec<_>>()
        );
        assert!(
            wrapped.lines().all(|line| line.chars().count() <= 40 || line.trim().split(' ').count() == 1)
        );
    }
}
