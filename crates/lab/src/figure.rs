//! Measured series, and their form as CSV.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

/// An axis of a figure.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Axis {
    /// What it shows, with the unit.
    pub label: String,
    /// Whether its scale is logarithmic. Values that are not positive are then not drawn.
    pub log: bool,
}

impl Axis {
    /// Returns an axis with a linear scale.
    pub fn linear(label: &str) -> Self {
        Self { label: label.to_owned(), log: false }
    }

    /// Returns an axis with a logarithmic scale.
    pub fn log(label: &str) -> Self {
        Self { label: label.to_owned(), log: true }
    }
}

/// How the series of a figure are drawn.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// Each as a line through its points.
    Lines,
    /// One bar for each of these names, on which the series are stacked. A series has a point for
    /// each bar, whose `x` is the bar's number, counted from 0.
    Stacks(Vec<String>),
    /// One group of bars for each of these names, with a bar for each series. A series has a point
    /// for each group, whose `x` is the group's number, counted from 0.
    Groups(Vec<String>),
    /// Each as separate edges: from its first point to the second, from the third to the fourth,
    /// and so on.
    Edges,
}

/// A named series of points.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Series {
    /// Its name, as in the paper where the paper has it.
    pub name: String,
    /// Whether it shows the paper's figures, not ours.
    pub paper: bool,
    /// The points, in the order of their `x`.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    /// Our series.
    pub fn ours(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), paper: false, points }
    }

    /// Returns the paper's.
    pub fn paper(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), paper: true, points }
    }

    /// Returns the value at `x`, if there is one.
    pub fn at(&self, x: f64) -> Option<f64> {
        self.points.iter().find(|point| (point.0 - x).abs() < 1e-9).map(|point| point.1)
    }

    /// Returns the largest value; not a number when there is none.
    pub fn peak(&self) -> f64 {
        self.points.iter().map(|point| point.1).fold(f64::NAN, f64::max)
    }

    /// Returns the value at the largest `x`; not a number when there is none.
    pub fn last(&self) -> f64 {
        self.points.last().map_or(f64::NAN, |point| point.1)
    }
}

/// A plot and the numbers in it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// The stem of its files' names.
    pub name: String,
    /// Its title.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// How it is drawn.
    pub shape: Shape,
    /// What is in it.
    pub series: Vec<Series>,
}

impl Figure {
    /// Returns the numbers: a line for each `x` and a column for each series; of edges, a line for
    /// each.
    pub fn csv(&self) -> String {
        let mut text = String::new();
        if self.shape == Shape::Edges {
            text.push_str("series,from_x,from_y,to_x,to_y\n");
            for series in &self.series {
                for edge in series.points.chunks_exact(2) {
                    let ((a, b), (c, d)) = (edge[0], edge[1]);
                    let _ = writeln!(text, "{},{a},{b},{c},{d}", field(&series.name));
                }
            }
            return text;
        }
        text.push_str(&field(&self.x.label));
        for series in &self.series {
            let _ = write!(text, ",{}", field(&series.name));
        }
        text.push('\n');
        for x in self.xs() {
            match &self.shape {
                Shape::Stacks(bars) | Shape::Groups(bars) => {
                    text.push_str(&field(bars.get(x as usize).map_or("", String::as_str)))
                }
                _ => {
                    let _ = write!(text, "{x}");
                }
            }
            for series in &self.series {
                text.push(',');
                if let Some(y) = series.at(x) {
                    let _ = write!(text, "{y}");
                }
            }
            text.push('\n');
        }
        text
    }

    /// Returns all values of `x`, in order, each once.
    pub fn xs(&self) -> Vec<f64> {
        let mut xs: Vec<f64> =
            self.series.iter().flat_map(|series| series.points.iter().map(|point| point.0)).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup_by(|a, b| (*a - *b).abs() < 1e-9);
        xs
    }
}

/// Returns a field of a CSV file, quoted where it must be.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_has_a_column_for_each_series_and_leaves_gaps_empty() {
        let figure = Figure {
            name: "f".into(),
            title: "F".into(),
            x: Axis::linear("clients"),
            y: Axis::linear("commits/s"),
            shape: Shape::Lines,
            series: vec![
                Series::ours("sync, \"mutex\"", vec![(1.0, 10.5), (4.0, 20.0)]),
                Series::paper("paper", vec![(2.0, 7.0), (4.0, 9.0)]),
            ],
        };
        assert_eq!(figure.csv(), "clients,\"sync, \"\"mutex\"\"\",paper\n1,10.5,\n2,,7\n4,20,9\n");
        assert_eq!((figure.series[0].at(4.0), figure.series[0].at(2.0)), (Some(20.0), None));
        assert_eq!((figure.series[1].peak(), figure.series[1].last()), (9.0, 9.0));
        assert!(Series::ours("none", Vec::new()).peak().is_nan());
    }

    #[test]
    fn csv_of_stacks_names_the_bars_and_of_edges_both_ends() {
        let mut figure = Figure {
            name: "f".into(),
            title: "F".into(),
            x: Axis::linear("system"),
            y: Axis::linear("share"),
            shape: Shape::Stacks(vec!["baseline".into(), "elr".into()]),
            series: vec![Series::ours("idle", vec![(0.0, 0.5), (1.0, 0.25)])],
        };
        assert_eq!(figure.csv(), "system,idle\nbaseline,0.5\nelr,0.25\n");
        figure.shape = Shape::Edges;
        assert_eq!(figure.csv(), "series,from_x,from_y,to_x,to_y\nidle,0,0.5,1,0.25\n");
    }
}
