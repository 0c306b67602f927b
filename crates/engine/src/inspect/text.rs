//! Formats bytes, times and log addresses as text.

use std::fmt::Write as _;

use duramen_types::LogAddress;

/// Number of bytes of a key that are shown.
const SHOWN: usize = 40;

/// Formats a key in hexadecimal, and as text if it is text, with its length. Long keys are cut.
pub(super) fn key(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(SHOWN)];
    let mut out = hex(shown);
    if shown.len() < bytes.len() {
        out.push_str("...");
    }
    if !shown.is_empty() && shown.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ') {
        let _ = write!(out, " {:?}", String::from_utf8_lossy(shown));
    }
    let _ = write!(out, " ({} bytes)", bytes.len());
    out
}

/// Formats bytes in hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// Formats a time in microseconds since 1970 as date and time of day, UTC.
pub(super) fn time(micros: u64) -> String {
    let seconds = micros / 1_000_000;
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Returns the date `days` after 1970-01-01, in the Gregorian calendar. Years are counted from
/// March, so that a leap day is the last day of its year and the months' lengths repeat every five
/// months (153 days).
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_TO_1970: u64 = 719_468; // from 0000-03-01
    const ERA: u64 = 146_097; // days in 400 years
    let days = days + DAYS_TO_1970;
    let (era, day_of_era) = (days / ERA, days % ERA);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

/// Formats an address in one of the logs; with one log, the log is not named.
pub(super) fn place(place: LogAddress) -> String {
    if place.log().is_zero() { place.lsn().to_string() } else { format!("{} of {}", place.lsn(), place.log()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_both_ways() {
        assert_eq!(key(b"ab"), "0x6162 \"ab\" (2 bytes)");
        assert_eq!(key(&[0, 1]), "0x0001 (2 bytes)");
        assert_eq!(key(b""), "0x (0 bytes)");
        assert!(key(&[b'x'; 1000]).ends_with("... \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\" (1000 bytes)"));
    }

    #[test]
    fn times_are_dates() {
        assert_eq!(time(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(time(951_782_400_000_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(time(1_735_689_599_000_000), "2024-12-31 23:59:59 UTC");
        assert!(!time(u64::MAX).is_empty());
    }
}
