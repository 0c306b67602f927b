//! How long the operations of a simulated device take.

use std::time::Duration;

use duramen_sync::probe::{Probe, reach};
use duramen_sync::{Mutex, SplitMix64, thread, trace};

/// The speed of a device. Each operation takes a random time, one part of it before it takes effect
/// and the rest between its effect and its return, so operations of several threads overtake each
/// other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// The longest time of a normal transfer. Operations that make data durable take up to four
    /// times as long.
    pub usual: Duration,
    /// One in this number of operations, on average, hangs; 0: none does.
    pub hang_one_in: u32,
    /// The longest time for which an operation hangs; it hangs for at least half of it.
    pub hang: Duration,
}

/// Draws the times.
#[derive(Debug)]
pub(super) struct Pacer {
    pace: Pace,
    rng: Mutex<SplitMix64>,
}

impl Pacer {
    pub(super) fn new(pace: Pace, seed: u64) -> Self {
        Self { pace, rng: Mutex::new(SplitMix64::new(seed)) }
    }

    /// Makes a pacer of the same speed for another disk.
    pub(super) fn another(&self) -> Self {
        Self::new(self.pace, self.rng.lock().bits())
    }

    /// Carries out `operation` at the device's speed.
    pub(super) fn paced<R>(&self, durable: bool, operation: impl FnOnce() -> R) -> R {
        let (before, after) = self.draw(durable);
        pass(before);
        let result = operation();
        pass(after);
        result
    }

    fn draw(&self, durable: bool) -> (Duration, Duration) {
        let Pace { usual, hang_one_in, hang } = self.pace;
        let mut rng = self.rng.lock();
        let mut below = |most: Duration| Duration::from_nanos(rng.below(most.as_nanos() as u64 + 1));
        let mut time = below(if durable { usual * 4 } else { usual });
        if hang_one_in > 0 && below(Duration::from_nanos(u64::from(hang_one_in) - 1)).is_zero() {
            reach(Probe::DeviceHung);
            time += hang / 2 + below(hang / 2);
            trace::note(|| format!("disk: hangs for {} us", time.as_micros()));
        }
        let before = below(time);
        (before, time.saturating_sub(before))
    }
}

fn pass(time: Duration) {
    if !time.is_zero() {
        thread::sleep(time);
    }
}

#[cfg(test)]
mod tests {
    use duramen_sync::clock::Instant;

    use super::*;
    use crate::{AlignedBuf, CrashChoice, Disk, OpenMode, SimDisk};

    #[test]
    fn operations_take_their_time_and_images_inherit_it() {
        const HANG: Duration = Duration::from_millis(8);
        let slow = SimDisk::with_pace(3, Pace { usual: Duration::ZERO, hang_one_in: 1, hang: HANG });
        let block = AlignedBuf::zeroed(4096);
        let mut read = AlignedBuf::zeroed(4096);
        let mut time_of = |disk: &SimDisk, mode| {
            let file = disk.open("file", mode).unwrap();
            let times = [0, 1, 2].map(|what| {
                let start = Instant::now();
                match what {
                    0 => file.write_durable(&[&block], 0).unwrap(),
                    1 => file.read_at(&mut read, 0).unwrap(),
                    _ => file.sync().unwrap(),
                }
                start.elapsed()
            });
            times.into_iter().min().unwrap()
        };
        assert!(time_of(&slow, OpenMode::CreateNew) >= HANG / 2);
        slow.sync_directory("").unwrap();
        slow.crash();
        let image = slow.crash_image(&CrashChoice::Nothing);
        assert!(time_of(&image, OpenMode::Existing) >= HANG / 2, "the image is as slow");
        assert!(time_of(&SimDisk::new(3), OpenMode::CreateNew) < HANG / 2);
    }

    #[test]
    fn hangs_are_as_rare_as_asked_for() {
        let pace = Pace { usual: Duration::from_micros(10), hang_one_in: 100, hang: Duration::from_secs(1) };
        let pacer = Pacer::new(pace, 7);
        let times: Vec<Duration> = (0..10_000)
            .map(|_| {
                let (before, after) = pacer.draw(true);
                before + after
            })
            .collect();
        let hangs = times.iter().filter(|time| **time >= pace.hang / 2).count();
        assert!((50..200).contains(&hangs), "{hangs}");
        assert!(times.iter().all(|time| *time >= pace.hang / 2 || *time <= 4 * pace.usual));
    }
}
