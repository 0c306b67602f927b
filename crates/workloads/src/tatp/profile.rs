//! Everything that the population holds about one subscriber, by the specification's rules.

use rand::RngExt;
use rand::rngs::StdRng;

use super::row::{AccessInfo, CallForwarding, SpecialFacility, Subscriber, sub_nbr};
use crate::random::{fill_digits, fill_letters, population_rng};

/// The times at which call forwardings start.
pub(super) const START_TIMES: [u8; 3] = [0, 8, 16];

/// A subscriber with all its rows: the same in every population that has it.
pub(super) struct Profile {
    pub(super) subscriber: Subscriber,
    /// One to four: ai_type and row.
    pub(super) access_info: Vec<(u8, AccessInfo)>,
    /// One to four: sf_type and row.
    pub(super) facilities: Vec<(u8, SpecialFacility)>,
    /// None to three for each facility: sf_type, start_time and row.
    pub(super) forwardings: Vec<(u8, u8, CallForwarding)>,
}

impl Profile {
    pub(super) fn of(s_id: u32) -> Self {
        let mut rng = population_rng(u64::from_le_bytes(*b"tatp    "), u64::from(s_id));
        let rng = &mut rng;
        let subscriber = Subscriber {
            s_id,
            sub_nbr: sub_nbr(s_id),
            bits: std::array::from_fn(|_| rng.random_range(0..2)),
            hexes: std::array::from_fn(|_| rng.random_range(0..16)),
            bytes: rng.random(),
            msc_location: rng.random_range(1..=u32::MAX),
            vlr_location: rng.random_range(1..=u32::MAX),
        };
        let access_info = subset(rng, &[1, 2, 3, 4], 1)
            .into_iter()
            .map(|ai_type| {
                let mut row: AccessInfo = [0; _];
                rng.fill(&mut row[..2]);
                fill_letters(rng, &mut row[2..]);
                (ai_type, row)
            })
            .collect();
        let facilities: Vec<(u8, SpecialFacility)> = subset(rng, &[1, 2, 3, 4], 1)
            .into_iter()
            .map(|sf_type| {
                let mut row: SpecialFacility = [0; _];
                rng.fill(&mut row[..3]);
                row[super::row::IS_ACTIVE] = u8::from(rng.random_range(0..100) < 85);
                fill_letters(rng, &mut row[3..]);
                (sf_type, row)
            })
            .collect();
        let mut forwardings = Vec::new();
        for (sf_type, _) in &facilities {
            for start_time in subset(rng, &START_TIMES, 0) {
                forwardings.push((*sf_type, start_time, forwarding(rng, start_time, 8)));
            }
        }
        Self { subscriber, access_info, facilities, forwardings }
    }
}

/// Returns a call forwarding that ends 1 to `longest` hours after `from`, to a random number.
pub(super) fn forwarding(rng: &mut StdRng, from: u8, longest: u8) -> CallForwarding {
    let mut row: CallForwarding = [0; _];
    row[super::row::END_TIME] = from + rng.random_range(1..=longest);
    fill_digits(rng, &mut row[1..]);
    row
}

/// At least `least` of `all`, each number of them equally likely, ascending.
fn subset(rng: &mut StdRng, all: &[u8], least: usize) -> Vec<u8> {
    let mut left = rng.random_range(least..=all.len());
    let mut chosen = Vec::with_capacity(left);
    for (place, &value) in all.iter().enumerate() {
        if rng.random_range(0..all.len() - place) < left {
            chosen.push(value);
            left -= 1;
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_follow_the_specification() {
        const PEOPLE: u32 = 4_000;
        let (mut access, mut facilities, mut forwardings, mut active) = ([0u32; 5], [0u32; 5], 0u32, 0u32);
        for s_id in 1..=PEOPLE {
            let profile = Profile::of(s_id);
            assert_eq!(profile.subscriber, Profile::of(s_id).subscriber);
            assert!(profile.subscriber.bits.iter().all(|bit| *bit < 2));
            assert!(profile.subscriber.hexes.iter().all(|hex| *hex < 16));
            access[profile.access_info.len()] += 1;
            facilities[profile.facilities.len()] += 1;
            forwardings += profile.forwardings.len() as u32;
            active += profile.facilities.iter().map(|(_, row)| u32::from(row[0])).sum::<u32>();
            assert!(profile.access_info.is_sorted_by(|a, b| a.0 < b.0));
            assert!(profile.forwardings.is_sorted_by(|a, b| a.0 < b.0 || a.0 == b.0 && a.1 < b.1));
            for (sf_type, start, row) in &profile.forwardings {
                assert!(profile.facilities.iter().any(|(other, _)| other == sf_type));
                assert!(START_TIMES.contains(start) && (1..=8).contains(&(row[0] - start)));
                assert!(row[1..].iter().all(u8::is_ascii_digit));
            }
        }
        for counts in [access, facilities] {
            assert_eq!(counts[0], 0);
            assert!(counts[1..].iter().all(|count| count.abs_diff(PEOPLE / 4) < PEOPLE / 20), "{counts:?}");
        }
        let share = |part: u32, whole: u32| f64::from(part) / f64::from(whole);
        assert!((share(forwardings, PEOPLE) - 2.5 * 1.5).abs() < 0.15);
        assert!((share(active, PEOPLE) - 2.5 * 0.85).abs() < 0.1);
    }
}
