use super::*;
use crate::experiment::{Effort, Step};

#[test]
fn ids_are_unique_and_found_in_either_case() {
    for (index, experiment) in EXPERIMENTS.iter().enumerate() {
        let id = experiment.about().id;
        assert_eq!(EXPERIMENTS.iter().position(|other| other.about().id == id), Some(index));
        assert_eq!(find(&id.to_lowercase()).map(|found| found.about()), Some(experiment.about()));
    }
    assert!(find("Z9").is_none());
}

/// Runs the experiment as small as it goes, and keeps what it finds; returns how often it measured.
fn goes_through(id: &str) -> u64 {
    let experiment = find(id).unwrap();
    let mut last = Step::default();
    let outcome = crate::run(experiment, Effort::Tiny, &mut |step| last = step.clone()).unwrap();
    assert_eq!((last.done, last.done > 0), (last.total, true), "{id} keeps its word about the number of measurements");
    assert!(outcome.quick && !outcome.checks.is_empty() && !outcome.figures.is_empty(), "{outcome:?}");
    for figure in &outcome.figures {
        for point in figure.series.iter().flat_map(|series| &series.points) {
            assert!(point.1.is_finite(), "{id}, {}: {point:?}", figure.name);
        }
    }
    let home = tempfile::tempdir().unwrap();
    let files = crate::save(home.path(), &outcome).unwrap();
    assert!(files.iter().all(|file| file.metadata().unwrap().len() > 0), "{files:?}");
    let kept = crate::load_all(home.path()).unwrap();
    assert_eq!(kept.iter().map(|kept| kept.id.as_str()).collect::<Vec<_>>(), [id]);
    assert_eq!(kept[0].verdict(), outcome.verdict());
    last.done
}

#[test]
fn a1_goes_through() {
    goes_through("A1");
}

#[test]
fn a3_goes_through() {
    goes_through("A3");
}

#[test]
fn a4_goes_through() {
    goes_through("A4");
}

#[test]
fn a2_goes_through() {
    goes_through("A2");
}

#[test]
fn a11_goes_through() {
    goes_through("A11");
}

#[test]
fn a16_goes_through() {
    goes_through("A16");
}

#[test]
fn a17_goes_through() {
    goes_through("A17");
}

#[test]
fn a13_goes_through() {
    goes_through("A13");
}

#[test]
fn a15_goes_through() {
    goes_through("A15");
}

#[test]
fn n9_goes_through() {
    goes_through("N9");
}

#[test]
fn t3_t4_and_t9_go_through() {
    // T4 finds a part of what it needs measured.
    goes_through("T3");
    goes_through("T4");
    goes_through("T9");
}

#[test]
fn t5_and_t6_go_through() {
    // T6 finds all that it needs measured.
    goes_through("T5");
    goes_through("T6");
}

#[test]
fn t7_goes_through() {
    goes_through("T7");
}

#[test]
fn p1_goes_through() {
    goes_through("P1");
}

#[test]
fn p5_and_p6_go_through_and_share_what_was_measured() {
    let mut steps = Vec::new();
    for id in ["P5", "P6"] {
        steps.push(goes_through(id));
    }
    assert!(steps[0] > 10 && steps[1] == 1, "{steps:?}");
}

#[test]
fn c1_to_c3_go_through_and_share_what_was_counted() {
    let steps = ["C1", "C2", "C3"].map(goes_through);
    assert!(steps[0] > 5 && steps[1..] == [1, 1], "{steps:?}");
}

#[test]
fn c4_goes_through() {
    goes_through("C4");
}

#[test]
fn p8_goes_through() {
    goes_through("P8");
}

#[test]
fn t8_goes_through() {
    assert_eq!(goes_through("T8"), 13, "five designs, two controlled runs of two, and one condition with four");
}

#[test]
fn p7_goes_through() {
    goes_through("P7");
}

#[cfg(duramen_trace)]
#[test]
fn traced_experiments_go_through() {
    // One after the other: the recorder is the process's.
    for id in ["P2", "P3", "P4"] {
        goes_through(id);
    }
}

#[cfg(not(duramen_trace))]
#[test]
fn traces_need_their_own_build() {
    let failed = crate::run(find("P2").unwrap(), Effort::Tiny, &mut |_| {}).unwrap_err();
    assert!(failed.to_string().contains("duramen_trace"), "{failed}");
}
