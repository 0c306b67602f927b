//! Numbers for people.

use std::time::Duration;

/// Formats a whole number with a comma between groups of three digits.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a size in the largest unit of which there is at least one.
pub(crate) fn bytes(number: u64) -> String {
    let mut size = number as f64;
    for unit in ["bytes", "KiB", "MiB", "GiB"] {
        if size < 1024.0 {
            return if unit == "bytes" { format!("{number} bytes") } else { format!("{size:.1} {unit}") };
        }
        size /= 1024.0;
    }
    format!("{size:.1} TiB")
}

/// Formats a latency in a unit that leaves a few digits.
pub(crate) fn latency(time: Duration) -> String {
    let micros = micros(time);
    match micros {
        ..1_000.0 => format!("{micros:.1} us"),
        ..1_000_000.0 => format!("{:.2} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

/// Formats a time in microseconds, to a tenth.
pub(crate) fn micros(time: Duration) -> f64 {
    (time.as_nanos() as f64 / 100.0).round() / 10.0
}

/// `part` for each of `whole`, or a dash when there is nothing to share.
pub(crate) fn ratio(part: u64, whole: u64) -> String {
    if whole == 0 { "-".into() } else { format!("{:.2}", part as f64 / whole as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([12, 1536, 3 << 20, 5 << 40].map(bytes), ["12 bytes", "1.5 KiB", "3.0 MiB", "5.0 TiB"]);
        let latencies = [250, 1_500_000, 2_000_000_000].map(Duration::from_nanos).map(latency);
        assert_eq!(latencies, ["0.3 us", "1.50 ms", "2.00 s"]);
        assert_eq!([ratio(1, 0), ratio(3, 2)], ["-", "1.50"]);
    }
}
