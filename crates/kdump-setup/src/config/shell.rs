use std::collections::HashMap;

/// Assignments of a file that a shell sources: `KEY=value`, quoted or not. Commands and expansions are not evaluated.
pub(super) fn assignments(text: &str) -> HashMap<String, String> {
    text.lines().filter_map(assignment).collect()
}

fn assignment(line: &str) -> Option<(String, String)> {
    let line = line.trim();
    let (key, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
    if key.is_empty() || !key.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_') {
        return None;
    }
    let mut out = String::new();
    let mut quote = None;
    for c in value.chars() {
        match (c, quote) {
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(open)) if c == open => quote = None,
            ('#', None) if out.is_empty() || out.ends_with([' ', '\t']) => break,
            (c, None) if c.is_whitespace() => break,
            (c, _) => out.push(c),
        }
    }
    Some((key.to_owned(), out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_may_be_quoted() {
        let text = "# comment\nUSE_KDUMP=1 # on\nMAKEDUMP_ARGS=\"-c -d 31\"\n  A='b\"c'\nexport B=\nif [ x = y ]; then\nD-E=1\n";
        let found = assignments(text);
        assert_eq!(found["USE_KDUMP"], "1");
        assert_eq!(found["MAKEDUMP_ARGS"], "-c -d 31");
        assert_eq!(found["A"], "b\"c");
        assert_eq!(found["B"], "");
        assert_eq!(found.len(), 4);
    }
}
