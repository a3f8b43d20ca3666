//! Changes of single values in configuration files.
//!
//! An edit is made of the bytes of one value, and proved on the result before anything is written: all other bytes are the same,
//! a shell sees the same commands and the same other variables, and the value is the wanted one. What cannot be proved is refused.

use std::collections::HashSet;
use std::ops::Range;

use crate::config::{END, is_of};
use crate::shell::{Assignment, Atom, Kind, Part, Quote, Script, Statement, atoms};

/// What a value is to be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted<'a> {
    /// All of it.
    Value(&'a str),
    /// Words in place of those of `old`, of the parameters of a kernel: not behind `--`.
    Words {
        /// How replaced words begin; without `=`, the whole word.
        old: &'a [&'a str],
        /// The new words; none to remove the old ones.
        new: &'a [String],
        /// The value if there is none. It may have expansions.
        absent: &'a str,
    },
}

/// Why a file is not edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("{0}")]
    Syntax(#[from] crate::shell::SyntaxError),
    #[error("line {line}: {what}")]
    Unclear { line: usize, what: String },
    #[error("the edit could not be proved to change nothing else")]
    Unproved,
}

type Edited = Result<Vec<u8>, Refused>;

/// Sets a variable in a file that a shell sources: in the last assignment, or in a new line at the end.
pub(super) fn assign(text: &[u8], key: &str, wanted: Wanted<'_>) -> Edited {
    let script = Script::parse(text)?;
    let unclear = |at: usize, what: String| Refused::Unclear { line: line_of(text, at), what };
    let last = script.assignments().filter(|found| found.name == key).last();
    let after = last.as_ref().map_or(0, |last| last.place.0 + 1);
    // What comes before a new assignment at the end does not matter, unless it ends the file or assigns too.
    let is_end = |of: &Statement| {
        of.words.iter().any(|word| ["exit", "return", "exec"].iter().any(|end| word.is(end)))
    };
    let is_unclear = |of: &&Statement| {
        Script::is_unclear(of, key) && (last.is_some() || is_end(of) || Script::may_assign(of, key))
    };
    if let Some(statement) = script.statements.iter().skip(after).find(is_unclear) {
        return Err(unclear(start_of(statement), format!("a command may change {key}, or end the file")));
    }
    let Some(last) = last else { return append(text, &script, key, wanted) };
    let at = last.value.span.start;
    if !last.is_certain || last.appends {
        return Err(unclear(at, format!("{key} is assigned on a condition, or added to (`+=`)")));
    }
    let new = new_value(text, &last, wanted).map_err(|what| unclear(at, format!("{key}: {what}")))?;
    refuse_split_names(text, &script, key)?;
    let Some(new) = new else { return Ok(text.to_vec()) };
    let span = last.value.span.clone();
    let edited = [&text[..span.start], &new, &text[span.end..]].concat();
    prove(text, &script, &edited, last.place, wanted)?;
    Ok(edited)
}

/// Refuses a file in which a line goes on within the name that is assigned to: a shell joins the lines before it looks for names.
fn refuse_split_names(text: &[u8], script: &Script, key: &str) -> Result<(), Refused> {
    let mut joined = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((byte, after)) = rest.split_first() {
        match after.split_first() {
            Some((b'\n', after)) if *byte == b'\\' => rest = after,
            _ => {
                joined.push(*byte);
                rest = after;
            }
        }
    }
    let count = |script: &Script| script.assignments().filter(|found| found.name == key).count();
    let joined = Script::parse(&joined).map_err(|_| Refused::Unproved)?;
    if count(&joined) == count(script) { Ok(()) } else { Err(Refused::Unproved) }
}

