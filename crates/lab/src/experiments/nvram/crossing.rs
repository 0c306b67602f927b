//! P6: the barrier length from which group commit is the best scheme.

use super::by_barrier::{figure, measured};
use super::verdicts;
use super::world::World;
use crate::contender::{GROUP_COMMIT_FEWEST, IN_PLACE_FEWEST};
use crate::error::Result;
use crate::experiment::{About, Context, Experiment, Findings};

/// The lines of group commit in the paper's Figure 5.
pub(crate) struct Crossing(pub(crate) World);

impl Experiment for Crossing {
    fn about(&self) -> About {
        About {
            id: self.0.id("P6", "P6m"),
            title: "persist barriers up to 5 us cost group commit little, and from where on it is the best scheme",
            source: "Storage Management in the NVRAM Era (VLDB 2014), Fig. 5",
            world: self.0.name(),
            found: "NVRAM Group Commit loses little throughput up to 5 us, has the best throughput above 1 us, and up \
                    to 1.5 times that of NVRAM Disk-Replacement",
            wanted: "at no barrier up to 5 us less than 0.85 of the throughput at 0 us; In-Place is ahead at 0 us and \
                     behind before 5 us; at 5 us no scheme is ahead of Group Commit; all with the paper's barriers",
        }
    }

    fn run(&self, context: &mut Context<'_>) -> Result<Findings> {
        let id = self.0.id("P6", "P6m");
        let measured = measured(context, self.0)?;
        let (mut setting, mut figures, mut checks) = (measured.setting, Vec::new(), Vec::new());
        for (workload, series) in measured.curves {
            checks.extend(verdicts::group_commit(workload, &series));
            setting.push(format!(
                "{workload}: with the fewest barriers In-Place is ahead of Group Commit up to {:.2} us.",
                verdicts::break_even_of(&series, IN_PLACE_FEWEST.name, GROUP_COMMIT_FEWEST.name)
            ));
            figures.push(figure(id, workload, series));
        }
        setting.push(
            "A place of 0 us says that Group Commit is ahead from the beginning; one of 5 us, that it is nowhere \
             ahead."
                .to_owned(),
        );
        Ok(Findings { setting, figures, checks })
    }
}
