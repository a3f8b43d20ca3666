//! Files that a shell sources, as far as their assignments can be understood without running them.
//!
//! The grammar is that of POSIX (XCU 2.3, 2.9, 2.10). What is rare in settings or differs between shells (here-documents, `case`,
//! functions, `$'...'`) is refused with its line rather than guessed.

mod lexer;
mod value;

use std::collections::HashMap;
use std::ops::Range;

pub(crate) use value::{Atom, Value, atoms};

/// Why a file is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub(crate) struct SyntaxError {
    pub(crate) line: usize,
    pub(crate) what: &'static str,
    /// Whether a shell refuses the file, too.
    pub(crate) is_fault: bool,
}

/// The commands of a file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Script {
    pub(crate) statements: Vec<Statement>,
}

/// A simple command, a keyword or a list of assignments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Statement {
    pub(crate) words: Vec<Word>,
    /// Whether it runs whatever the others return: it is in no compound command, list or pipeline.
    pub(crate) is_certain: bool,
}

/// A word as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) span: Range<usize>,
    pub(crate) parts: Vec<Part>,
}

/// A part of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) span: Range<usize>,
    pub(crate) kind: Kind,
    pub(crate) quote: Quote,
}

/// What a part stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Byte(u8),
    /// What a shell puts in its place: a parameter, a command's output, a home directory.
    Expansion,
    /// Nothing: a quotation mark, or a line that goes on.
    Mark,
}

/// How a part is quoted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quote {
    None,
    Single,
    Double,
}

#[derive(Debug, Clone)]
pub(crate) struct Assignment<'s> {
    pub(crate) name: String,
    pub(crate) value: Value<'s>,
    /// Number of its statement and of its word there.
    pub(crate) place: (usize, usize),
    pub(crate) is_certain: bool,
    /// `NAME+=VALUE`.
    pub(crate) appends: bool,
    /// An argument of `export`, whose expansions older shells split at blanks.
    pub(crate) is_exported: bool,
}

impl Script {
    /// Parses a file.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, SyntaxError> {
        let (script, error) = lexer::Lexer::new(text).run();
        error.map_or(Ok(script), Err)
    }

    /// All assignments, in their order.
    pub(crate) fn assignments(&self) -> impl Iterator<Item = Assignment<'_>> {
        self.statements.iter().enumerate().flat_map(|(number, statement)| {
            let is_exported = statement.words.first().is_some_and(|word| word.is("export"));
            let words = statement.words.iter().enumerate().skip(usize::from(is_exported));
            let found: Option<Vec<_>> = words
                .filter(|(_, word)| !(is_exported && word.is_name()))
                .map(|(place, word)| {
                    let (name, value, appends) = word.assignment()?;
                    let place = (number, place);
                    let is_certain = statement.is_certain;
                    Some(Assignment { name, value, place, is_certain, appends, is_exported })
                })
                .collect();
            // Assignments before a command are for that command.
            found.unwrap_or_default()
        })
    }

    /// Whether a command that is not an assignment may set a variable, or end the file.
    pub(crate) fn is_unclear(statement: &Statement, name: &str) -> bool {
        let words = &statement.words;
        let commands = [".", "source", "eval", "exit", "return", "exec", "alias"];
        let command = words.iter().find(|word| word.assignment().is_none());
        command.is_some_and(|word| commands.iter().any(|command| word.is(command)))
            || words.iter().any(|word| word.is(name))
            || Self::may_assign(statement, name)
    }

    /// Whether a command assigns to a variable that may keep the value: all do but `export` to what follows it. What is before a
    /// command is kept where that is built into the shell (POSIX, "Special Built-In Utilities"), so also before `export`.
    pub(crate) fn may_assign(statement: &Statement, name: &str) -> bool {
        let words = &statement.words;
        let assigns = |word: &Word| word.assignment().is_some_and(|(of, ..)| of == name);
        match words.iter().position(|word| word.assignment().is_none()) {
            Some(command) if words.get(command).is_some_and(|word| word.is("export")) => {
                words.iter().take(command).any(assigns)
            }
            Some(_) => words.iter().any(assigns),
            None => false,
        }
    }
}

/// Values of a file's assignments, with expansions as they are written; and why the rest of the file is not understood. What may be
/// assigned is what a shell computes, as `$NAME`.
pub(crate) fn assignments(text: &[u8]) -> (HashMap<String, String>, Option<SyntaxError>) {
    let (script, error) = lexer::Lexer::new(text).run();
    let mut values: HashMap<String, String> = HashMap::new();
    let mut uncertain: HashMap<String, usize> = HashMap::new();
    for found in script.assignments() {
        if !found.is_certain {
            values.insert(found.name.clone(), format!("${}", found.name));
            uncertain.entry(found.name).or_insert_with(|| line_of(text, found.value.span.start));
            continue;
        }
        if !found.appends {
            uncertain.remove(&found.name);
        }
        let value = values.entry(found.name).or_default();
        if !found.appends {
            value.clear();
        }
        value.push_str(&found.value.text(text));
    }
    let what = "what is assigned under a condition, or in a pipeline, may not be";
    let uncertain = uncertain.into_values().min().map(|line| SyntaxError { line, what, is_fault: false });
    (values, error.or(uncertain))
}

fn line_of(text: &[u8], at: usize) -> usize {
    1 + text.iter().take(at).filter(|byte| **byte == b'\n').count()
}

/// The line of a command that ends the shell whatever else the file has.
pub(crate) fn exit(text: &[u8]) -> Option<usize> {
    let (script, _) = lexer::Lexer::new(text).run();
    let mut first = script.statements.iter().filter_map(|found| Some((found, found.words.first()?)));
    // What follows `return` is not read.
    let (_, word) = first.find(|(found, word)| found.is_certain && (word.is("exit") || word.is("return")))?;
    word.is("exit").then(|| line_of(text, word.span.start))
}

