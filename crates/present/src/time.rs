//! Points in time and durations as text.

use std::time::Duration;

use crate::number::significant;

/// Parses a duration: `500ms`, `10s`, `5m`, `1h30m`. A number without a unit is in seconds, as in the BCC tools.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map(Duration::from_secs);
    seconds
        .or_else(|_| humantime::parse_duration(text))
        .map_err(|_| "expected a duration such as 500ms, 30s, 5m".to_owned())
}

/// Formats seconds since 1970 as UTC: `2026-11-21 04:05:06 UTC`. Seconds after the year 9999 stay a number.
pub fn utc(seconds: u64) -> String {
    let timestamp =
        i64::try_from(seconds).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    timestamp.map_or_else(
        || format!("{seconds} s after 1970-01-01 UTC"),
        |timestamp| timestamp.strftime("%Y-%m-%d %H:%M:%S UTC").to_string(),
    )
}

/// Formats the time of day of seconds since 1970, in UTC: `04:05:06`.
pub fn time_of_day(seconds: u64) -> String {
    let day = seconds % 86_400;
    format!("{:02}:{:02}:{:02}", day / 3600, day / 60 % 60, day % 60)
}

/// Formats a duration in seconds: `3.21 s`, `4 min 05 s`, `2 h 05 min`.
pub fn seconds(value: f64) -> String {
    if value < 60.0 {
        return format!("{value:.2} s");
    }
    let whole = value.round() as u64;
    if whole < 3600 {
        format!("{} min {:02} s", whole / 60, whole % 60)
    } else {
        format!("{} h {:02} min", whole / 3600, whole % 3600 / 60)
    }
}

/// Formats a short duration in the unit that fits it: `512 us`, `2.05 ms`, `33.6 s`.
pub fn microseconds(value: u64) -> String {
    match value {
        0..1000 => format!("{value} us"),
        1000..1_000_000 => format!("{} ms", significant(value as f64 / 1e3)),
        _ => format!("{} s", significant(value as f64 / 1e6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse_duration("10"), Ok(Duration::from_secs(10)));
        for text in ["", "-1s", "3 parsecs", "99999999999999999999"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn timestamps_are_utc() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_795_235_719), "2026-11-21 04:35:19 UTC");
        assert_eq!(time_of_day(1_795_235_719), "04:35:19");
        assert_eq!(utc(u64::MAX), "18446744073709551615 s after 1970-01-01 UTC");
    }

    #[test]
    fn durations_have_a_fitting_unit() {
        assert_eq!([59.994, 245.0, 7500.0].map(seconds), ["59.99 s", "4 min 05 s", "2 h 05 min"]);
        assert_eq!([512, 2048, 33_554_432].map(microseconds), ["512 us", "2.05 ms", "33.6 s"]);
    }
}
