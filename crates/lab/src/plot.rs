//! Figures as SVG.

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use crate::bounds::number;
use crate::error::{Error, Result};
use crate::figure::{Axis, Figure, Series, Shape};

const SIZE: (u32, u32) = (720, 440);
/// Colours that people with colour-vision deficiencies can tell apart.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(90, 90, 90),
];
/// The paper's series.
const GREY: RGBColor = RGBColor(120, 120, 120);

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), String>;

/// `figure` as an SVG document.
///
/// # Errors
/// [`Error::Plot`].
pub(crate) fn svg(figure: &Figure) -> Result<String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        draw(&area, figure).map_err(|reason| Error::Plot { figure: figure.name.clone(), reason })?;
    }
    Ok(text)
}

fn draw(area: &Area<'_>, figure: &Figure) -> Drawn {
    area.fill(&WHITE).map_err(text)?;
    match &figure.shape {
        Shape::Stacks(names) => return bars(area, figure, names, true),
        Shape::Groups(names) => return bars(area, figure, names, false),
        Shape::Lines | Shape::Edges => {}
    }
    let points = || figure.series.iter().flat_map(|series| series.points.iter());
    let (x0, x1) = range(&figure.x, points().map(|point| point.0));
    let (y0, y1) = range(&figure.y, points().map(|point| point.1));
    match (figure.x.log, figure.y.log) {
        (false, false) => chart(area, figure, x0..x1, y0..y1),
        (false, true) => chart(area, figure, x0..x1, (y0..y1).log_scale()),
        (true, false) => chart(area, figure, (x0..x1).log_scale(), y0..y1),
        (true, true) => chart(area, figure, (x0..x1).log_scale(), (y0..y1).log_scale()),
    }
}

/// Returns what an axis spans: from zero, or of a logarithmic one from the smallest value, to a
/// little above the largest.
fn range(axis: &Axis, values: impl Iterator<Item = f64>) -> (f64, f64) {
    let usable = values.filter(|value| value.is_finite() && (!axis.log || *value > 0.0));
    let (least, most) = usable.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), value| (a.min(value), b.max(value)));
    if !least.is_finite() {
        return (if axis.log { 1.0 } else { 0.0 }, 10.0);
    }
    if axis.log { (least / 1.25, most * 1.6) } else { (least.min(0.0), if most > 0.0 { most * 1.08 } else { 1.0 }) }
}

fn chart<'a, X, Y>(area: &Area<'a>, figure: &Figure, x: X, y: Y) -> Drawn
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y: AsRangedCoord<Value = f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .caption(&figure.title, ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(42)
        .y_label_area_size(64)
        .build_cartesian_2d(x, y)
        .map_err(text)?;
    chart
        .configure_mesh()
        .light_line_style(WHITE)
        .x_desc(&figure.x.label)
        .y_desc(&figure.y.label)
        .x_label_formatter(&|value| number(*value))
        .y_label_formatter(&|value| number(*value))
        .draw()
        .map_err(text)?;
    for (index, series) in figure.series.iter().enumerate() {
        let colour = if series.paper { GREY } else { COLOURS[index % COLOURS.len()] };
        let points = visible(figure, series);
        if figure.shape == Shape::Edges {
            let lines = points.chunks_exact(2).map(|edge| PathElement::new(edge.to_vec(), colour.stroke_width(1)));
            let drawn = chart.draw_series(lines).map_err(text)?;
            drawn.label(&series.name).legend(move |at| PathElement::new([at, (at.0 + 18, at.1)], colour));
            continue;
        }
        let drawn = if series.paper {
            chart.draw_series(DashedLineSeries::new(points.iter().copied(), 5, 4, colour.stroke_width(2)))
        } else {
            chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))
        };
        let legend = move |at: (i32, i32)| PathElement::new([at, (at.0 + 18, at.1)], colour.stroke_width(2));
        drawn.map_err(text)?.label(&series.name).legend(legend);
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, colour.filled()))).map_err(text)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(GREY)
        .draw()
        .map_err(text)
}

/// Returns the points that the axes can show.
fn visible(figure: &Figure, series: &Series) -> Vec<(f64, f64)> {
    let shown = |axis: &Axis, value: f64| value.is_finite() && (!axis.log || value > 0.0);
    series.points.iter().copied().filter(|&(x, y)| shown(&figure.x, x) && shown(&figure.y, y)).collect()
}

