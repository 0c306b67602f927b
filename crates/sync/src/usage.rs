//! Resources that the operating system has spent on this process.

use std::time::Duration;

/// Processor time and context switches of all threads of the process, including those that have
/// ended.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Usage {
    /// Processor time in the program.
    pub user: Duration,
    /// Processor time in the kernel on the program's behalf.
    pub system: Duration,
    /// Context switches because a thread had to wait.
    pub voluntary_switches: u64,
    /// Context switches because a thread's time slice was over.
    pub involuntary_switches: u64,
}

impl Usage {
    /// Returns the usage since the process was started.
    pub fn now() -> Self {
        #[cfg(duramen_machine)]
        if duramen_machine::is_simulated() {
            let usage = duramen_machine::threads::usage();
            return Self {
                user: Duration::from_nanos(usage.processor.nanos()),
                system: Duration::ZERO,
                voluntary_switches: usage.voluntary_switches,
                involuntary_switches: usage.involuntary_switches,
            };
        }
        // SAFETY: `rusage` consists of integers, for which all bits zero is a value.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: `usage` is a valid, writable rusage.
        let rc = unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
        assert_eq!(rc, 0, "a process may always ask about itself");
        let time =
            |time: libc::timeval| Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64);
        Self {
            user: time(usage.ru_utime),
            system: time(usage.ru_stime),
            voluntary_switches: usage.ru_nvcsw as u64,
            involuntary_switches: usage.ru_nivcsw as u64,
        }
    }

    /// Returns the usage from `earlier` to `self`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            voluntary_switches: self.voluntary_switches.saturating_sub(earlier.voluntary_switches),
            involuntary_switches: self.involuntary_switches.saturating_sub(earlier.involuntary_switches),
        }
    }

    /// Returns the context switches of either kind.
    pub fn switches(&self) -> u64 {
        self.voluntary_switches + self.involuntary_switches
    }

    /// Returns the processor time in the program and in the kernel.
    pub fn processor(&self) -> Duration {
        self.user + self.system
    }
}

#[cfg(all(test, not(duramen_loom)))]
mod tests {
    use super::*;

    #[test]
    fn sleeping_is_a_switch_and_counting_takes_time() {
        let before = Usage::now();
        for _ in 0..20 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut spent = Usage::default();
        while spent.processor() < Duration::from_millis(5) {
            spent = Usage::now().since(&before);
        }
        assert!(spent.voluntary_switches >= 10, "{spent:?}");
        assert_eq!(spent.switches(), spent.voluntary_switches + spent.involuntary_switches);
        assert_eq!(before.since(&before), Usage::default());
    }
}
