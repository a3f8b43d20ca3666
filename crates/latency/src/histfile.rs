//! Parses `events/SYSTEM/EVENT/hist`: the histograms of hist triggers.

use crate::error::LatencyError;

/// The histogram of one trigger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HistFile {
    /// The trigger, from the line `trigger info: `.
    pub trigger: String,
    /// Entries in file order.
    pub entries: Vec<Entry>,
    /// Events counted.
    pub hits: u64,
    /// Events dropped because the table was full.
    pub dropped: u64,
}

/// An entry of a histogram.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// Keys: name and printed value.
    pub keys: Vec<(String, String)>,
    /// Values, among them `hitcount`.
    pub values: Vec<(String, u64)>,
}

impl Entry {
    /// Returns a value by name.
    pub fn value(&self, name: &str) -> Option<u64> {
        self.values.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    /// Returns the exponent of a key with the modifier `.log2`, printed as `~ 2^14`. The kernel rounds up:
    /// this entry holds values above 2^13 up to 2^14.
    pub fn log2(&self, key: &str) -> Option<u32> {
        let text = &self.keys.iter().find(|(known, _)| known == key)?.1;
        text.trim_start_matches('~').trim().strip_prefix("2^")?.parse().ok()
    }
}

impl HistFile {
    /// Parses the `hist` file of `event`: one histogram per trigger.
    ///
    /// # Errors
    /// [`LatencyError::HistFile`] with the line that does not parse.
    pub fn parse(event: &str, text: &str) -> Result<Vec<Self>, LatencyError> {
        let mut all: Vec<Self> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let error =
                |what: &str| LatencyError::HistFile { event: event.into(), line: at + 1, what: what.into() };
            let line = line.trim();
            if let Some(comment) = line.strip_prefix('#') {
                if let Some(trigger) = comment.trim().strip_prefix("trigger info:") {
                    all.push(Self { trigger: trigger.trim().to_owned(), ..Self::default() });
                }
                continue;
            }
            let Some(last) = all.last_mut() else { continue };
            let total = |name: &str| line.strip_prefix(name).and_then(|rest| rest.trim().parse::<u64>().ok());
            if line.starts_with('{') {
                last.entries
                    .push(entry(line).ok_or_else(|| error("expected { key: value } name: number …"))?);
            } else if line.starts_with("Hits:") {
                last.hits = total("Hits:").ok_or_else(|| error("expected a number of hits"))?;
            } else if line.starts_with("Dropped:") {
                last.dropped =
                    total("Dropped:").ok_or_else(|| error("expected a number of dropped events"))?;
            }
        }
        Ok(all)
    }
}

/// `{ k: ~ 2^14, pid: 1 } hitcount: 105  d: 2837123`
fn entry(line: &str) -> Option<Entry> {
    let (keys, values) = line.strip_prefix('{')?.rsplit_once('}')?;
    let pair = |text: &str| {
        let (name, value) = text.split_once(':')?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    let keys = keys.split(',').map(pair).collect::<Option<Vec<_>>>()?;
    let mut words = values.split_whitespace();
    let mut numbers = Vec::new();
    while let Some(name) = words.next() {
        let name = name.strip_suffix(':')?;
        numbers.push((name.to_owned(), words.next()?.parse().ok()?));
    }
    Some(Entry { keys, values: numbers })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# event histogram
#
# trigger info: hist:keys=k.log2:vals=hitcount,d:sort=hitcount:size=2048 [active]
#

{ k: ~ 2^13 } hitcount:          1  d:       4321
{ k: ~ 2^15 } hitcount:         20  d:     540000

Totals:
    Hits: 21
    Entries: 2
    Dropped: 3
";

    #[test]
    fn entries_and_totals_are_read() {
        let [hist] = <[HistFile; 1]>::try_from(HistFile::parse("x", TEXT).unwrap()).unwrap();
        assert_eq!((hist.hits, hist.dropped, hist.entries.len()), (21, 3, 2));
        assert_eq!(hist.entries[1].log2("k"), Some(15));
        assert_eq!(hist.entries[1].value("d"), Some(540_000));
        assert_eq!(hist.entries[1].value("hitcount"), Some(20));
        assert!(hist.trigger.starts_with("hist:keys=k.log2"));
    }

    #[test]
    fn a_real_kernels_file_is_read() {
        let text = include_str!("../tests/data/purge-6.12.hist");
        let [hist] = <[HistFile; 1]>::try_from(HistFile::parse("purge", text).unwrap()).unwrap();
        let sum = |name: &str| hist.entries.iter().filter_map(|entry| entry.value(name)).sum::<u64>();
        assert_eq!((hist.hits, hist.dropped, hist.entries.len()), (26, 0, 10));
        assert_eq!((sum("hitcount"), sum("d")), (26, 60_054_970));
        assert!(hist.entries.iter().all(|entry| entry.log2("k").is_some()));
    }

    #[test]
    fn several_triggers_are_several_histograms() {
        assert_eq!(HistFile::parse("x", &TEXT.repeat(2)).unwrap().len(), 2);
        assert_eq!(HistFile::parse("x", "").unwrap(), []);
    }

    #[test]
    fn errors_name_the_line() {
        let error = HistFile::parse("ev", &TEXT.replace("4321", "many")).unwrap_err().to_string();
        assert!(error.contains("of ev") && error.contains("line 6"), "{error}");
    }
}
