//! What an audit finds.

use std::fmt;

/// The result of checking a workload's consistency conditions on a whole database.
#[derive(Clone, Debug, Default)]
pub struct AuditReport {
    facts: Vec<String>,
    problems: Vec<String>,
    omitted: u64,
}

impl AuditReport {
    /// Problems that are reported one by one; further ones are only counted.
    const MOST_PROBLEMS: usize = 20;

    /// Returns a report that has found nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Notes something counted or summed up, for people.
    pub fn fact(&mut self, fact: impl Into<String>) {
        self.facts.push(fact.into());
    }

    /// Notes a violated condition.
    pub fn problem(&mut self, problem: impl Into<String>) {
        if self.problems.len() < Self::MOST_PROBLEMS {
            self.problems.push(problem.into());
        } else {
            self.omitted += 1;
        }
    }

    /// Notes a violated condition unless `holds`.
    pub fn require(&mut self, holds: bool, problem: impl FnOnce() -> String) {
        if !holds {
            self.problem(problem());
        }
    }

    /// Takes over what `other` found.
    pub fn merge(&mut self, other: Self) {
        self.facts.extend(other.facts);
        self.omitted += other.omitted;
        for problem in other.problems {
            self.problem(problem);
        }
    }

    /// Returns whether every condition holds.
    pub fn is_ok(&self) -> bool {
        self.problems.is_empty()
    }

    /// Returns what was counted and summed up.
    pub fn facts(&self) -> &[String] {
        &self.facts
    }

    /// Returns the violated conditions, the first twenty.
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Returns how many violated conditions there are, those not told included.
    pub fn problem_count(&self) -> u64 {
        self.problems.len() as u64 + self.omitted
    }
}

/// `ok`, or how many conditions are violated and what the first is.
impl fmt::Display for AuditReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.problems.first(), self.problem_count()) {
            (None, _) => f.pad("ok"),
            (Some(first), 1) => write!(f, "{first}"),
            (Some(first), count) => write!(f, "{first} (and {} more)", count - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_the_first_problems_and_counts_the_rest() {
        let mut report = AuditReport::new();
        report.require(true, || unreachable!());
        assert_eq!(report.to_string(), "ok");
        for number in 0..30 {
            report.problem(format!("problem {number}"));
        }
        let mut whole = AuditReport::new();
        whole.merge(report);
        assert!(!whole.is_ok());
        assert_eq!(whole.problems().len(), 20);
        assert_eq!(whole.problem_count(), 30);
        assert_eq!(whole.to_string(), "problem 0 (and 29 more)");
    }
}