/// Adds an assignment at the end.
fn append(text: &[u8], script: &Script, key: &str, wanted: Wanted<'_>) -> Edited {
    refuse_split_names(text, script, key)?;
    let value = match wanted {
        Wanted::Value(value) => escaped(value),
        Wanted::Words { absent, .. } => absent.to_owned(),
    };
    let mut edited = text.to_vec();
    if !text.is_empty() && !text.ends_with(b"\n") {
        edited.push(b'\n');
    }
    edited.extend(format!("{key}=\"{value}\"\n").into_bytes());
    let found = Script::parse(&edited).map_err(|_| Refused::Unproved)?;
    let same = found.statements.len() == script.statements.len() + 1
        && (script.statements.iter().zip(&found.statements)).all(|(old, new)| old == new);
    let last = found.assignments().last();
    let is_it = last.is_some_and(|last| {
        last.name == key
            && last.is_certain
            && last.place == (script.statements.len(), 0)
            && last.value.span.end + 1 == edited.len()
    });
    if same && is_it { Ok(edited) } else { Err(Refused::Unproved) }
}

/// The value's new bytes; `None` if it is as wanted.
fn new_value(text: &[u8], last: &Assignment<'_>, wanted: Wanted<'_>) -> Result<Option<Vec<u8>>, String> {
    let value = &last.value;
    match wanted {
        Wanted::Value(wanted) => {
            if value.is_expanded() {
                return Err("the value is computed".into());
            }
            if value.text(text) == wanted {
                return Ok(None);
            }
            let is_bare = !wanted.is_empty() && wanted.bytes().all(is_safe);
            Ok(Some(
                match value.quote() {
                    Some(Quote::None) if is_bare => wanted.to_owned(),
                    Some(Quote::Single) if !wanted.contains('\'') => format!("'{wanted}'"),
                    _ => format!("\"{}\"", escaped(wanted)),
                }
                .into_bytes(),
            ))
        }
        Wanted::Words { old, new, .. } => {
            if !new.iter().all(|word| !word.is_empty() && word.bytes().all(is_safe)) {
                return Err(format!("{} cannot be written into it", new.join(" ")));
            }
            words(text, last, old, new)
        }
    }
}

fn words(
    text: &[u8],
    last: &Assignment<'_>,
    old: &[&str],
    new: &[String],
) -> Result<Option<Vec<u8>>, String> {
    let value = &last.value;
    let words = value.words(text);
    let has_expansion = |word: &[&Part]| word.iter().any(|part| part.kind == Kind::Expansion);
    let is_end = |word: &Vec<&Part>| !has_expansion(word) && plain(word) == END.as_bytes();
    let end = words.iter().position(is_end);
    let mut replaced = Vec::new();
    // The kernel takes what is between quotation marks for a part of one parameter (`next_arg`, lib/cmdline.c).
    let mut is_quoted = false;
    let quoted = || Err("a quotation mark of the kernel's parameters is before or around it".to_owned());
    for word in words.iter().take(end.unwrap_or(words.len())) {
        let has_expansion = has_expansion(word);
        let is_old = is_of(&literal(word), old);
        let all = String::from_utf8_lossy(&plain(word)).into_owned() + &raw(text, word);
        if has_expansion && (is_old || old.iter().any(|old| all.contains(old))) {
            return Err(format!("a part of `{}` is computed", raw(text, word)));
        }
        if is_old {
            if is_quoted {
                return quoted();
            }
            replaced.push(word);
        }
        is_quoted ^= plain(word).iter().filter(|byte| **byte == b'"').count() % 2 == 1;
    }
    if replaced.len() == new.len() && replaced.iter().zip(new).all(|(word, new)| literal(word) == *new) {
        return Ok(None);
    }
    if is_quoted {
        return quoted();
    }
    let quote = value.quote();
    if !matches!(quote, Some(Quote::Single | Quote::Double)) {
        // Put between double quotation marks, what can be, and edited there.
        let quoted = requoted(text, last)?;
        let line = [b"V=", &*quoted].concat();
        let script = Script::parse(&line).map_err(|error| error.what.to_owned())?;
        let mut found = script.assignments();
        return match (found.next(), found.next()) {
            (Some(only), None) if matches!(only.value.quote(), Some(Quote::Double)) => {
                self::words(&line, &only, old, new).map(|edited| edited.or(Some(quoted)))
            }
            _ => Err("the value is put together".into()),
        };
    }
    let span = |word: &[&Part]| -> Range<usize> {
        let (first, last) = (word.first(), word.last());
        first.map_or(0, |part| part.span.start)..last.map_or(0, |part| part.span.end)
    };
    let new = new.join(" ").into_bytes();
    let inner = value.span.start + 1..value.span.end - 1;
    let mut out = vec![text[value.span.start]];
    let mut at = inner.start;
    let mut is_written = new.is_empty();
    for (number, word) in words.iter().enumerate() {
        let of = span(word);
        if Some(number) == end && !is_written {
            out.extend(&text[at..of.start]);
            out.extend(&new);
            out.push(b' ');
            out.extend(&text[of.clone()]);
            is_written = true;
        } else if end.is_none_or(|end| number < end) && replaced.contains(&word) {
            // With the blanks before it, unless new words take its place.
            if !is_written {
                out.extend(&text[at..of.start]);
                out.extend(&new);
                is_written = true;
            }
        } else {
            out.extend(&text[at..of.end]);
        }
        at = of.end;
    }
    if !is_written {
        let ends_blank = words.last().and_then(|word| word.last()).is_none_or(|part| part.ends_blank(text));
        if !ends_blank {
            out.push(b' ');
        }
        out.extend(&new);
    }
    out.extend(&text[at..value.span.end]);
    Ok(Some(out))
}

