//! The values of the command-line contract, and the messages for others.

use std::str::FromStr;
use std::time::Duration;

use duramen::pmem::Domain;
use duramen::{
    Barriers, CommitMode, Granularity, InsertDesign, Isolation, MAX_LOGS, Partition, Residence, SystemCache,
};
use duramen_workloads::selection::NAMES;

/// An option with named values.
struct Axis {
    offered: &'static [&'static str],
}

/// The benchmarks that need no database: of the log buffer alone, of the device alone, and of
/// persistent memory alone.
pub(crate) const LOG_INSERT_BENCH: &str = "log-insert";
pub(crate) const DEVICE_SYNC_BENCH: &str = "device-sync";
pub(crate) const BARRIER_BENCH: &str = "barrier";
const BENCHES: [&str; NAMES.len() + 3] = {
    let mut all = [LOG_INSERT_BENCH; NAMES.len() + 3];
    all[NAMES.len()] = DEVICE_SYNC_BENCH;
    all[NAMES.len() + 1] = BARRIER_BENCH;
    let mut i = 0;
    while i < NAMES.len() {
        all[i] = NAMES[i];
        i += 1;
    }
    all
};
const WORKLOAD: Axis = Axis { offered: &BENCHES };
const COMMIT: Axis = Axis { offered: &["sync", "elr", "pipelined", "async"] };
const LOG_INSERT: Axis = Axis { offered: &InsertDesign::NAMES };
const PARTITION: Axis = Axis { offered: &["transaction", "page", "round-robin"] };
const LOG_DEVICE: Axis = Axis { offered: &["file", "nvm"] };
const DOMAIN: Axis = Axis { offered: &["durable-cache", "volatile-cache"] };
const SCHEME: Axis = Axis { offered: &["wal", "in-place", "nvram-group-commit", "pcm-logging", "pcm-basic", "no-pcm"] };
const BARRIERS: Axis = Axis { offered: &["fewest", "paper"] };
const GRANULARITY: Axis = Axis { offered: &["page", "tuple"] };
const SYSTEM_CACHE: Axis = Axis { offered: &["data", "none", "all"] };
const RESIDENCE: Axis = Axis { offered: &["cached", "direct"] };
const ISOLATION: Axis = Axis { offered: &["serializable", "read-committed"] };

impl Axis {
    /// Returns the value called `name`, or why it does not exist.
    fn choose(&self, name: &str) -> Result<&'static str, String> {
        if let Some(value) = self.offered.iter().find(|value| **value == name) {
            return Ok(value);
        }
        Err(format!("this value is unknown; the values are `{}`", self.offered.join("`, `")))
    }

    fn parse<T: FromStr>(&self, name: &str) -> Result<T, String>
    where
        T::Err: std::fmt::Display,
    {
        self.choose(name)?.parse().map_err(|error: T::Err| error.to_string())
    }
}

pub(crate) fn workload(name: &str) -> Result<&'static str, String> {
    WORKLOAD.choose(name)
}

pub(crate) fn commit(name: &str) -> Result<CommitMode, String> {
    COMMIT.parse(name)
}

pub(crate) fn log_insert(name: &str) -> Result<InsertDesign, String> {
    LOG_INSERT.parse(name)
}

pub(crate) fn system_cache(name: &str) -> Result<SystemCache, String> {
    SYSTEM_CACHE.parse(name)
}

pub(crate) fn isolation(name: &str) -> Result<Isolation, String> {
    ISOLATION.parse(name)
}

pub(crate) fn partition(name: &str) -> Result<Partition, String> {
    PARTITION.parse(name)
}

pub(crate) fn log_device(name: &str) -> Result<&'static str, String> {
    LOG_DEVICE.choose(name)
}

pub(crate) fn scheme(name: &str) -> Result<&'static str, String> {
    SCHEME.choose(name)
}

pub(crate) fn barriers(name: &str) -> Result<Barriers, String> {
    BARRIERS.parse(name)
}

pub(crate) fn granularity(name: &str) -> Result<Granularity, String> {
    GRANULARITY.parse(name)
}

pub(crate) fn residence(name: &str) -> Result<Residence, String> {
    RESIDENCE.parse(name)
}

