//! Quantities with units, as the descriptions write them: `"24 cycles"`, `"147 ns"`, `"4 MiB"`,
//! `"42.4 GB/s"`.

use serde::Deserialize;

use crate::Time;
use crate::line::LINE_BYTES;

/// A length of time in whatever unit its source gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) enum Span {
    /// Thousandths of a processor cycle.
    Millicycles(u64),
    /// Picoseconds.
    Picos(u64),
}

impl Span {
    /// On a processor of `megahertz`, rounded to the nearest picosecond.
    pub(super) fn at(self, megahertz: u64) -> Time {
        match self {
            Self::Millicycles(count) => Time::from_picos(rounded(u128::from(count) * 1000, megahertz)),
            Self::Picos(picos) => Time::from_picos(picos),
        }
    }
}

impl TryFrom<String> for Span {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let (thousandths, unit) = parse(&text)?;
        match unit {
            "cycle" | "cycles" => Ok(Self::Millicycles(thousandths)),
            "ps" => Ok(Self::Picos(thousandths / 1000)),
            "ns" => Ok(Self::Picos(thousandths)),
            "us" => Ok(Self::Picos(thousandths.saturating_mul(1000))),
            "ms" => Ok(Self::Picos(thousandths.saturating_mul(1_000_000))),
            _ => Err(format!("`{text}` is not a length of time: use cycles, ps, ns, us or ms")),
        }
    }
}

/// A clock frequency in megahertz.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Clock(pub(super) u64);

impl TryFrom<String> for Clock {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        match parse(&text)? {
            (thousandths, "MHz") => Ok(Self(thousandths / 1000)),
            (thousandths, "GHz") => Ok(Self(thousandths)),
            _ => Err(format!("`{text}` is not a clock frequency: use MHz or GHz")),
        }
    }
}

/// A size in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Bytes(pub(super) u64);

impl TryFrom<String> for Bytes {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let (thousandths, unit) = parse(&text)?;
        let unit = match unit {
            "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            _ => return Err(format!("`{text}` is not a size: use B, KiB or MiB")),
        };
        Ok(Self(thousandths.saturating_mul(unit) / 1000))
    }
}

/// Bytes moved in a second, in megabytes (10^6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Bandwidth(pub(super) u64);

impl Bandwidth {
    /// How long one line keeps such a path busy, to the nearest picosecond.
    pub(super) fn per_line(self) -> Time {
        Time::from_picos(rounded(LINE_BYTES as u128 * 1_000_000, self.0))
    }
}

impl TryFrom<String> for Bandwidth {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        match parse(&text)? {
            (thousandths, "MB/s") => Ok(Self(thousandths / 1000)),
            (thousandths, "GB/s") => Ok(Self(thousandths)),
            _ => Err(format!("`{text}` is not a bandwidth: use MB/s or GB/s")),
        }
    }
}

/// `dividend / divisor` to the nearest whole number; a divisor of zero counts as one.
fn rounded(dividend: u128, divisor: u64) -> u64 {
    let divisor = u128::from(divisor.max(1));
    u64::try_from((dividend + divisor / 2) / divisor).unwrap_or(u64::MAX)
}

/// Parses a decimal number in thousandths, and its unit.
fn parse(text: &str) -> Result<(u64, &str), String> {
    let wrong = || format!("`{text}` is not a number of at most three decimals, a space and a unit");
    let (number, unit) = text.split_once(' ').ok_or_else(wrong)?;
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(decimals) || decimals.len() > 3 {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let thousandths: u64 = format!("{decimals:0<3}").parse().map_err(|_| wrong())?;
    let value = whole.checked_mul(1000).and_then(|whole| whole.checked_add(thousandths)).ok_or_else(wrong)?;
    Ok((value, unit))
}