/// The same value between one pair of double quotation marks.
fn requoted(text: &[u8], last: &Assignment<'_>) -> Result<Vec<u8>, String> {
    let mut out = vec![b'"'];
    for part in last.value.parts {
        let raw = &text[part.span.clone()];
        match part.kind {
            Kind::Mark => {}
            Kind::Byte(byte) => {
                if b"\\\"$`".contains(&byte) {
                    out.push(b'\\');
                }
                out.push(byte);
            }
            Kind::Expansion if part.quote == Quote::Double => out.extend(raw),
            // Quotation marks within would mean something else.
            Kind::Expansion if last.is_exported || raw == b"~" || raw.contains(&b'"') => {
                return Err(format!("`{}` is not quoted", String::from_utf8_lossy(raw)));
            }
            Kind::Expansion => out.extend(raw),
        }
    }
    out.push(b'"');
    Ok(out)
}

/// Fails unless `edited` differs from `text` in one value, which is the wanted one.
fn prove(
    text: &[u8],
    script: &Script,
    edited: &[u8],
    place: (usize, usize),
    wanted: Wanted<'_>,
) -> Result<(), Refused> {
    let found = Script::parse(edited).map_err(|_| Refused::Unproved)?;
    let others = |script: &Script, text: &[u8]| -> Vec<(bool, Vec<Vec<Atom>>)> {
        let of = |(number, of): (usize, &Statement)| {
            let words = of.words.iter().enumerate();
            let other = words.filter(|(at, _)| (number, *at) != place);
            (of.is_certain, other.map(|(_, word)| atoms(&word.parts, text)).collect())
        };
        script.statements.iter().enumerate().map(of).collect()
    };
    let at = |script: &'_ Script, text: &[u8]| {
        let found = script.assignments().find(|found| found.place == place)?;
        let words: Vec<Vec<Atom>> =
            found.value.words(text).into_iter().map(|word| atoms(word, text)).collect();
        Some((found.name, found.value.text(text), found.value.is_expanded(), words))
    };
    let (Some(old), Some(new)) = (at(script, text), at(&found, edited)) else {
        return Err(Refused::Unproved);
    };
    let is_wanted = match wanted {
        Wanted::Value(wanted) => new.1 == wanted && !new.2,
        Wanted::Words { old: prefixes, new: wanted, .. } => {
            let is_old = |word: &&Vec<Atom>| is_of(&beginning(word), prefixes);
            let is_other = |word: &&Vec<Atom>| !is_old(word);
            let wanted = wanted.iter().map(|word| word.bytes().map(Atom::Byte).collect::<Vec<_>>());
            let (old, old_init) = parameters(&old.3);
            let (new, new_init) = parameters(&new.3);
            new.iter().filter(is_old).cloned().eq(wanted)
                && old.iter().filter(is_other).eq(new.iter().filter(is_other))
                && old_init == new_init
        }
    };
    let is_same = old.0 == new.0 && others(script, text) == others(&found, edited);
    if is_same && is_wanted { Ok(()) } else { Err(Refused::Unproved) }
}

