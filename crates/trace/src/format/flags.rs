//! Names of values from `__print_flags` and `__print_symbolic`: the numbers behind `GFP_KERNEL` differ
//! between kernels.

/// Names of a field's values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueNames {
    /// Whether values are sets of flags.
    pub flags: bool,
    /// Values and names in the kernel's order; the kernel prints the first match.
    pub names: Vec<(u64, String)>,
}

impl ValueNames {
    /// Returns the value of a name.
    pub fn value(&self, name: &str) -> Option<u64> {
        self.names.iter().find(|(_, known)| known == name).map(|&(value, _)| value)
    }

    /// Formats a value as the kernel prints it: flags joined with `|`, unnamed bits in hexadecimal.
    pub fn print(&self, value: u64) -> String {
        if !self.flags {
            let name = self.names.iter().find(|&&(known, _)| known == value);
            return name.map_or_else(|| format!("{value:#x}"), |(_, name)| name.clone());
        }
        let mut left = value;
        let mut parts = Vec::new();
        for (bits, name) in &self.names {
            if *bits != 0 && left & bits == *bits {
                parts.push(name.clone());
                left &= !bits;
            }
        }
        if left != 0 || parts.is_empty() {
            parts.push(format!("{left:#x}"));
        }
        parts.join("|")
    }
}

pub(super) fn value_names(print: &str, field: &str) -> Option<ValueNames> {
    for (function, flags) in [("__print_flags(", true), ("__print_symbolic(", false)] {
        let mut rest = print;
        while let Some((_, call)) = rest.split_once(function) {
            rest = call;
            let call = call.trim_start();
            let Some(after) = call.strip_prefix("REC->").and_then(|call| call.strip_prefix(field)) else {
                continue;
            };
            if after.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') {
                continue;
            }
            let names = entries(after);
            return (!names.is_empty()).then_some(ValueNames { flags, names });
        }
    }
    None
}

/// Parses the `{ EXPRESSION, "NAME" }` pairs of a call. Skips pairs whose expression is not constant.
fn entries(mut text: &str) -> Vec<(u64, String)> {
    let mut names = Vec::new();
    // The first unmatched bracket ends the arguments; pairs bring their own.
    while let Some(open) = text.find(['{', ')']) {
        if text.as_bytes().get(open) == Some(&b')') {
            break;
        }
        let Some((pair, after)) = text.get(open + 1..).and_then(|pair| pair.split_once('}')) else { break };
        text = after;
        let Some((value, name)) = pair.rsplit_once(',') else { continue };
        let name = name.trim().trim_matches('"');
        if let Some(value) = evaluate(value)
            && !name.is_empty()
        {
            names.push((value, name.to_owned()));
        }
    }
    names
}

/// Evaluates a constant C expression: numbers, `|`, `&`, `<<`, `~`, parentheses and casts.
fn evaluate(text: &str) -> Option<u64> {
    let mut parser = Parser { text: text.as_bytes(), at: 0, depth: 0 };
    let value = parser.or()?;
    parser.space();
    (parser.at == parser.text.len()).then_some(value)
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    depth: u32,
}

/// Nesting limit; the kernel's macros nest about 15 deep.
const MAX_DEPTH: u32 = 64;

impl Parser<'_> {
    fn space(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn eat(&mut self, token: &[u8]) -> bool {
        self.space();
        let found = self.text.get(self.at..).is_some_and(|rest| rest.starts_with(token));
        if found {
            self.at += token.len();
        }
        found
    }

    fn or(&mut self) -> Option<u64> {
        let mut value = self.and()?;
        while self.eat(b"|") {
            value |= self.and()?;
        }
        Some(value)
    }

    fn and(&mut self) -> Option<u64> {
        let mut value = self.shift()?;
        while self.eat(b"&") {
            value &= self.shift()?;
        }
        Some(value)
    }

    fn shift(&mut self) -> Option<u64> {
        let mut value = self.unary()?;
        while self.eat(b"<<") {
            value = value.checked_shl(u32::try_from(self.unary()?).ok()?)?;
        }
        Some(value)
    }

    fn unary(&mut self) -> Option<u64> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        let value = if self.eat(b"~") {
            !self.unary()?
        } else if self.eat(b"-") {
            self.unary()?.wrapping_neg()
        } else if self.eat(b"(") {
            if self.cast() {
                self.unary()?
            } else {
                let value = self.or()?;
                if !self.eat(b")") {
                    return None;
                }
                value
            }
        } else {
            self.number()?
        };
        self.depth -= 1;
        Some(value)
    }

    /// Skips the rest of a cast, such as `unsigned long)`.
    fn cast(&mut self) -> bool {
        self.space();
        let rest = self.text.get(self.at..).unwrap_or_default();
        let Some(len) = memchr::memchr(b')', rest) else { return false };
        let inner = &rest[..len];
        let is_type = inner.first().is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_')
            && inner.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_ ".contains(byte));
        // A single word in capitals is the name of a constant, not a type.
        let constant = inner.iter().any(u8::is_ascii_uppercase);
        if is_type && !constant {
            self.at += len + 1;
        }
        is_type && !constant
    }

    fn number(&mut self) -> Option<u64> {
        self.space();
        let rest = self.text.get(self.at..)?;
        let len = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count();
        let word = std::str::from_utf8(&rest[..len]).ok()?;
        self.at += len;
        let digits = word.trim_end_matches(['u', 'U', 'l', 'L']);
        match digits.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => digits.parse().ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_worked_out() {
        assert_eq!(evaluate("0x400u"), Some(0x400));
        assert_eq!(evaluate("( unsigned long)(( gfp_t)((((1UL))) << (6)))"), Some(64));
        assert_eq!(evaluate(" (1 << 2) | (( gfp_t)3 & ~( u32)1)"), Some(6));
        assert_eq!(evaluate("1 << VMSCAN_THROTTLE_WRITEBACK"), None);
        assert_eq!(evaluate(&"(".repeat(1000)), None);
        assert_eq!(evaluate("1 << 64"), None);
    }

    #[test]
    fn names_are_found_by_field() {
        let print = r#""order=%d gfp_flags=%s lru=%s", REC->order, (REC->gfp_flags) ? __print_flags(REC->gfp_flags, "|", {( unsigned long)((( gfp_t)0x40u)|(( gfp_t)0x80u)), "GFP_BOTH"}, {0x40u, "__GFP_IO"}, {(1 << ENUM), "X"}, { 0, ((void *)0) } ) : "none", __print_symbolic(REC->lru, {0, "inactive_anon"}, {2, "inactive_file"})"#;
        let flags = value_names(print, "gfp_flags").unwrap();
        assert_eq!(
            flags.names,
            [(0xc0, "GFP_BOTH".to_owned()), (0x40, "__GFP_IO".to_owned()), (0, "((void *)0)".to_owned())]
        );
        assert_eq!(flags.print(0x140), "__GFP_IO|0x100");
        assert_eq!(flags.value("GFP_BOTH"), Some(0xc0));
        let lru = value_names(print, "lru").unwrap();
        assert_eq!(
            (lru.flags, lru.print(2), lru.print(3)),
            (false, "inactive_file".to_owned(), "0x3".to_owned())
        );
        assert_eq!(value_names(print, "order"), None);
        assert_eq!(value_names(print, "gfp"), None);
    }
}
