//! Dates that users and files name.

/// Seconds since 1970 of a date or time; a date begins at midnight UTC.
pub(crate) fn parse_date(text: &str) -> Result<i64, String> {
    let date = || text.parse::<jiff::civil::Date>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok();
    let time = text.parse::<jiff::Timestamp>().ok().or_else(|| Some(date()?.timestamp()));
    time.map(jiff::Timestamp::as_second).ok_or_else(|| "expected a date such as 2026-11-01".to_owned())
}