/// Draws the series as bars: on top of each other, or side by side.
fn bars(area: &Area<'_>, figure: &Figure, names: &[String], stacked: bool) -> Drawn {
    let count = figure.series.len().max(1) as f64;
    let top = |bar: usize| {
        let values = figure.series.iter().filter_map(|series| series.at(bar as f64));
        if stacked { values.sum::<f64>() } else { values.fold(0.0, f64::max) }
    };
    let most = (0..names.len()).map(top).fold(0.0, f64::max).max(1e-9);
    // Side by side, the bars leave no space for the legend but at their right.
    let right = names.len() as f64 + if stacked { 0.6 } else { names.len() as f64 / 4.0 };
    let mut chart = ChartBuilder::on(area)
        .caption(&figure.title, ("sans-serif", 17))
        .margin(12)
        .x_label_area_size(28)
        .y_label_area_size(64)
        .build_cartesian_2d(-0.6..right, 0.0..most * 1.12)
        .map_err(text)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(WHITE)
        .x_labels(0)
        .x_desc(&figure.x.label)
        .y_desc(&figure.y.label)
        .y_label_formatter(&|value| number(*value))
        .draw()
        .map_err(text)?;
    let mut bottoms = vec![0.0; names.len()];
    for (index, series) in figure.series.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let (left, width) = if stacked { (-0.3, 0.6) } else { (-0.4 + 0.8 * index as f64 / count, 0.8 / count) };
        let boxes: Vec<_> = bottoms
            .iter_mut()
            .enumerate()
            .filter_map(|(bar, bottom)| {
                let (at, start) = (bar as f64 + left, if stacked { *bottom } else { 0.0 });
                *bottom = start + series.at(bar as f64)?;
                Some(Rectangle::new([(at, start), (at + width, *bottom)], colour.mix(0.8).filled()))
            })
            .collect();
        let drawn = chart.draw_series(boxes).map_err(text)?;
        drawn.label(&series.name).legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], colour.filled()));
    }
    let size = if names.len() > 7 { 9 } else { 13 };
    let label = |(bar, name): (usize, &String)| {
        Text::new(name.clone(), (bar as f64 - 0.4, most * 1.06), ("sans-serif", size).into_font())
    };
    chart.draw_series(names.iter().enumerate().map(label)).map_err(text)?;
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::MiddleRight)
        .background_style(WHITE.mix(0.85))
        .border_style(GREY)
        .draw()
        .map_err(text)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(x: Axis, y: Axis, shape: Shape) -> Figure {
        let series = vec![
            Series::ours("first", vec![(0.0, 0.0), (1.0, 10.0), (2.0, 1000.0), (3.0, f64::NAN)]),
            Series::paper("second", vec![(1.0, 35.0), (2.0, 35.0)]),
        ];
        Figure { name: "f".into(), title: "The title".into(), x, y, shape, series }
    }

    #[test]
    fn every_kind_of_axis_and_shape_can_be_drawn() {
        for (x, y) in [(false, false), (false, true), (true, false), (true, true)] {
            let axis = |label: &str, log| if log { Axis::log(label) } else { Axis::linear(label) };
            for shape in [Shape::Lines, Shape::Edges] {
                let svg = svg(&figure(axis("across", x), axis("up", y), shape)).unwrap();
                for words in ["<svg", "The title", "across", "up", "first", "second", "</svg>"] {
                    assert!(svg.contains(words), "no `{words}` in {svg}");
                }
            }
        }
        let names: Vec<String> = ["one", "two", "three", "four"].map(String::from).into();
        for bars in [Shape::Stacks(names.clone()), Shape::Groups(names)] {
            let svg = svg(&figure(Axis::linear("across"), Axis::linear("up"), bars)).unwrap();
            assert!(svg.contains("four") && svg.contains("second"), "{svg}");
        }
    }

    #[test]
    fn a_figure_without_points_is_empty_and_no_error() {
        let mut figure = figure(Axis::linear("x"), Axis::log("y"), Shape::Lines);
        figure.series.clear();
        assert!(svg(&figure).unwrap().contains("The title"));
    }

    #[test]
    fn a_logarithmic_axis_leaves_out_what_is_not_positive() {
        assert_eq!(range(&Axis::log("y"), [0.0, 1.0, 100.0].into_iter()), (0.8, 160.0));
        assert_eq!(range(&Axis::linear("y"), [5.0, 100.0].into_iter()), (0.0, 108.0));
    }
}
