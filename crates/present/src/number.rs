//! Numbers as text.

/// Formats bytes in binary units: `1.5 GiB`.
pub fn bytes(count: u64) -> String {
    bytesize::ByteSize::b(count).display().iec().to_string()
}

/// Formats bytes in binary units in at most six characters, for narrow columns: `1.5G`.
pub fn bytes_short(count: u64) -> String {
    bytesize::ByteSize::b(count).display().iec_short().to_string()
}

/// Formats a rate over `seconds` in binary units: `6.6 GiB/s`.
pub fn bytes_per_second(count: u64, seconds: f64) -> String {
    format!("{}/s", bytes((count as f64 / seconds.max(1e-9)) as u64))
}

/// Formats a count with thousands separators: `1,234,567`.
pub fn count(value: u64) -> String {
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

/// Formats a count with its noun: `1 task`, `1,234 tasks`.
pub fn counted(value: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(value), if value == 1 { "" } else { "s" })
}

/// Formats `part` as a percentage of `whole`: `18.6 %`.
pub fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}

/// Formats a number with three significant digits or all of its integer digits, and at most three decimals: `1,234`,
/// `12.3`, `0.123`.
pub fn significant(value: f64) -> String {
    let size = value.abs();
    let decimals = match size {
        0.0 | 100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    let rounded = format!("{size:.decimals$}");
    let (whole, fraction) = rounded.split_once('.').unwrap_or((&rounded, ""));
    let sign =
        if value < 0.0 && rounded.bytes().any(|byte| (b'1'..=b'9').contains(&byte)) { "-" } else { "" };
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), count);
    if fraction.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

/// Parses a number of bytes: `512M`. K, M, G and T are powers of two, as in makedumpfile and the kernel's options.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().trim_end_matches("IB") {
        "" | "B" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => 64,
    };
    let bytes =
        digits.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(1_u64.checked_shl(shift)?));
    bytes.ok_or_else(|| "expected a size such as 64K, 4M, 20G".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_thousands_separators() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn nouns_have_a_plural() {
        assert_eq!([0, 1, 2_000].map(|value| counted(value, "task")), ["0 tasks", "1 task", "2,000 tasks"]);
    }

    #[test]
    fn bytes_have_binary_units() {
        assert_eq!([1023, 1536, 5 << 30].map(bytes), ["1023 B", "1.5 KiB", "5.0 GiB"]);
        assert_eq!([1536, 150 << 20, u64::MAX].map(bytes_short), ["1.5K", "150.0M", "16.0E"]);
        assert_eq!(bytes_per_second(3 << 20, 2.0), "1.5 MiB/s");
        assert_eq!([percent(1, 3), percent(1, 0)], ["33.3 %", "100.0 %"]);
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        let all = [0.0, 0.0004, 0.1234, 1.234, 12.34, 123.4, 1234.5, -0.25, -0.0001, 99.99];
        assert_eq!(
            all.map(significant),
            ["0", "0.000", "0.123", "1.23", "12.3", "123", "1,234", "-0.250", "0.000", "100.0"]
        );
    }

    #[test]
    fn sizes_are_powers_of_two() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("64k"), Ok(64 << 10));
        assert_eq!(parse_bytes("4MiB"), Ok(4 << 20));
        assert_eq!(parse_bytes("20G"), Ok(20 << 30));
        assert_eq!(parse_bytes("64T"), Ok(64 << 40));
        for text in ["", "G", "-1M", "1.5G", "4X", "99999999999T"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
