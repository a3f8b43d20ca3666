//! How long machines ran: machine-hours by kernel, fleet and class, and which hosts are of which fleet and class.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use csv::{ErrorKind, Reader, ReaderBuilder, StringRecord, Trim};
use pagehaul_latency::matches_glob;

use super::input::{Bad, InputError, read};
use super::version::is_of;
use crate::date::parse_date;

/// Seconds of a day.
const DAY: i64 = 86_400;
/// Machine-hours of a line, if there are any: rates of fewer would be infinite.
const MIN_HOURS: f64 = 1e-6;
/// Machine-hours of all lines, at most: sums of more lose those of a machine.
const MAX_HOURS: f64 = 1e15;

/// Machines that are counted together. A part that the file of machine-hours lacks is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub(crate) struct Machines {
    pub(crate) release: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fleet: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) class: Option<String>,
}

/// The file of machine-hours.
#[derive(Debug, Default)]
pub(crate) struct Exposure {
    pub(crate) hours: BTreeMap<Machines, f64>,
    pub(crate) has_fleet: bool,
    pub(crate) has_class: bool,
    /// First second of the first day, and of the day after the last, where the file has days. In seconds since 1970.
    pub(crate) days: Option<(i64, i64)>,
}

impl Exposure {
    /// Reads a file of machine-hours. Rows of days before `since` do not count.
    ///
    /// # Errors
    /// Fails if it cannot be read, or a line is not as expected.
    pub(crate) fn open(path: &Path, since: Option<i64>) -> Result<Self, InputError> {
        Self::parse(&read(path)?, since).map_err(|bad| bad.of(path))
    }

    fn parse(text: &str, since: Option<i64>) -> Result<Self, Bad> {
        let mut rows = Rows::new(text, ["release", "machine_hours"], ["fleet", "class", "day"])?;
        let mut exposure =
            Self { has_fleet: rows.has("fleet"), has_class: rows.has("class"), ..Self::default() };
        let mut total = 0.0;
        while let Some(row) = rows.next()? {
            let text = |name: &str| {
                let value = row.get(name);
                match value {
                    Some("") => Err(Bad { line: row.line, expected: format!("a value for {name}") }),
                    value => Ok(value.map(str::to_owned)),
                }
            };
            let hours = row.get("machine_hours").and_then(|hours| hours.parse::<f64>().ok());
            let hours = hours.filter(|hours| hours.is_finite() && *hours >= 0.0);
            let hours =
                hours.ok_or_else(|| Bad::new(row.line, "a number of machine_hours, such as 1234.5"))?;
            if hours > 0.0 && hours < MIN_HOURS {
                return Err(Bad::new(row.line, "machine_hours of 0, or of 0.000001 or more"));
            }
            if let Some(day) = row.get("day") {
                let day = parse_date(day).map_err(|expected| Bad::new(row.line, day_of(&expected)))?;
                if since.is_some_and(|since| day.saturating_add(DAY) <= since) {
                    continue;
                }
                let (first, end) = exposure.days.unwrap_or((day, day.saturating_add(DAY)));
                exposure.days = Some((first.min(day), end.max(day.saturating_add(DAY))));
            }
            total += hours;
            if total > MAX_HOURS {
                return Err(Bad::new(row.line, "a sum of machine_hours of 1e15 at most"));
            }
            let machines = Machines {
                release: text("release")?.unwrap_or_default(),
                fleet: text("fleet")?,
                class: text("class")?,
            };
            *exposure.hours.entry(machines).or_default() += hours;
        }
        Ok(exposure)
    }

    /// Returns the kernel that a crash of an unknown fleet and class is counted with. `None` if it has no machine-hours, or depends on the
    /// fleet or class.
    pub(crate) fn kernel(&self, release: &str) -> Option<&str> {
        let places: BTreeSet<_> =
            self.hours.keys().map(|machines| (&machines.fleet, &machines.class)).collect();
        let found = places.into_iter().filter_map(|(fleet, class)| {
            let (machines, hours) =
                self.hours.get_key_value(&self.machines(release, fleet.as_deref(), class.as_deref()))?;
            (*hours > 0.0).then_some(machines.release.as_str())
        });
        let found: BTreeSet<&str> = found.collect();
        found.first().copied().filter(|_| found.len() == 1)
    }

