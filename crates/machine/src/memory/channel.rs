//! Bandwidth: a path that moves one thing at a time.

use crate::Time;

/// Windows that a channel remembers.
const WINDOWS: usize = 256;
/// How many lines fit a window.
const WINDOW_LINES: u64 = 16;

/// A path whose time is given away in the order of the requests, each at its own time or later. Requests need not come in
/// the order of their times: a long copy claims times ahead, and others fit in before. So that this costs little, time is
/// kept in windows of 16 lines: what a window still has left is known, not where in it.
#[derive(Debug)]
pub(super) struct Channel {
    line: u64,
    window: u64,
    windows: Box<[Window; WINDOWS]>,
    /// Windows from the first up to the second are full.
    full: (u64, u64),
}

#[derive(Clone, Copy, Default, Debug)]
struct Window {
    number: u64,
    used: u64,
}

impl Channel {
    /// A channel that is busy for `line` with each line. One that is busy for no time never makes anyone wait.
    pub(super) fn new(line: Time) -> Self {
        let line = line.picos();
        Self {
            line,
            window: (line * WINDOW_LINES).max(1),
            windows: Box::new([Window::default(); WINDOWS]),
            full: (0, 0),
        }
    }

    /// Moves a line. Returns when that begins: at `at` or later.
    pub(super) fn line(&mut self, at: Time) -> Time {
        self.part(at, 1)
    }

    /// Moves one of `parts` equal parts of a line.
    pub(super) fn part(&mut self, at: Time, parts: u64) -> Time {
        let length = self.line / parts;
        let mut number = at.picos() / self.window;
        if (self.full.0..self.full.1).contains(&number) {
            number = self.full.1;
        }
        loop {
            let window = &mut self.windows[number as usize % WINDOWS];
            if window.number > number {
                // So long before what is remembered that nobody is in the way.
                return at;
            }
            if window.number < number {
                *window = Window { number, used: 0 };
            }
            if window.used + length <= self.window {
                let begin = at.picos().max(number * self.window + window.used);
                window.used += length;
                if window.used + self.line > self.window {
                    self.fill(number);
                }
                return Time::from_picos(begin);
            }
            number += 1;
        }
    }

    fn fill(&mut self, number: u64) {
        if number == self.full.1 {
            self.full.1 += 1;
        } else if !(self.full.0..self.full.1).contains(&number) {
            self.full = (number, number + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel() -> Channel {
        Channel::new(Time::from_picos(10))
    }

    fn at(picos: u64) -> Time {
        Time::from_picos(picos)
    }

    #[test]
    fn lines_follow_each_other() {
        let mut channel = channel();
        assert_eq!(channel.line(at(0)), at(0));
        assert_eq!(channel.line(at(0)), at(10));
        assert_eq!(channel.part(at(0), 2), at(20));
        assert_eq!(channel.line(at(0)), at(25));
        assert_eq!(channel.line(at(100)), at(100), "nobody is in the way");
    }

    #[test]
    fn a_full_window_pushes_into_the_next() {
        let mut channel = channel();
        for nth in 0..100 {
            assert_eq!(channel.line(at(0)), at(nth * 10));
        }
        assert_eq!(channel.line(at(5)), at(1000));
    }

    #[test]
    fn who_claims_ahead_lets_others_in_before() {
        let mut channel = channel();
        for nth in 0..20 {
            assert_eq!(channel.line(at(nth * 1000)), at(nth * 1000));
        }
        assert_eq!(channel.line(at(500)), at(500));
        assert_eq!(channel.line(at(490)), at(490), "one line before in the window from 480 to 640");
        assert_eq!(channel.line(at(490)), at(500), "two lines before");
    }

    #[test]
    fn a_free_path_costs_nothing() {
        let mut channel = Channel::new(Time::ZERO);
        for _ in 0..1000 {
            assert_eq!(channel.line(at(7)), at(7));
        }
    }

    #[test]
    fn the_past_is_forgotten() {
        let mut channel = channel();
        channel.line(at(1_000_000));
        channel.line(at(1_000_000 - 160 * 256));
        assert_eq!(channel.line(at(1_000_000 - 160 * 256)), at(1_000_000 - 160 * 256));
    }
}
