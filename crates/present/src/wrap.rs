//! Lines that fit a terminal.

/// What follows the first line of one that was broken is indented by so much more.
const HANGING: usize = 4;
/// Between two columns of a table, at least.
const GAP: &str = "  ";
/// Narrower terminals get the lines as they are.
const NARROWEST: usize = 40;

/// Breaks lines that are longer than `width` characters between words. The rest of a line is indented deeper than its start. A word
/// that is longer than a line stays whole. In a row of a table the space behind the first column becomes less, if that is enough: other
/// rows end in the same column, and lose as much.
pub fn wrap(text: &str, width: usize) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let line_end = line.trim_end_matches('\n');
        if width < NARROWEST || line_end.chars().count() <= width {
            out.push_str(line);
            continue;
        }
        if !closed_up(&mut out, line_end, width) {
            broken(&mut out, line_end, width);
        }
        out.push_str(&line[line_end.len()..]);
    }
    out
}

/// Writes a line with less of its first wide space. Returns whether that is enough.
fn closed_up(out: &mut String, line: &str, width: usize) -> bool {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let Some(at) = line[indent..].find(GAP).map(|at| indent + at) else { return false };
    let (before, after) = line.split_at(at);
    let text = after.trim_start_matches(' ');
    let kept = (after.len() - text.len()).checked_sub(line.chars().count() - width);
    let Some(kept) = kept.filter(|kept| *kept >= GAP.len()) else { return false };
    out.push_str(before);
    out.extend(std::iter::repeat_n(' ', kept));
    out.push_str(text);
    true
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
    fn rows_of_a_table_close_up() {
        let row = |name: &str| format!(" {name:40}  {:>6}  {:>6}\n", 12, 3456);
        let table = [row("anonymous"), row("a name that is as long as the column is"), row("slab")].concat();
        let narrow = |name: &str| format!(" {name:25}  {:>6}  {:>6}\n", 12, 3456);
        let long = " a name that is as long as the column is\n     12    3456\n";
        assert_eq!(wrap(&table, 42), [&narrow("anonymous"), long, &narrow("slab")].concat());
        assert_eq!(wrap(&table, 57), table);
    }

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
        let columns = format!("{:30}{:30}tail", "a text of twenty-eight chars", "b");
        assert_eq!(wrap(&columns, 50), "a text of twenty-eight chars  b\n    tail");
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
