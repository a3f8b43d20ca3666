//! Numbers as people read them.

use crate::report::{Datum, Unit};

/// A count with its thousands apart: "1,234,567".
pub(crate) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number with as many places as matter: three digits or more, never more than three places.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    let places = if size >= 100.0 || size == 0.0 {
        0
    } else if size >= 10.0 {
        1
    } else if size >= 1.0 {
        2
    } else {
        3
    };
    let rounded = format!("{size:.places$}");
    let (whole, fraction) = rounded.split_once('.').unwrap_or((&rounded, ""));
    let sign =
        if value < 0.0 && rounded.bytes().any(|byte| (b'1'..=b'9').contains(&byte)) { "-" } else { "" };
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), count);
    if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

/// A figure of a row.
pub(crate) fn figure(value: f64, unit: Unit) -> String {
    match unit {
        // The mean over runs may have a fraction.
        Unit::Count | Unit::Pages if value.fract() == 0.0 && value >= 0.0 => count(value as u64),
        Unit::Seconds | Unit::Percent => format!("{value:.2}"),
        Unit::Count | Unit::Pages | Unit::Ms | Unit::PagesPerSecond => number(value),
    }
}

pub(crate) fn datum(datum: &Datum) -> String {
    match datum {
        Datum::Text(text) => text.clone(),
        Datum::Count(value) => count(*value),
        Datum::Number(value) => number(*value),
        Datum::None => "-".into(),
    }
}

/// Milliseconds of microseconds, short: "512 us", "1.0 ms", "33 s".
pub(crate) fn duration_us(us: u64) -> String {
    match us {
        0..1000 => format!("{us} us"),
        1000..1_000_000 => format!("{} ms", number(us as f64 / 1e3)),
        _ => format!("{} s", number(us as f64 / 1e6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_places_that_matter() {
        let all = [0.0, 0.0004, 0.1234, 1.234, 12.34, 123.4, 1234.5, -0.25, -0.0001, 99.99];
        let printed = all.map(number);
        assert_eq!(
            printed,
            ["0", "0.000", "0.123", "1.23", "12.3", "123", "1,234", "-0.250", "0.000", "100.0"]
        );
        assert_eq!(figure(1234.0, Unit::Pages), "1,234");
        assert_eq!(figure(1234.5, Unit::Pages), "1,234");
        assert_eq!(
            [duration_us(512), duration_us(2048), duration_us(33_554_432)],
            ["512 us", "2.05 ms", "33.6 s"]
        );
    }
}