impl Word {
    /// Whether the word is `text`, unquoted.
    pub(crate) fn is(&self, text: &str) -> bool {
        self.parts.len() == text.len()
            && self.parts.iter().zip(text.bytes()).all(|(part, byte)| part.is_plain(byte))
    }

    fn is_name(&self) -> bool {
        self.name().0 == self.parts.len()
    }

    /// The variable name that the word begins with, as a number of parts and as text.
    fn name(&self) -> (usize, String) {
        let mut name = String::new();
        for part in &self.parts {
            match part.kind {
                Kind::Byte(byte) if part.is_plain(byte) && is_name(byte, name.is_empty()) => {
                    name.push(byte.into());
                }
                _ => break,
            }
        }
        (name.len(), name)
    }

    /// Name and value, and whether the value is appended to an earlier one.
    fn assignment(&self) -> Option<(String, Value<'_>, bool)> {
        let (length, name) = self.name();
        let rest = self.parts.get(length..).filter(|_| length > 0)?;
        let (value, appends) = match rest {
            [equals, value @ ..] if equals.is_plain(b'=') => (value, false),
            [plus, equals, value @ ..] if plus.is_plain(b'+') && equals.is_plain(b'=') => (value, true),
            _ => return None,
        };
        let start = value.first().map_or(self.span.end, |part| part.span.start);
        Some((name, Value { span: start..self.span.end, parts: value }, appends))
    }
}

impl Part {
    /// Whether it is this byte, neither quoted nor escaped.
    fn is_plain(&self, byte: u8) -> bool {
        self.kind == Kind::Byte(byte) && self.quote == Quote::None && self.span.len() == 1
    }
}

/// Whether a variable's name may have a byte.
fn is_name(byte: u8, is_first: bool) -> bool {
    byte == b'_' || byte.is_ascii_alphabetic() || (!is_first && byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(text: &str) -> Vec<(String, String)> {
        let script = Script::parse(text.as_bytes()).unwrap();
        script.assignments().map(|found| (found.name, found.value.text(text.as_bytes()))).collect()
    }

    #[test]
    fn values_are_those_of_a_shell() {
        let text = "# comment\nUSE_KDUMP=1 # on\nMAKEDUMP_ARGS=\"-c -d 31\"\n  A='b\"c'\nexport B= C=x\\ y\n\
                    D=\"a\\\"b \\\n c\\d\"; E='x\n y'\nF=1 G=$F\"$(echo \")\")\"`date`\nH=1 env\n[ x = y ] && I=2\n";
        let expected = [
            ("USE_KDUMP", "1"),
            ("MAKEDUMP_ARGS", "-c -d 31"),
            ("A", "b\"c"),
            ("B", ""),
            ("C", "x y"),
            ("D", "a\"b  c\\d"),
            ("E", "x\n y"),
            ("F", "1"),
            ("G", "$F$(echo \")\")`date`"),
            ("I", "2"),
        ];
        assert_eq!(values(text), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    #[test]
    fn assignments_that_may_not_happen_are_known() {
        let text =
            "A=1\nif [ -f x ]; then\n A=2\nelse A=3; fi\nA=4 | cat\nA=5 &\nx && A=6\n(A=7)\n{ A=8; }\nA=9\n";
        let script = Script::parse(text.as_bytes()).unwrap();
        let certain: Vec<bool> = script.assignments().map(|found| found.is_certain).collect();
        assert_eq!(certain, [true, false, false, false, false, false, false, false, true]);
    }

    #[test]
    fn what_may_be_assigned_is_not_known() {
        for text in ["A=1\nfalse && A=2\n", "A=1\nif x; then\nA=2; fi\n", "A=1\n[ -f x ] && A+=2\n"] {
            let (values, error) = assignments(text.as_bytes());
            assert_eq!(values["A"], "$A", "{text}");
            assert!(error.is_some_and(|error| error.line >= 2 && !error.is_fault), "{text}");
        }
        let (values, error) = assignments(b"x && A=1\nA=2\n");
        assert!(values["A"] == "2" && error.is_none());
    }

    #[test]
    fn an_exit_ends_the_shell_that_reads_the_file() {
        assert_eq!(exit(b"A=1\n\nexit 1\n"), Some(3));
        assert_eq!(exit(b"A=1; exit\n"), Some(1));
        for text in
            ["A=exit\n", "if x; then exit; fi\n", "x && exit\n", "return\nexit\n", "# exit\n", "(exit)\n"]
        {
            assert_eq!(exit(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn what_is_not_understood_is_named_with_its_line() {
        for (text, line, is_fault) in [
            ("A=1\nB=\"x\ny", 2, true),
            ("A='x", 1, true),
            ("A=$(x", 1, true),
            ("A=${x", 1, true),
            ("A=`x", 1, true),
            ("if x; then\nA=1\n", 3, true),
            ("fi", 1, true),
            ("A=1)", 1, true),
            ("\ncat <<E\nx\nE\n", 2, false),
            ("case x in esac", 1, false),
            ("f() { A=1; }", 1, false),
            ("A=$'x'", 1, false),
            ("A=1\r\nB=2\r\n", 1, false),
            ("A=\0", 1, false),
        ] {
            let error = Script::parse(text.as_bytes()).unwrap_err();
            assert_eq!((error.line, error.is_fault), (line, is_fault), "{text:?}: {error}");
        }
        let (found, error) = assignments(b"A=1\nB=\"x\n");
        assert_eq!((found.len(), &*found["A"]), (1, "1"));
        assert!(error.is_some_and(|error| error.is_fault));
    }
}
