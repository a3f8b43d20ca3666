//! Parses a guest's serial console.

use lab_guest::plan::message;

/// A line of the console.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// A message of the guest program: its name and details.
    Message(String, String),
    /// The kernel panicked.
    Panic(String),
    /// Anything else.
    Other,
}

/// Parses a line.
pub fn parse(line: &str) -> Line {
    let line = line.trim_end_matches(['\r', '\n']);
    if let Some(rest) = line.strip_prefix(message::PREFIX) {
        let (what, detail) = rest.split_once(' ').unwrap_or((rest, ""));
        return Line::Message(what.to_owned(), detail.trim().to_owned());
    }
    // With or without a timestamp. "end Kernel panic" repeats the first line.
    match line.find("Kernel panic - not syncing") {
        Some(at) if !line.contains("end Kernel panic") => {
            Line::Panic(line.get(at..).unwrap_or(line).to_owned())
        }
        _ => Line::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_classified() {
        assert_eq!(parse("PHLAB panic \r\n"), Line::Message("panic".into(), String::new()));
        assert_eq!(parse("PHLAB error no disk"), Line::Message("error".into(), "no disk".into()));
        let panic = "[    6.02] Kernel panic - not syncing: sysrq triggered crash";
        assert_eq!(parse(panic), Line::Panic("Kernel panic - not syncing: sysrq triggered crash".into()));
        assert_eq!(parse("---[ end Kernel panic - not syncing: x ]---"), Line::Other);
        assert_eq!(parse("[    0.0] Linux version"), Line::Other);
    }
}