/// Parses the delay of a random write, in milliseconds.
pub(crate) fn delay(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=1000.0).contains(number));
    number.map(|number| Duration::from_secs_f64(number / 1000.0)).ok_or_else(|| "the values are 0 to 1000".to_owned())
}

/// Parses the period of batches, in milliseconds.
pub(crate) fn batch_period(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|number| (0.001..=10_000.0).contains(number));
    number
        .map(|number| Duration::from_secs_f64(number / 1000.0))
        .ok_or_else(|| "the values are 0.001 to 10000".to_owned())
}

pub(crate) fn domain(name: &str) -> Result<Domain, String> {
    DOMAIN.parse(name)
}

pub(crate) fn logs(number: &str) -> Result<u16, String> {
    match number.parse() {
        Ok(logs) if (1..=MAX_LOGS).contains(&logs) => Ok(logs),
        Ok(_) => Err(format!("a database has 1 to {MAX_LOGS} logs")),
        Err(_) => Err(format!("it is not a number; a database has 1 to {MAX_LOGS} logs")),
    }
}

/// Parses a time in seconds, or nothing.
pub(crate) fn warmup(number: &str) -> Result<f64, String> {
    if number.parse() == Ok(0.0) { Ok(0.0) } else { seconds(number) }
}

/// Parses a time in seconds, more than nothing and at most a year.
pub(crate) fn seconds(number: &str) -> Result<f64, String> {
    match number.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 366.0 * 86_400.0 => Ok(seconds),
        Ok(_) => Err("it must be more than 0 seconds and at most a year".into()),
        Err(_) => Err("it is not a number of seconds".into()),
    }
}

/// Transactions in a second.
pub(crate) fn rate(number: &str) -> Result<f64, String> {
    match number.parse::<f64>() {
        Ok(rate) if (1e-3..=1e9).contains(&rate) => Ok(rate),
        Ok(_) => Err("it must be from 0.001 to 1000000000 transactions per second".into()),
        Err(_) => Err("it is not a number of transactions per second".into()),
    }
}

/// Parses an exponent of a Zipfian distribution.
pub(crate) fn skew(number: &str) -> Result<f64, String> {
    match number.parse::<f64>() {
        Ok(theta) if (0.0..=10.0).contains(&theta) => Ok(theta),
        Ok(_) => Err("it must be from 0 to 10".into()),
        Err(_) => Err("it is not a number".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offered_value_exists_and_others_are_refused_with_the_choice() {
        assert!(COMMIT.offered.iter().all(|name| commit(name).is_ok_and(|mode| mode.to_string() == *name)));
        assert!(LOG_INSERT.offered.iter().all(|name| log_insert(name).is_ok_and(|design| design.to_string() == *name)));
        assert!(PARTITION.offered.iter().all(|name| partition(name).is_ok_and(|way| way.to_string() == *name)));
        assert!(ISOLATION.offered.iter().all(|name| isolation(name).is_ok_and(|level| level.to_string() == *name)));
        for axis in [WORKLOAD, COMMIT, LOG_INSERT, PARTITION, LOG_DEVICE, SCHEME] {
            let refusal = axis.choose("nonsense").unwrap_err();
            assert!(refusal.contains("unknown") && refusal.contains(axis.offered[0]), "{refusal}");
        }
        assert_eq!(workload("tatp:get-subscriber"), Ok("tatp:get-subscriber"));
        assert!(workload("tatp:nothing").unwrap_err().contains("unknown"));
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        assert_eq!((logs("1"), logs("24")), (Ok(1), Ok(24)));
        assert!(["0", "25", "-1", "x"].iter().all(|text| logs(text).is_err()));
        assert_eq!(seconds("0.5"), Ok(0.5));
        assert_eq!((warmup("0"), warmup("2.5")), (Ok(0.0), Ok(2.5)));
        assert!(["-1", "NaN", "x"].iter().all(|text| warmup(text).is_err()));
        assert!(["0", "-1", "NaN", "inf", "x"].iter().all(|text| seconds(text).is_err()));
        assert_eq!(skew("0.99"), Ok(0.99));
        assert!(["-1", "11", "NaN", "x"].iter().all(|text| skew(text).is_err()));
        assert_eq!(domain("durable-cache"), Ok(Domain::DurableCache));
        assert!(domain("eadr").unwrap_err().contains("volatile-cache"));
    }
}