    /// Returns the machines that a kernel of a fleet and class is counted with: those of its release, else of the longest release that it
    /// begins with. Machines that the file lacks keep the release.
    pub(crate) fn machines(&self, release: &str, fleet: Option<&str>, class: Option<&str>) -> Machines {
        let alike = self.hours.keys().filter(|machines| {
            machines.fleet.as_deref() == fleet
                && machines.class.as_deref() == class
                && is_of(release, &machines.release)
        });
        alike.max_by_key(|machines| machines.release.len()).cloned().unwrap_or_else(|| Machines {
            release: release.to_owned(),
            fleet: fleet.map(str::to_owned),
            class: class.map(str::to_owned),
        })
    }
}

/// `parse_date` names a time, too.
fn day_of(_expected: &str) -> &'static str {
    "a day such as 2026-11-01"
}

/// The file of hosts.
#[derive(Debug, Default)]
pub(crate) struct Hosts {
    names: HashMap<String, Place>,
    /// Names with `*`, in the order of the file.
    patterns: Vec<(String, Place)>,
}

/// Where a host belongs.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) fleet: Option<String>,
    pub(crate) class: Option<String>,
}

impl Hosts {
    /// Reads a file of hosts.
    ///
    /// # Errors
    /// Fails if it cannot be read, or a line is not as expected.
    pub(crate) fn open(path: &Path) -> Result<Self, InputError> {
        Self::parse(&read(path)?).map_err(|bad| bad.of(path))
    }

    fn parse(text: &str) -> Result<Self, Bad> {
        let mut rows = Rows::new(text, ["host"], ["fleet", "class"])?;
        if !rows.has("fleet") && !rows.has("class") {
            return Err(Bad::new(1, "a column fleet or class"));
        }
        let mut hosts = Self::default();
        while let Some(row) = rows.next()? {
            let text = |name: &str| row.get(name).filter(|value| !value.is_empty()).map(str::to_owned);
            let host = text("host").ok_or_else(|| Bad::new(row.line, "the name of a host"))?;
            let place = Place { fleet: text("fleet"), class: text("class") };
            if host.contains(['*', '?']) {
                hosts.patterns.push((host, place));
            } else if hosts.names.insert(host, place).is_some() {
                return Err(Bad::new(row.line, "a host that is not in an earlier line"));
            }
        }
        Ok(hosts)
    }

    /// Returns where a host belongs: by its name, else by the first pattern that matches.
    pub(crate) fn place(&self, host: &str) -> Option<&Place> {
        let pattern =
            || self.patterns.iter().find(|(pattern, _)| matches_glob(pattern, host)).map(|(_, place)| place);
        self.names.get(host).or_else(pattern)
    }

    /// Returns all places, each once.
    pub(crate) fn places(&self) -> BTreeSet<&Place> {
        self.names.values().chain(self.patterns.iter().map(|(_, place)| place)).collect()
    }
}

/// The rows of a CSV file with a header.
struct Rows<'a> {
    text: &'a str,
    reader: Reader<&'a [u8]>,
    columns: Vec<String>,
}

struct Row<'a> {
    line: usize,
    columns: &'a [String],
    values: StringRecord,
}

impl<'a> Rows<'a> {
    fn new<const N: usize, const M: usize>(
        text: &'a str,
        needed: [&str; N],
        other: [&str; M],
    ) -> Result<Self, Bad> {
        let mut reader =
            ReaderBuilder::new().trim(Trim::All).comment(Some(b'#')).from_reader(text.as_bytes());
        let header = reader.headers().map_err(|error| bad(text, &error))?;
        let line = line_of(text, header.position());
        let columns: Vec<String> = header.iter().map(str::to_owned).collect();
        let known = |name: &String| needed.contains(&name.as_str()) || other.contains(&name.as_str());
        let all = || {
            columns.iter().all(known) && needed.iter().all(|name| columns.iter().any(|column| column == name))
        };
        let once = columns.iter().collect::<BTreeSet<_>>().len() == columns.len();
        if !all() || !once {
            let expected = format!("columns {}, and perhaps {}", needed.join(", "), other.join(", "));
            return Err(Bad { line, expected });
        }
        Ok(Self { text, reader, columns })
    }

