//! `duramen lab`, with the real binary.

use crate::common::{arg, duramen};

fn claims(home: &std::path::Path) -> Vec<serde_json::Value> {
    let ran = duramen(&["lab", "claims", "--json", "--out", arg(home)]).exits_with(0);
    ran.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_list_names_what_can_be_run() {
    let ran = duramen(&["lab", "list"]).exits_with(0);
    let experiments = duramen_lab::EXPERIMENTS.iter().map(|experiment| experiment.about().id);
    for id in experiments {
        assert!(ran.stdout.lines().any(|line| line.split_whitespace().any(|word| word == id)), "no {id} in {ran:#?}");
    }
}

#[test]
fn an_experiment_that_there_is_not_is_a_mistake() {
    duramen(&["lab", "run", "a1", "Z9"]).exits_with(2).says(&["Z9", "A1"]);
    duramen(&["lab", "run"]).exits_with(2);
}

#[test]
fn claims_know_what_was_run() {
    let home = tempfile::tempdir().unwrap();
    assert!(claims(home.path()).iter().all(|claim| claim["verdict"] == "not run"));
    let figures = home.path().join("figures");
    let run = ["lab", "run", "a4", "--tiny", "--out", arg(home.path()), "--figures", arg(&figures)];
    let ran = duramen(&run).exits_with(0);
    assert!(ran.stdout.contains("quick run") && ran.stdout.contains("A4.svg"), "{ran:#?}");
    for claim in claims(home.path()) {
        assert_eq!(claim["verdict"] == "not run", claim["id"] != "A4", "{claim}");
        assert_eq!(claim["quick"], claim["id"] == "A4");
    }
    let overview = std::fs::read_to_string(home.path().join("reproduction.md")).unwrap();
    assert!(overview.contains("[A4](reproduction/A4.md)"), "{overview}");
    let page = std::fs::read_to_string(home.path().join("reproduction/A4.md")).unwrap();
    assert!(page.contains("(A4.svg)") && page.contains("duramen lab run A4"), "{page}");
    let kept = std::fs::read_to_string(home.path().join("reproduction/A4.svg")).unwrap();
    assert_eq!(std::fs::read_to_string(figures.join("A4.svg")).unwrap(), kept);
    duramen(&["lab", "claims", "--out", arg(home.path())]).exits_with(0);
}
