//! Bytes to words.

use super::{Kind, Part, Quote, Script, Statement, SyntaxError, Word, is_name};

/// Commands in commands, such as `$(...)` in `$(...)`: more are not followed.
const DEEPEST: usize = 32;

pub(super) struct Lexer<'t> {
    text: &'t [u8],
    at: usize,
    /// Words of the command that is being read.
    words: Vec<Word>,
    /// The words that end the compound commands around it, the innermost last.
    open: Vec<&'static str>,
    /// Whether a command before it decides if it runs (`&&`, `||`), or it is in a pipeline.
    is_conditional: bool,
    script: Script,
}

type Lexed<T> = Result<T, SyntaxError>;

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t [u8]) -> Self {
        Self {
            text,
            at: 0,
            words: Vec::new(),
            open: Vec::new(),
            is_conditional: false,
            script: Script::default(),
        }
    }

    /// Returns what was read, up to what is not understood.
    pub(super) fn run(mut self) -> (Script, Option<SyntaxError>) {
        let error = self.commands().err();
        (self.script, error)
    }

    fn commands(&mut self) -> Lexed<()> {
        loop {
            match self.peek(0) {
                None => {
                    self.end(true);
                    if !self.open.is_empty() {
                        return Err(self.fault("a compound command, such as `if`, does not end"));
                    }
                    return Ok(());
                }
                Some(b' ' | b'\t') => self.at += 1,
                Some(b'\\') if self.peek(1) == Some(b'\n') => self.at += 2,
                Some(b'\n') => {
                    self.at += 1;
                    self.end(true);
                }
                Some(b'#') => self.skip_line(),
                Some(b';') if self.peek(1) == Some(b';') => return Err(self.unknown("`;;`")),
                Some(b';') => {
                    self.at += 1;
                    self.end(true);
                }
                Some(byte @ (b'&' | b'|')) => {
                    let is_list = self.peek(1) == Some(byte);
                    self.at += if is_list { 2 } else { 1 };
                    self.end(is_list);
                    self.is_conditional = is_list || byte == b'|';
                }
                Some(b'(') if self.words.is_empty() => {
                    self.at += 1;
                    self.open.push(")");
                }
                Some(b'(') => return Err(self.unknown("`(` after a word: a function or an array")),
                Some(b')') => {
                    self.end(true);
                    if self.open.pop() != Some(")") {
                        return Err(self.fault("`)` without `(`"));
                    }
                    self.at += 1;
                }
                Some(b'<' | b'>') => self.redirection()?,
                Some(_) => self.command_word()?,
            }
        }
    }

    /// Ends a command. `is_certain` is false if a pipeline or the background takes it.
    fn end(&mut self, is_certain: bool) {
        let words = std::mem::take(&mut self.words);
        let is_certain = is_certain && self.open.is_empty() && !self.is_conditional;
        if !words.is_empty() {
            self.script.statements.push(Statement { words, is_certain });
            self.is_conditional = false;
        }
    }

    fn command_word(&mut self) -> Lexed<()> {
        let word = self.word()?;
        if !self.words.is_empty() {
            self.words.push(word);
            return Ok(());
        }
        let is = |texts: &[&'static str]| texts.iter().copied().find(|text| word.is(text));
        if let Some(opens) = is(&["if", "while", "until", "for", "{"]) {
            self.open.push(match opens {
                "if" => "fi",
                "{" => "}",
                _ => "done",
            });
            if opens == "for" {
                self.words.push(word);
            }
        } else if is(&["case", "select", "function", "[["]).is_some() {
            return Err(self.unknown("`case`, `select`, `function` or `[[`"));
        } else if let Some(closes) = is(&["fi", "done", "}"]) {
            if self.open.pop() != Some(closes) {
                return Err(self.fault("the end of a compound command that does not begin"));
            }
            self.words.push(word);
        } else if is(&["then", "else", "elif", "do", "!"]).is_none() {
            self.words.push(word);
        }
        Ok(())
    }

    fn redirection(&mut self) -> Lexed<()> {
        if self.peek(0) == Some(b'<') && self.peek(1) == Some(b'<') {
            return Err(self.unknown("a here-document"));
        }
        while self.peek(0).is_some_and(|byte| b"<>&|".contains(&byte)) {
            self.at += 1;
        }
        while matches!(self.peek(0), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        let file = self.word()?;
        if file.span.is_empty() {
            return Err(self.fault("a redirection without a file"));
        }
        Ok(())
    }

    /// A word, up to an unquoted blank or operator.
    fn word(&mut self) -> Lexed<Word> {
        let start = self.at;
        let mut parts = Vec::new();
        while let Some(byte) = self.peek(0) {
            match byte {
                b' ' | b'\t' | b'\n' | b';' | b'&' | b'|' | b'(' | b')' | b'<' | b'>' => break,
                b'\\' => match self.peek(1) {
                    None => return Err(self.fault("a backslash ends the file")),
                    Some(b'\n') => self.part(&mut parts, 2, Kind::Mark, Quote::None),
                    Some(escaped) => {
                        self.readable(1)?;
                        self.part(&mut parts, 2, Kind::Byte(escaped), Quote::None);
                    }
                },
                b'\'' => self.single(&mut parts)?,
                b'"' => self.double(&mut parts)?,
                b'$' => self.dollar(&mut parts, Quote::None)?,
                b'`' => self.backquoted(&mut parts, Quote::None)?,
                // A home directory at the start of a word and after `:` only; elsewhere an edit is refused needlessly.
                b'~' => self.part(&mut parts, 1, Kind::Expansion, Quote::None),
                _ => {
                    self.readable(0)?;
                    self.part(&mut parts, 1, Kind::Byte(byte), Quote::None);
                }
            }
        }
        Ok(Word { span: start..self.at, parts })
    }

    fn single(&mut self, parts: &mut Vec<Part>) -> Lexed<()> {
        let opened = self.at;
        self.part(parts, 1, Kind::Mark, Quote::Single);
        loop {
            match self.peek(0) {
                None => return Err(self.fault_at(opened, "a quotation mark (') without its end")),
                Some(b'\'') => {
                    self.part(parts, 1, Kind::Mark, Quote::Single);
                    return Ok(());
                }
                Some(byte) => {
                    self.readable(0)?;
                    self.part(parts, 1, Kind::Byte(byte), Quote::Single);
                }
            }
        }
    }

    fn double(&mut self, parts: &mut Vec<Part>) -> Lexed<()> {
        let opened = self.at;
        self.part(parts, 1, Kind::Mark, Quote::Double);
        loop {
            match (self.peek(0), self.peek(1)) {
                (None, _) => return Err(self.fault_at(opened, "a quotation mark (\") without its end")),
                (Some(b'"'), _) => {
                    self.part(parts, 1, Kind::Mark, Quote::Double);
                    return Ok(());
                }
                (Some(b'\\'), Some(b'\n')) => self.part(parts, 2, Kind::Mark, Quote::Double),
                (Some(b'\\'), Some(escaped @ (b'$' | b'`' | b'"' | b'\\'))) => {
                    self.part(parts, 2, Kind::Byte(escaped), Quote::Double);
                }
                (Some(b'$'), _) => self.dollar(parts, Quote::Double)?,
                (Some(b'`'), _) => self.backquoted(parts, Quote::Double)?,
                (Some(byte), _) => {
                    self.readable(0)?;
                    self.part(parts, 1, Kind::Byte(byte), Quote::Double);
                }
            }
        }
    }

    fn dollar(&mut self, parts: &mut Vec<Part>, quote: Quote) -> Lexed<()> {
        let start = self.at;
        self.at += 1;
        match self.peek(0) {
            Some(b'(') => {
                self.at += 1;
                self.parentheses(DEEPEST)?;
            }
            Some(b'{') => {
                self.at += 1;
                self.braces(DEEPEST)?;
            }
            Some(b'[') => return Err(self.unknown("`$[`")),
            Some(b'\'' | b'"') if quote == Quote::None => {
                return Err(self.unknown("`$` before a quotation mark"));
            }
            Some(byte) if is_name(byte, true) => {
                while self.peek(0).is_some_and(|byte| is_name(byte, false)) {
                    self.at += 1;
                }
            }
            Some(byte) if byte.is_ascii_digit() || b"@*#?$!-".contains(&byte) => self.at += 1,
            _ => {
                self.at = start;
                self.part(parts, 1, Kind::Byte(b'$'), quote);
                return Ok(());
            }
        }
        parts.push(Part { span: start..self.at, kind: Kind::Expansion, quote });
        Ok(())
    }

    /// After `$(`, up to its end.
    fn parentheses(&mut self, deepest: usize) -> Lexed<()> {
        let opened = self.at;
        let deepest = self.deeper(deepest)?;
        let mut depth = 1;
        let mut begins_word = true;
        loop {
            let Some(byte) = self.peek(0) else {
                return Err(self.fault_at(opened, "`$(` without its end"));
            };
            let begins = std::mem::replace(&mut begins_word, b" \t\n;&|(".contains(&byte));
            match byte {
                b'\\' => self.at += 1,
                b'\'' => self.skip_single()?,
                b'"' => self.skip_double(deepest)?,
                b'`' => self.skip_backquoted()?,
                b'$' if self.peek(1) == Some(b'(') => {
                    self.at += 2;
                    self.parentheses(deepest)?;
                    continue;
                }
                b'$' if self.peek(1) == Some(b'{') => {
                    self.at += 2;
                    self.braces(deepest)?;
                    continue;
                }
                b'$' if matches!(self.peek(1), Some(b'\'' | b'"' | b'[')) => {
                    return Err(self.unknown("`$` before a quotation mark or `[`"));
                }
                b'(' => depth += 1,
                b')' => depth -= 1,
                b'<' if self.peek(1) == Some(b'<') => return Err(self.unknown("`<<` in `$(`")),
                b'#' if begins => {
                    self.skip_line();
                    continue;
                }
                b'c' if begins && self.text[self.at..].starts_with(b"case") => {
                    return Err(self.unknown("`case` in `$(`"));
                }
                _ => self.readable(0)?,
            }
            self.at += 1;
            if depth == 0 {
                return Ok(());
            }
        }
    }

    /// After `${`, up to its end. What quotation marks mean there depends on the shell.
    fn braces(&mut self, deepest: usize) -> Lexed<()> {
        let opened = self.at;
        let deepest = self.deeper(deepest)?;
        loop {
            match self.peek(0) {
                None => return Err(self.fault_at(opened, "`${` without its end")),
                Some(b'}') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'"' | b'\'' | b'\\' | b'`' | b'\n') => {
                    return Err(self.unknown("a quotation mark or a line's end in `${`"));
                }
                Some(b'$') if self.peek(1) == Some(b'{') => {
                    self.at += 2;
                    self.braces(deepest)?;
                }
                Some(b'$') if matches!(self.peek(1), Some(b'(' | b'[')) => {
                    return Err(self.unknown("`$(` in `${`"));
                }
                Some(_) => {
                    self.readable(0)?;
                    self.at += 1;
                }
            }
        }
    }

    fn backquoted(&mut self, parts: &mut Vec<Part>, quote: Quote) -> Lexed<()> {
        let start = self.at;
        self.skip_backquoted()?;
        self.at += 1;
        parts.push(Part { span: start..self.at, kind: Kind::Expansion, quote });
        Ok(())
    }

    // Each of these begins at a quotation mark and ends at its counterpart.

    fn skip_single(&mut self) -> Lexed<()> {
        let opened = self.at;
        let length = self.text[self.at + 1..].iter().position(|byte| *byte == b'\'');
        let length = length.ok_or_else(|| self.fault_at(opened, "a quotation mark (') without its end"))?;
        self.at += 1 + length;
        Ok(())
    }

    fn skip_double(&mut self, deepest: usize) -> Lexed<()> {
        let opened = self.at;
        self.at += 1;
        loop {
            match (self.peek(0), self.peek(1)) {
                (None, _) => return Err(self.fault_at(opened, "a quotation mark (\") without its end")),
                (Some(b'"'), _) => return Ok(()),
                (Some(b'\\'), _) => self.at += 2,
                (Some(b'`'), _) => {
                    self.skip_backquoted()?;
                    self.at += 1;
                }
                (Some(b'$'), Some(b'(')) => {
                    self.at += 2;
                    self.parentheses(deepest)?;
                }
                (Some(b'$'), Some(b'{')) => {
                    self.at += 2;
                    self.braces(deepest)?;
                }
                _ => {
                    self.readable(0)?;
                    self.at += 1;
                }
            }
        }
    }

    fn skip_backquoted(&mut self) -> Lexed<()> {
        let opened = self.at;
        self.at += 1;
        loop {
            match self.peek(0) {
                None => return Err(self.fault_at(opened, "a quotation mark (`) without its end")),
                Some(b'`') => return Ok(()),
                // What is within is parsed again, after a shell has taken these away.
                Some(b'\\') => return Err(self.unknown("a backslash between backquotes")),
                Some(_) => self.at += 1,
            }
        }
    }

    fn skip_line(&mut self) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        self.at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    }

    /// Refuses bytes that shells drop, or take for a part of a value though an editor does not show them.
    fn readable(&self, offset: usize) -> Lexed<()> {
        match self.peek(offset) {
            Some(0) => Err(self.unknown("a byte of zero")),
            Some(b'\r') if self.peek(offset + 1) == Some(b'\n') => Err(self.unknown(
                "a line that ends in CR and LF: a shell takes the CR for a part of the value (remove it with `sed -i 's/\\r$//'`)",
            )),
            _ => Ok(()),
        }
    }

    fn part(&mut self, parts: &mut Vec<Part>, length: usize, kind: Kind, quote: Quote) {
        parts.push(Part { span: self.at..self.at + length, kind, quote });
        self.at += length;
    }

    fn peek(&self, offset: usize) -> Option<u8> {
        self.text.get(self.at.checked_add(offset)?).copied()
    }

    fn deeper(&self, deepest: usize) -> Lexed<usize> {
        deepest.checked_sub(1).ok_or_else(|| self.unknown("commands in commands, too deep"))
    }

    fn unknown(&self, what: &'static str) -> SyntaxError {
        SyntaxError { is_fault: false, ..self.fault(what) }
    }

    fn fault(&self, what: &'static str) -> SyntaxError {
        self.fault_at(self.at, what)
    }

    fn fault_at(&self, at: usize, what: &'static str) -> SyntaxError {
        let before = &self.text[..at.min(self.text.len())];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        SyntaxError { line, what, is_fault: true }
    }
}