    fn has(&self, name: &str) -> bool {
        self.columns.iter().any(|column| column == name)
    }

    fn next(&mut self) -> Result<Option<Row<'_>>, Bad> {
        let mut values = StringRecord::new();
        if !self.reader.read_record(&mut values).map_err(|error| bad(self.text, &error))? {
            return Ok(None);
        }
        let line = line_of(self.text, values.position());
        Ok(Some(Row { line, columns: &self.columns, values }))
    }
}

impl Row<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.values.get(self.columns.iter().position(|column| column == name)?)
    }
}

/// The line of a record. Its position is before the comments and empty lines that precede it.
fn line_of(text: &str, position: Option<&csv::Position>) -> usize {
    let Some(position) = position else { return 1 };
    let rest = text.get(position.byte() as usize..).unwrap_or_default();
    let skipped = rest.lines().take_while(|line| line.is_empty() || line.starts_with('#')).count();
    position.line() as usize + skipped
}

fn bad(text: &str, error: &csv::Error) -> Bad {
    let line = line_of(text, error.position());
    match error.kind() {
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            Bad { line, expected: format!("{expected_len} values, as in the header; found {len}") }
        }
        _ => Bad { line, expected: format!("CSV: {error}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOURS: &str = "# From the inventory.\nrelease, fleet, class, machine_hours\n6.12, web, large, 1000.5\n\
                         6.12.4,web,large,20\n6.12,web,large,0.5\n6.1,\"db, old\",small,300\n";

    fn machines(release: &str, fleet: &str, class: &str) -> Machines {
        Machines { release: release.to_owned(), fleet: Some(fleet.to_owned()), class: Some(class.to_owned()) }
    }

    #[test]
    fn hours_of_equal_machines_add_up() {
        let exposure = Exposure::parse(HOURS, None).unwrap();
        assert_eq!(exposure.hours[&machines("6.12", "web", "large")], 1001.0);
        assert_eq!(exposure.hours[&machines("6.1", "db, old", "small")], 300.0);
        assert!(exposure.has_fleet && exposure.has_class && exposure.days.is_none());
        for (release, fleet, class, found) in [
            ("6.12.4-2-amd64", "web", "large", "6.12.4"),
            ("6.12.5", "web", "large", "6.12"),
            ("6.120", "web", "large", "6.120"),
            // Of the releases of its own fleet and class, the longest counts.
            ("6.1.4", "db, old", "small", "6.1"),
            ("6.12.4", "db, old", "small", "6.12.4"),
        ] {
            assert_eq!(exposure.machines(release, Some(fleet), Some(class)), machines(found, fleet, class));
        }
    }

    #[test]
    fn days_are_the_period() {
        let text = "day,release,machine_hours\n2026-11-02,6.1,24\n2026-11-01,6.1,24\n2026-10-30,6.1,24\n";
        let day = |text| parse_date(text).unwrap();
        let exposure = Exposure::parse(text, Some(day("2026-11-01"))).unwrap();
        assert_eq!(exposure.days, Some((day("2026-11-01"), day("2026-11-03"))));
        assert_eq!(exposure.hours.values().sum::<f64>(), 48.0);
        assert!(Exposure::parse("release,machine_hours\n", None).unwrap().hours.is_empty());
    }

    #[test]
    fn hosts_are_known_by_name_or_pattern() {
        let hosts = Hosts::parse("host,fleet,class\nweb*,web,small\nweb1,canary,small\n*-db-*.example,db,\n")
            .unwrap();
        let fleet = |host: &str| hosts.place(host).and_then(|place| place.fleet.as_deref());
        assert_eq!(
            [fleet("web1"), fleet("web12"), fleet("a-db-7.example")],
            [Some("canary"), Some("web"), Some("db")]
        );
        assert_eq!([fleet("aweb1"), fleet("a-db-7.example.com"), fleet("a-db.example")], [None; 3]);
        assert_eq!(hosts.places().len(), 3);
        for (pattern, name, is) in [
            ("*", "", true),
            ("a*a", "a", false),
            ("a*a", "aa", true),
            ("a*b*c", "abxbc", true),
            ("a**", "a", true),
        ] {
            assert_eq!(matches_glob(pattern, name), is, "{pattern} {name}");
        }
    }

    #[test]
    fn an_error_names_the_line_and_what_was_expected() {
        for (text, line, expected) in [
            ("", 1, "columns release, machine_hours"),
            ("release,hours\n", 1, "columns release, machine_hours, and perhaps fleet, class, day"),
            ("release,release,machine_hours\n", 1, "columns"),
            ("release,machine_hours\n6.1,1\n6.1\n", 3, "2 values, as in the header; found 1"),
            ("release,machine_hours\n\n# a\n6.1,-1\n", 4, "machine_hours"),
            ("release,machine_hours\n6.1,1e999\n", 2, "machine_hours"),
            ("release,machine_hours\n,1\n", 2, "a value for release"),
            ("release,day,machine_hours\n6.1,today,1\n", 2, "a day such as"),
        ] {
            let bad = Exposure::parse(text, None).unwrap_err();
            assert_eq!(bad.line, line, "{text}: {bad:?}");
            assert!(bad.expected.contains(expected), "{text}: {bad:?}");
        }
        for (text, line, expected) in [
            ("host\na\n", 1, "fleet or class"),
            ("host,fleet\n,a\n", 2, "name of a host"),
            ("host,fleet\nx,a\nx,b\n", 3, "earlier line"),
        ] {
            let bad = Hosts::parse(text).unwrap_err();
            assert_eq!((bad.line, bad.expected.contains(expected)), (line, true), "{text}: {bad:?}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_by_line(text in "[-#*,\"a-z0-9.\n\\PC]{0,200}", days: bool) {
            let header = if days { "release,machine_hours,day\n" } else { "release,machine_hours\n" };
            let lines = text.lines().count() + 2;
            for result in [Exposure::parse(&text, None), Exposure::parse(&format!("{header}{text}"), Some(0))] {
                if let Err(bad) = result {
                    prop_assert!((1..=lines).contains(&bad.line), "{:?}", bad);
                }
            }
            if let Err(bad) = Hosts::parse(&format!("host,fleet\n{text}")) {
                prop_assert!((1..=lines).contains(&bad.line), "{:?}", bad);
            }
        }

        #[test]
        fn what_is_written_is_read(rows in prop::collection::vec(("[!-~]{1,8}", "[ -~]{0,8}[!-~]", 0.0_f64..1e6), 0..20)) {
            let mut text = csv::Writer::from_writer(Vec::new());
            text.write_record(["machine_hours", "release", "fleet"]).unwrap();
            let mut expected: BTreeMap<Machines, f64> = BTreeMap::new();
            for (release, fleet, hours) in rows.iter().filter(|(release, ..)| !release.starts_with('#')) {
                text.write_record([hours.to_string().as_str(), release, fleet]).unwrap();
                let machines = Machines { release: release.clone(), fleet: Some(fleet.trim().to_owned()), class: None };
                *expected.entry(machines).or_default() += hours;
            }
            let text = String::from_utf8(text.into_inner().unwrap()).unwrap();
            prop_assert_eq!(Exposure::parse(&text, None).unwrap().hours, expected);
        }

        #[test]
        fn a_pattern_fits_what_it_was_made_of(parts in prop::collection::vec("[ab]{0,3}", 1..5), between in "[abc]{0,3}") {
            prop_assert!(matches_glob(&parts.join("*"), &parts.join(&between)));
        }
    }
}