/// The parameters of a kernel, and the words that follow them for init.
fn parameters(words: &[Vec<Atom>]) -> (&[Vec<Atom>], &[Vec<Atom>]) {
    let end = words.iter().position(|word| word.iter().cloned().eq(END.bytes().map(Atom::Byte)));
    words.split_at(end.unwrap_or(words.len()))
}

/// What a word begins with, up to an expansion. An expansion behind it makes it another word.
fn beginning(word: &[Atom]) -> String {
    let bytes = word.iter().map(|atom| match atom {
        Atom::Byte(byte) => *byte,
        Atom::Expansion(_) => 0,
    });
    String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
}

/// Sets a directive of `/etc/kdump.conf`: a name and, after a blank, its value, up to a `#` or the line's end.
pub(super) fn directive(text: &[u8], name: &str, value: &str) -> Edited {
    if let Some(at) = text.windows(2).position(|bytes| bytes == b"\r\n") {
        let what =
            "the line ends in CR and LF: kdump-utils 1.0.60 and newer take the CR for a part of the value"
                .to_owned();
        return Err(Refused::Unclear { line: line_of(text, at), what });
    }
    let mut at = 0;
    let mut last = None;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if let Some(value) = directive_value(line, name) {
            last = Some(at + value.start..at + value.end);
        }
        at += line.len();
    }
    let (span, new) = match last {
        Some(span) if &text[span.clone()] == value.as_bytes() => return Ok(text.to_vec()),
        // A name without a value ends at the span.
        Some(span) if text[..span.start].ends_with(name.as_bytes()) => (span, format!(" {value}")),
        Some(span) => (span, value.to_owned()),
        None => {
            let newline = if text.is_empty() || text.ends_with(b"\n") { "" } else { "\n" };
            (text.len()..text.len(), format!("{newline}{name} {value}\n"))
        }
    };
    Ok([&text[..span.start], new.as_bytes(), &text[span.end..]].concat())
}

/// Where a directive's value is in a line, if it is that directive.
fn directive_value(line: &[u8], name: &str) -> Option<Range<usize>> {
    let end = line.iter().position(|byte| b"#\n".contains(byte)).unwrap_or(line.len());
    let line = &line[..end];
    let first = line.iter().position(|byte| !byte.is_ascii_whitespace())?;
    let rest = line[first..].strip_prefix(name.as_bytes())?;
    if !rest.first().is_none_or(u8::is_ascii_whitespace) {
        return None;
    }
    let after = first + name.len();
    let value = rest.trim_ascii();
    let start = if value.is_empty() { after } else { after + rest.len() - rest.trim_ascii_start().len() };
    Some(start..start + value.len())
}

/// The lines of `after` that `before` does not have.
pub(super) fn new_lines(before: &[u8], after: &[u8]) -> Vec<String> {
    let old: HashSet<&[u8]> = before.split(|byte| *byte == b'\n').collect();
    let lines = after.split(|byte| *byte == b'\n').filter(|line| !old.contains(line));
    lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect()
}

/// A text as it stands between double quotation marks.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for next in text.chars() {
        if matches!(next, '\\' | '"' | '$' | '`') {
            out.push('\\');
        }
        out.push(next);
    }
    out
}

/// Whether a shell puts something into words that are as they are written.
pub(super) fn is_computed(words: &[String]) -> bool {
    words.iter().any(|word| word.contains(['$', '`']))
}

/// Whether a byte means itself in every kind of quotation.
fn is_safe(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_=,.:@+/%-".contains(&byte)
}

/// What a word begins with, up to an expansion.
fn literal(word: &[&Part]) -> String {
    let bytes = word.iter().map_while(|part| match part.kind {
        Kind::Byte(byte) => Some(byte),
        _ => None,
    });
    String::from_utf8_lossy(&bytes.collect::<Vec<u8>>()).into_owned()
}

