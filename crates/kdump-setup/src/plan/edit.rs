//! Changes of single lines in configuration files. Everything else in a file stays as it is.

/// Sets `key` to `value` in a file that a shell sources: in the last line that assigns it, or in a new one.
pub(super) fn assign(text: &str, key: &str, value: &str) -> String {
    let line = format!("{key}=\"{value}\"");
    replace_last(text, |line| assigned(line, key).is_some(), &line)
}

/// Sets a directive of `/etc/kdump.conf`.
pub(super) fn directive(text: &str, name: &str, value: &str) -> String {
    let is_it = |line: &str| line.split_whitespace().next() == Some(name);
    replace_last(text, is_it, &format!("{name} {value}"))
}

/// Puts kernel parameters into the value of `key`, in place of those that start with `prefix`.
pub(super) fn parameters(text: &str, key: &str, prefix: &str, wanted: &[String]) -> String {
    // Not expanded: `$GRUB_CMDLINE_LINUX_DEFAULT` in the value stays.
    let value = text.lines().rev().find_map(|line| assigned(line, key)).map(double_quoted);
    let value = value.unwrap_or_else(|| format!("${key}"));
    let mut words: Vec<&str> = value.split_whitespace().filter(|word| !word.starts_with(prefix)).collect();
    words.extend(wanted.iter().map(String::as_str));
    assign(text, key, &words.join(" "))
}

/// The lines of `after` that `before` does not have.
pub(super) fn new_lines(before: &str, after: &str) -> Vec<String> {
    after.lines().filter(|line| !before.lines().any(|old| old == *line)).map(str::to_owned).collect()
}

/// What a line assigns to `key`, comments and quotes included.
fn assigned<'t>(line: &'t str, key: &str) -> Option<&'t str> {
    let line = line.trim_start();
    line.strip_prefix("export ").unwrap_or(line).trim_start().strip_prefix(key)?.strip_prefix('=')
}

/// A value as it stands between double quotes.
fn double_quoted(value: &str) -> String {
    let value = value.trim();
    let mut out = String::new();
    match value.chars().next() {
        Some('"') => {
            let mut rest = value[1..].chars();
            while let Some(next) = rest.next().filter(|next| *next != '"') {
                match (next, rest.clone().next()) {
                    ('\\', None) => break,
                    ('\\', Some(escaped)) => {
                        rest.next();
                        out.extend(['\\', escaped]);
                    }
                    (other, _) => out.push(other),
                }
            }
        }
        Some('\'') => {
            for next in value[1..].chars().take_while(|next| *next != '\'') {
                if matches!(next, '\\' | '"' | '$' | '`') {
                    out.push('\\');
                }
                out.push(next);
            }
        }
        _ => {
            let word = value.split_whitespace().next().unwrap_or_default();
            out.extend(word.chars().filter(|next| !matches!(next, '"' | '\'' | '\\')));
        }
    }
    out
}

fn replace_last(text: &str, is_it: impl Fn(&str) -> bool, new: &str) -> String {
    let last = text.lines().enumerate().filter(|(_, line)| is_it(line)).map(|(index, _)| index).last();
    let mut lines: Vec<&str> = text.lines().collect();
    match last.and_then(|index| lines.get_mut(index)) {
        Some(line) => *line = new,
        None => lines.push(new),
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_the_last_assignment_changes() {
        let text = "# A=0\nA=1\n  export A='2 3' # why\nB=4\n";
        assert_eq!(assign(text, "A", "x y"), "# A=0\nA=1\nA=\"x y\"\nB=4\n");
        assert_eq!(assign("B=4", "A", "x"), "B=4\nA=\"x\"\n");
        assert_eq!(directive("path /x\n#path /y\n", "path", "/z"), "path /z\n#path /y\n");
        assert_eq!(new_lines("a\nb\n", "a\nc\n"), ["c"]);
    }

    #[test]
    fn parameters_are_replaced_within_a_value() {
        let wanted = ["crashkernel=1G,high".to_owned(), "crashkernel=256M,low".to_owned()];
        let of = |text| parameters(text, "GRUB", "crashkernel=", &wanted);
        let both = "crashkernel=1G,high crashkernel=256M,low";
        assert_eq!(of("GRUB=\"$GRUB crashkernel=512M-:192M\"\n"), format!("GRUB=\"$GRUB {both}\"\n"));
        assert_eq!(of("GRUB='quiet crashkernel=1M x'\n"), format!("GRUB=\"quiet x {both}\"\n"));
        assert_eq!(of("GRUB='a=\"b c\" $d'\n"), format!("GRUB=\"a=\\\"b c\\\" \\$d {both}\"\n"));
        assert_eq!(of("GRUB=\"a=\\\"b\\\" x\" # why\n"), format!("GRUB=\"a=\\\"b\\\" x {both}\"\n"));
        assert_eq!(of("GRUB=#\"\n"), format!("GRUB=\"# {both}\"\n"));
        assert_eq!(of(""), format!("GRUB=\"$GRUB {both}\"\n"));
        assert_eq!(of(&of("GRUB=quiet\n")), of("GRUB=quiet\n"));
    }

    proptest! {
        #[test]
        fn edits_of_any_text_are_idempotent(text in "([A-C \"'=#$x\\\\\n]|crashkernel=){0,60}") {
            let once = assign(&text, "A", "x y");
            prop_assert_eq!(assign(&once, "A", "x y"), once);
            let wanted = ["crashkernel=1".to_owned()];
            let once = parameters(&text, "B", "crashkernel=", &wanted);
            prop_assert_eq!(parameters(&once, "B", "crashkernel=", &wanted), once);
            let once = directive(&text, "A", "x");
            prop_assert_eq!(directive(&once, "A", "x"), once);
        }
    }
}
