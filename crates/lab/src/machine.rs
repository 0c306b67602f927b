//! The machine that an experiment ran on.

use std::fmt;
use std::fs::read_to_string;
use std::time::Duration;

use duramen_sync::thread::available_parallelism;
use serde::{Deserialize, Serialize};

/// The properties of the machine that matter for comparing figures.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's model.
    pub cpu: String,
    /// Processors that the process may use.
    pub processors: usize,
    /// Main memory in MiB.
    pub memory_mib: u64,
    /// Version of the kernel.
    pub kernel: String,
}

impl Machine {
    /// Stands for the simulated machines that an experiment names in its setting.
    pub(crate) fn simulated() -> Self {
        Self { cpu: "simulated".to_owned(), processors: 0, memory_mib: 0, kernel: String::new() }
    }

    /// Returns the machine at hand; `unknown` where the system does not say.
    pub fn here() -> Self {
        let read = |path| read_to_string(path).unwrap_or_default();
        let unknown = || "unknown".to_owned();
        Self {
            cpu: value(&read("/proc/cpuinfo"), "model name").unwrap_or_else(unknown),
            processors: available_parallelism(),
            memory_mib: value(&read("/proc/meminfo"), "MemTotal").and_then(|text| kibibytes(&text)).unwrap_or(0) / 1024,
            kernel: Some(read("/proc/sys/kernel/osrelease").trim().to_owned())
                .filter(|release| !release.is_empty())
                .map_or_else(unknown, |release| format!("Linux {release}")),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, processors, memory_mib, kernel } = self;
        if *processors == 0 {
            return f.write_str(cpu);
        }
        let s = if *processors == 1 { "" } else { "s" };
        write!(f, "{cpu}, {processors} processor{s}, {:.0} GiB, {kernel}", *memory_mib as f64 / 1024.0)
    }
}

/// Processor time that all programs have had since the machine was started; nothing where the
/// system does not say.
pub(crate) fn processor_time() -> Option<Duration> {
    busy(read_to_string("/proc/stat").ok()?.lines().next()?)
}

/// Returns the time in a line `cpu user nice system idle iowait irq softirq steal ...`, whose unit
/// is a hundredth of a second.
fn busy(line: &str) -> Option<Duration> {
    let times: Vec<u64> = line.strip_prefix("cpu ")?.split_whitespace().map_while(|time| time.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, ..] = times[..] else { return None };
    Some(Duration::from_millis((user + nice + system + irq + softirq) * 10))
}

/// Returns the value of the first line `key : value`.
fn value(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}

/// Returns the number in `123 kB`.
fn kibibytes(text: &str) -> Option<u64> {
    text.strip_suffix("kB")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_described() {
        let text = "processor\t: 0\nmodel name\t: A chip\nMemTotal:       2048 kB\n";
        assert_eq!(value(text, "model name").as_deref(), Some("A chip"));
        assert_eq!(value(text, "MemTotal").and_then(|text| kibibytes(&text)), Some(2048));
        assert_eq!(value(text, "flags"), None);
        assert_eq!(busy("cpu  1 2 3 400 500 6 7 8 9 10"), Some(Duration::from_millis(190)));
        assert_eq!(busy("cpu0 1 2 3"), None);
        let here = Machine::here();
        assert!(here.processors >= 1 && here.memory_mib > 0 && here.kernel.starts_with("Linux"), "{here}");
    }
}