/// A word without its expansions.
fn plain(word: &[&Part]) -> Vec<u8> {
    let byte = |part: &&Part| match part.kind {
        Kind::Byte(byte) => Some(byte),
        _ => None,
    };
    word.iter().filter_map(byte).collect()
}

/// A word as it is written.
fn raw(text: &[u8], word: &[&Part]) -> String {
    let bytes: Vec<u8> = word.iter().flat_map(|part| text[part.span.clone()].to_vec()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn start_of(statement: &Statement) -> usize {
    statement.words.first().map_or(0, |word| word.span.start)
}

fn line_of(text: &[u8], at: usize) -> usize {
    1 + text[..at].iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod mutations;

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Result<String, String> {
        let new = ["crashkernel=1G,high".to_owned(), "crashkernel=256M,low".to_owned()];
        let wanted = Wanted::Words {
            old: &["crashkernel="],
            new: &new,
            absent: "$GRUB crashkernel=1G,high crashkernel=256M,low",
        };
        let edited = assign(text.as_bytes(), "GRUB", wanted).map_err(|error| error.to_string())?;
        assert_eq!(assign(&edited, "GRUB", wanted).unwrap(), edited, "not idempotent");
        Ok(String::from_utf8(edited).unwrap())
    }

    fn value(text: &str, value: &str) -> Result<String, String> {
        let edited = assign(text.as_bytes(), "A", Wanted::Value(value)).map_err(|error| error.to_string())?;
        Ok(String::from_utf8(edited).unwrap())
    }

    #[test]
    fn only_the_bytes_of_the_last_value_change() {
        for (text, expected) in [
            ("# A=0\nA=1\n  export A='2 3' # why\nB=4\n", "# A=0\nA=1\n  export A='x' # why\nB=4\n"),
            ("B=4", "B=4\nA=\"x\"\n"),
            ("", "A=\"x\"\n"),
            ("A=0", "A=x"),
            ("A=\nB=1", "A=x\nB=1"),
            ("A=\"a \\\n  b\"; B=1\n", "A=\"x\"; B=1\n"),
            ("A=a'b'\"c\"\n", "A=\"x\"\n"),
            ("A=1 B=2\n", "A=x B=2\n"),
            ("B=1 env\n", "B=1 env\nA=\"x\"\n"),
            (". /etc/other\n", ". /etc/other\nA=\"x\"\n"),
        ] {
            assert_eq!(value(text, "x").as_deref(), Ok(expected), "{text:?}");
        }
        assert_eq!(value("A='1'\n", "it's $5").as_deref(), Ok("A=\"it's \\$5\"\n"));
        assert_eq!(value("A=x # as it is\n", "x").as_deref(), Ok("A=x # as it is\n"));
    }

    #[test]
    fn words_are_replaced_within_a_value() {
        let both = "crashkernel=1G,high crashkernel=256M,low";
        for (text, expected) in [
            ("GRUB=\"$GRUB crashkernel=512M-:192M\"\n", format!("GRUB=\"$GRUB {both}\"\n")),
            ("GRUB='quiet crashkernel=1M x'\n", format!("GRUB='quiet {both} x'\n")),
            ("GRUB='a=\"b c\" $d'\n", format!("GRUB='a=\"b c\" $d {both}'\n")),
            ("GRUB=\"a=\\\"b\\\" x\" # why\n", format!("GRUB=\"a=\\\"b\\\" x {both}\" # why\n")),
            ("GRUB=quiet\n", format!("GRUB=\"quiet {both}\"\n")),
            ("GRUB=qu\\ $X'$Y'\n", format!("GRUB=\"qu $X\\$Y {both}\"\n")),
            ("GRUB=\"\"\n", format!("GRUB=\"{both}\"\n")),
            ("GRUB=\n", format!("GRUB=\"{both}\"\n")),
            ("", format!("GRUB=\"$GRUB {both}\"\n")),
            ("GRUB=\"a crashkernel=1 b crashkernel=2 \"\n", format!("GRUB=\"a {both} b \"\n")),
            ("GRUB=\"a \\\n  crashkernel=1\\\n  b\n\"\n", format!("GRUB=\"a \\\n  {both}\\\n  b\n\"\n")),
            ("GRUB=\"${GRUB:+$GRUB }crashkernel=1M\"\n", format!("GRUB=\"${{GRUB:+$GRUB }}{both}\"\n")),
            ("GRUB=\"${GRUB:+$GRUB }\"\n", format!("GRUB=\"${{GRUB:+$GRUB }}{both}\"\n")),
            ("GRUB=\"$(f \"a b\") x\"\n", format!("GRUB=\"$(f \"a b\") x {both}\"\n")),
        ] {
            assert_eq!(words(text), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for (text, reason) in [
            ("A=1\nGRUB=\"x\ny\n", "line 2: a quotation mark"),
            ("GRUB=1\nif x; then GRUB=2; fi\n", "line 2: GRUB is assigned on a condition"),
            ("GRUB=1\nGRUB+=2\n", "line 2: GRUB is assigned on a condition, or added to"),
            ("GRUB=1\n. /etc/more\n", "line 2: a command may change GRUB"),
            ("GRUB=1\nunset GRUB\n", "line 2: a command may change GRUB"),
            ("GRUB=1\nreadonly GRUB=2\n", "line 2: a command may change GRUB"),
            ("readonly GRUB=2\n", "line 1: a command may change GRUB"),
            // The shell keeps what is before a command that is built into it.
            ("GRUB=crashkernel=1M export\n", "line 1: a command may change GRUB"),
            ("GRUB=1\nGRUB=2 export\n", "line 2: a command may change GRUB"),
            ("return 0\n", "line 1: a command may change GRUB, or end the file"),
            ("GRUB=\"crashkernel=$SIZE\"\n", "line 1: GRUB: a part of `crashkernel=$SIZE` is computed"),
            ("GRUB=\"$A\"crashkernel=1M\n", "line 1: GRUB: a part of"),
            ("GRUB='x=\"a crashkernel=1M\"'\n", "line 1: GRUB: a quotation mark of the kernel's parameters"),
            ("GRUB='crashkernel=1M x=\"a'\n", "line 1: GRUB: a quotation mark of the kernel's parameters"),
            ("GRUB=~/x\n", "line 1: GRUB: `~` is not quoted"),
            ("GRUB=1\r\n", "line 1: a line that ends in CR and LF"),
            ("cat <<E\nGRUB=1\nE\n", "line 1: a here-document"),
            ("GRUB=1 \\", "line 1: a backslash ends the file"),
        ] {
            let refused = words(text).unwrap_err();
            assert!(refused.starts_with(reason), "{text:?}: {refused}");
        }
        assert!(value("A=$(x)\n", "1").is_err());
    }

    #[test]
    fn directives_keep_their_lines() {
        let set = |text: &str| {
            let edited = directive(text.as_bytes(), "path", "/z").map_err(|error| error.to_string())?;
            assert_eq!(directive(&edited, "path", "/z").as_ref(), Ok(&edited));
            Ok::<_, String>(String::from_utf8(edited).unwrap())
        };
        for (text, expected) in [
            ("path /x\n#path /y\n", "path /z\n#path /y\n"),
            ("  path\t/x y  # why\nssh a", "  path\t/z  # why\nssh a"),
            ("path /x\npath /y", "path /x\npath /z"),
            ("paths /x", "paths /x\npath /z\n"),
            ("path\n", "path /z\n"),
            ("path #\n", "path /z #\n"),
        ] {
            assert_eq!(set(text).as_deref(), Ok(expected), "{text:?}");
        }
        assert!(set("path /x\r\n").unwrap_err().starts_with("line 1: the line ends in CR"));
    }

    #[test]
    fn other_bytes_than_utf8_stay() {
        let text = b"# caf\xe9\r\nA=1 # \xff\nB='\xe9'\n";
        let edited = assign(text, "A", Wanted::Value("0")).unwrap();
        assert_eq!(edited, b"# caf\xe9\r\nA=0 # \xff\nB='\xe9'\n");
        assert_eq!(new_lines(text, &edited), ["A=0 # \u{fffd}"]);
    }
}
