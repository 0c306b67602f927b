//! Processor time for computing, shared by the contexts of a pipeline.
//!
//! A context that has a pipeline to itself computes at the speed that dependences between its
//! instructions allow. Several that compute at the same time share the pipeline's issue slots
//! evenly; one that waits for memory leaves them its share. The number of competitors is fixed when
//! a piece of computing begins: contexts that begin later slow each other down, but not that piece.

use crate::{Description, Time};

/// The pipelines of a machine.
#[derive(Debug)]
pub(crate) struct Pipelines {
    alone: Time,
    shared: Time,
    contexts_per_pipeline: usize,
    /// Until when each context computes.
    busy_until: Vec<Time>,
}

impl Pipelines {
    pub(crate) fn new(description: &Description) -> Self {
        Self {
            alone: description.instruction_alone,
            shared: description.instruction_shared,
            contexts_per_pipeline: description.contexts_per_pipeline,
            busy_until: vec![Time::ZERO; description.contexts()],
        }
    }

    /// Charges the context so many instructions. Returns the time when they are done.
    pub(crate) fn compute(&mut self, context: usize, instructions: u64, now: Time) -> Time {
        self.busy_until[context] = Time::ZERO;
        let first = context - context % self.contexts_per_pipeline;
        let pipeline = &self.busy_until[first..first + self.contexts_per_pipeline];
        let computing = 1 + pipeline.iter().filter(|&&until| until > now).count() as u64;
        let each = self.alone.max(self.shared.times(computing));
        let done = now + each.times(instructions);
        self.busy_until[context] = done;
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::tests::tiny;

    /// Pipelines of two contexts; an instruction takes 2 ns alone and keeps others off for 1.5 ns.
    fn pipelines() -> Pipelines {
        Pipelines::new(&tiny())
    }

    fn ns(nanos: u64) -> Time {
        Time::from_nanos(nanos)
    }

    #[test]
    fn alone_a_context_is_as_fast_as_its_instructions_allow() {
        let mut pipelines = pipelines();
        assert_eq!(pipelines.compute(0, 100, ns(10)), ns(210));
        assert_eq!(pipelines.compute(0, 0, ns(300)), ns(300));
    }

    #[test]
    fn contexts_share_a_pipeline_while_both_compute() {
        let mut pipelines = pipelines();
        assert_eq!(pipelines.compute(0, 100, ns(0)), ns(200));
        assert_eq!(pipelines.compute(1, 100, ns(100)), ns(400), "3 ns for each");
        assert_eq!(pipelines.compute(0, 100, ns(200)), ns(500), "the other still computes");
        assert_eq!(pipelines.compute(1, 100, ns(500)), ns(700), "the other has just ended");
    }

    #[test]
    fn other_pipelines_do_not_matter() {
        let mut pipelines = pipelines();
        pipelines.compute(0, 100, ns(0));
        assert_eq!(pipelines.compute(2, 100, ns(0)), ns(200));
    }
}
