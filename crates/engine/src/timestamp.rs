//! Points in time, as commit records carry them and people write them.

use std::fmt;

use duramen_sync::clock;

const MICROS_PER_SECOND: u64 = 1_000_000;
const SECONDS_PER_DAY: u64 = 86_400;

/// A point in time by the wall clock, in microseconds since 1970, UTC. Written as
/// `2026-11-21T15:28:34.123456Z`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Returns the point `micros` microseconds after the beginning of 1970.
    ///
    /// ```
    /// # use duramen::Timestamp;
    /// let time = Timestamp::from_micros(1_000_000_000_000_000);
    /// assert_eq!(time.to_string(), "2001-09-09T01:46:40.000000Z");
    /// ```
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Returns the microseconds since the beginning of 1970.
    ///
    /// ```
    /// # use duramen::Timestamp;
    /// # fn main() -> duramen::Result<()> {
    /// let second_day: Timestamp = "1970-01-02T00:00:00Z".parse()?;
    /// assert_eq!(second_day.micros(), 24 * 60 * 60 * 1_000_000);
    /// # Ok(())
    /// # }
    /// ```
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// Returns the present time.
    ///
    /// ```
    /// # use duramen::Timestamp;
    /// # fn main() -> duramen::Result<()> {
    /// let now = Timestamp::now();
    /// assert!(now > Timestamp::from_micros(1_000_000_000_000_000)); // in 2001
    /// assert_eq!(now.to_string().parse::<Timestamp>()?, now); // to the microsecond
    /// # Ok(())
    /// # }
    /// ```
    pub fn now() -> Self {
        Self(clock::wall_micros())
    }

    /// Parses `text`; returns `None` if it does not denote a point in time.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        parse(text).map(Self)
    }

    /// Encodes the payload of a commit record with this time: a number in the records' encoding,
    /// and its length in bytes.
    pub(crate) fn encode(self) -> ([u8; 10], usize) {
        let (mut bytes, mut len, mut rest) = ([0; 10], 0, self.0);
        loop {
            bytes[len] = (rest & 0x7F) as u8;
            rest >>= 7;
            len += 1;
            if rest == 0 {
                return (bytes, len);
            }
            bytes[len - 1] |= 0x80;
        }
    }
}

/// Returns the days from the beginning of 1970 to the beginning of `year` (Gregorian calendar).
fn days_before_year(year: u64) -> u64 {
    let leap_days = |year: u64| year / 4 - year / 100 + year / 400;
    (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969)
}

fn days_in_month(year: u64, month: u64) -> u64 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 => 28 + u64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0 / MICROS_PER_SECOND;
        let (mut day, second) = (seconds / SECONDS_PER_DAY, seconds % SECONDS_PER_DAY);
        // The estimate is never too late; the loop then counts up to the right year.
        let mut year = 1970 + day / 366;
        while days_before_year(year + 1) <= day {
            year += 1;
        }
        day -= days_before_year(year);
        let mut month = 1;
        while day >= days_in_month(year, month) {
            day -= days_in_month(year, month);
            month += 1;
        }
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        let micros = self.0 % MICROS_PER_SECOND;
        write!(f, "{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z", day + 1)
    }
}

fn parse(text: &str) -> Option<u64> {
    let number = |digits: &str, len: usize| {
        (digits.len() == len && digits.bytes().all(|byte| byte.is_ascii_digit())).then(|| digits.parse().ok()).flatten()
    };
    let (date, time) = text.strip_suffix('Z')?.split_once(['T', ' '])?;
    let mut date = date.split('-');
    let (year, month, day) = (number(date.next()?, 4)?, number(date.next()?, 2)?, number(date.next()?, 2)?);
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let mut time = time.split(':');
    let (hour, minute, second) = (number(time.next()?, 2)?, number(time.next()?, 2)?, number(time.next()?, 2)?);
    let digits = fraction.len();
    let fraction: u64 = number(fraction, digits).filter(|_| (1..=6).contains(&digits))?;
    let micros = fraction * 10_u64.pow(6 - digits as u32);
    let is_over = date.next().is_none() && time.next().is_none();
    let is_date = year >= 1970 && (1..=12).contains(&month) && (1..=days_in_month(year, month)).contains(&day);
    if !is_over || !is_date || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days_before_year(year) + (1..month).map(|month| days_in_month(year, month)).sum::<u64>() + day - 1;
    Some((days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second) * MICROS_PER_SECOND + micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Reader;

    #[test]
    fn times_are_written_and_read() {
        let known = [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_000, "2000-02-29T00:00:00.000000Z"),
            (1_000_000_000_000_000, "2001-09-09T01:46:40.000000Z"),
            (1_234_567_890_000_001, "2009-02-13T23:31:30.000001Z"),
            (4_102_444_799_999_999, "2099-12-31T23:59:59.999999Z"),
        ];
        for (micros, text) in known {
            assert_eq!(Timestamp::from_micros(micros).to_string(), text);
            assert_eq!(text.parse::<Timestamp>().unwrap().micros(), micros);
        }
        // Tests every day of several centuries, and one second of each day.
        for day in 0..200_000_u64 {
            let time = Timestamp::from_micros((day * SECONDS_PER_DAY + day % SECONDS_PER_DAY) * MICROS_PER_SECOND);
            assert_eq!(time.to_string().parse::<Timestamp>().unwrap(), time);
        }
        assert_eq!("2001-09-09 01:46:40Z".parse::<Timestamp>().unwrap().micros(), 1_000_000_000_000_000);
        assert_eq!("2001-09-09T01:46:40.5Z".parse::<Timestamp>().unwrap().micros(), 1_000_000_000_500_000);
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "Z",
            "2001-09-09T01:46:40",
            "2001-02-29T00:00:00Z",
            "2001-13-01T00:00:00Z",
            "2001-00-01T00:00:00Z",
            "2001-01-00T00:00:00Z",
            "1969-12-31T23:59:59Z",
            "2001-01-01T24:00:00Z",
            "2001-01-01T00:60:00Z",
            "2001-01-01T00:00:60Z",
            "2001-01-01T00:00:00.Z",
            "2001-01-01T00:00:00.1234567Z",
            "2001-01-01-01T00:00:00Z",
            "+001-01-01T00:00:00Z",
            "2001-1-1T0:0:0Z",
        ] {
            assert!(text.parse::<Timestamp>().is_err(), "{text}");
        }
    }

    #[test]
    fn stamps_are_numbers() {
        for micros in [0, 1, 127, 128, 1_800_000_000_000_000, u64::MAX] {
            let (bytes, len) = Timestamp::from_micros(micros).encode();
            let mut reader = Reader::new(&bytes[..len]);
            assert_eq!(reader.number().unwrap(), micros);
            assert!(reader.is_empty());
        }
    }
}
