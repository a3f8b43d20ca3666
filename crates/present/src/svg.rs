//! Charts as SVG: in a file of their own, or in a web page.

use maud::{Markup, PreEscaped, html};

use crate::html::swatch;

#[derive(Clone, Copy)]
pub struct Axis<'a> {
    /// What it shows, with its unit; files show it.
    pub title: &'a str,
    /// Whether equal steps are equal factors.
    pub logarithmic: bool,
    /// Formats its numbers.
    pub label: fn(f64) -> String,
}

/// How a series is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// Measured points, each with a mark.
    Marked,
    /// Measured points so close that they have no marks, with the area below filled.
    Filled,
    /// A limit or a goal.
    Dashed,
}

/// A line of a chart.
pub struct Series<'a> {
    /// Its name in the legend.
    pub name: String,
    /// A CSS colour; by default one of [`COLORS`].
    pub color: Option<&'a str>,
    /// How it is drawn.
    pub line: Line,
    /// Its points, by ascending x.
    pub points: Vec<(f64, f64)>,
}

/// A line chart.
pub struct Chart<'a> {
    /// One line above it; files show it.
    pub title: &'a str,
    /// Across.
    pub x: Axis<'a>,
    /// Upwards.
    pub y: Axis<'a>,
    /// Its lines. Later ones cover earlier ones.
    pub series: Vec<Series<'a>>,
    /// Ranges of x with a shaded background.
    pub shaded: &'a [(f64, f64)],
}

/// A bar of a histogram.
pub struct Bar {
    /// Its height.
    pub count: u64,
    /// The lower bound, in a few letters.
    pub from: String,
    /// The range and the count, shown while the pointer is on the bar.
    pub title: String,
}

/// Colours that colour-blind readers tell apart (Okabe and Ito); marks differ too.
pub const COLORS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7a6f00", "#777777"];

/// Styles that [`figure`](Chart::figure) and [`histogram`] need in their page.
pub const STYLE: &str = include_str!("svg.css");

/// Moves a cursor over each [`figure`](Chart::figure) and shows the values at that point.
pub const SCRIPT: &str = include_str!("svg.js");

/// Builds an SVG file of charts, one below the other.
pub fn file(charts: &[Chart<'_>]) -> String {
    let (width, height) = (860.0, 380.0);
    let total = height * charts.len() as f64;
    let place = |at: usize| format!("translate(0 {})", at as f64 * height);
    let frame = Frame { left: 80.0, right: width - 210.0, top: 44.0, bottom: height - 56.0 };
    let file = html! {
        svg xmlns="http://www.w3.org/2000/svg" viewBox=(format!("0 0 {width} {total}")) width=(width) height=(total) {
            style { ":root { --soft: #444; --line: #444; --hair: #e2e2e2; --ink: #000 }" (PreEscaped(STYLE)) "svg text { font-size: 13px }" }
            rect width="100%" height="100%" fill="#fff" {}
            @for (at, chart) in charts.iter().enumerate() {
                g transform=(place(at)) { (chart.drawing(&frame)) (chart.titles(&frame)) (chart.legend(&frame)) }
            }
        }
    };
    file.into_string() + "\n"
}

/// Builds a histogram for a web page. `end` is the upper bound of the last bar, `across` the title of the axis below.
pub fn histogram(bars: &[Bar], end: &str, color: &str, across: &str) -> Markup {
    // A few bars are not stretched over the page.
    let (width, height, base) = (520.0, 200.0, 166.0);
    let slot = (width / bars.len().max(1) as f64).min(64.0);
    let most = bars.iter().map(|bar| bar.count).max().unwrap_or(0).max(1);
    // A bar with a count is visible.
    let size = |count: u64| if count == 0 { 0.0 } else { (count as f64 / most as f64 * 148.0).max(1.5) };
    let x = |at: usize| at as f64 * slot;
    // Every other label where bars are narrow.
    let labelled = |at: usize| slot >= 44.0 || (at.is_multiple_of(2) && at + 1 < bars.len());
    html! {
        svg viewBox=(format!("0 0 {width} {height}")) role="img" {
            @for (at, bar) in bars.iter().enumerate() {
                rect.bar style=(format!("fill:{color}")) x=(px(x(at) + slot * 0.08)) y=(px(base - size(bar.count)))
                    width=(px(slot * 0.84)) height=(px(size(bar.count))) rx="2" { title { (bar.title) } }
                @if bar.count > 0 {
                    (label(x(at) + slot / 2.0, base - size(bar.count) - 4.0, "middle", &crate::number::count(bar.count)))
                }
                @if labelled(at) { (label(x(at), base + 15.0, "middle", &bar.from)) }
            }
            (label(x(bars.len()), base + 15.0, "middle", end))
            path.axis d=(format!("M0 {base}H{:.1}", x(bars.len()))) {}
            (label(x(bars.len()) / 2.0, height - 3.0, "middle", across))
        }
    }
}

/// The rectangle inside the axes.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
}

/// Maps the numbers of an axis to places.
struct Scale<'a> {
    axis: Axis<'a>,
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl<'a> Scale<'a> {
    fn new(axis: Axis<'a>, numbers: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let usable = |number: &f64| number.is_finite() && (!axis.logarithmic || *number > 0.0);
        let (least, most) =
            numbers.filter(usable).fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), n| (a.min(n), b.max(n)));
        let (least, most) = match (least > most, axis.logarithmic) {
            (true, _) => (1.0, 10.0),
            (_, true) => (least / 1.05, most * 1.05),
            (_, false) => (least.min(0.0), if most > 0.0 { most } else { 1.0 }),
        };
        Self { axis, least, most, from, to }
    }

    /// Ends a linear scale at a tick, so that the highest point has a line above it.
    fn rounded_up(mut self) -> Self {
        if !self.axis.logarithmic {
            self.most = self.least + ((self.most - self.least) / self.step()).ceil() * self.step();
        }
        self
    }

    fn place(&self, number: f64) -> f64 {
        let share = if self.axis.logarithmic {
            (number.max(f64::MIN_POSITIVE) / self.least).ln() / (self.most / self.least).ln()
        } else {
            (number - self.least) / (self.most - self.least)
        };
        self.from + share.clamp(-0.05, 1.05) * (self.to - self.from)
    }

    /// A round step between the ticks of a linear scale, of which there are at most five.
    fn step(&self) -> f64 {
        let rough = (self.most - self.least) / 5.0;
        let decade = 10f64.powf(rough.log10().floor());
        [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * decade).find(|step| *step >= rough).unwrap_or(rough)
    }

    fn ticks(&self) -> Vec<f64> {
        if self.axis.logarithmic {
            let (first, last) = (self.least.log2().ceil() as i32, self.most.log2().floor() as i32);
            let step = ((last - first) / 6).max(1);
            return (first..=last).step_by(step as usize).map(|power| 2f64.powi(power)).collect();
        }
        let ticks = (0..=5).map(|n| self.least + self.step() * f64::from(n));
        ticks.take_while(|n| *n <= self.most * 1.0001).collect()
    }
}

impl Chart<'_> {
    /// Builds the chart for a web page, with its legend and a cursor. The points are `step` apart, and x begins at 0.
    pub fn figure(&self, height: f64, step: f64) -> Markup {
        let width = 1100.0;
        let frame = Frame { left: 52.0, right: width - 4.0, top: 8.0, bottom: height - 22.0 };
        let end = self.scales(&frame).0.most;
        let values = |series: &Series<'_>| {
            let values: Vec<String> = series.points.iter().map(|(_, y)| format!("{y:.3}")).collect();
            values.join(" ")
        };
        html! {
            div.legend { @for (index, series) in self.series.iter().enumerate() { span { (swatch(series.color(index))) (series.name) } } }
            svg viewBox=(format!("0 0 {width} {height}")) role="img" data-step=(step) data-end=(end)
                data-plot=(format!("{} {}", frame.left, frame.right))
            {
                (self.drawing(&frame))
                path.cursor d=(format!("M0 {}V{}", frame.top, frame.bottom)) {}
                @for series in &self.series { desc data-name=(series.name) data-values=(values(series)) {} }
            }
            div.readout {}
        }
    }

    fn scales(&self, frame: &Frame) -> (Scale<'_>, Scale<'_>) {
        let points = self.series.iter().flat_map(|series| series.points.iter());
        let x = Scale::new(self.x, points.clone().map(|point| point.0), frame.left, frame.right);
        let y = Scale::new(self.y, points.map(|point| point.1), frame.bottom, frame.top);
        (x, y.rounded_up())
    }

    fn drawing(&self, frame: &Frame) -> Markup {
        let (x, y) = self.scales(frame);
        let Frame { left, right, top, bottom } = *frame;
        html! {
            @for (from, to) in self.shaded.iter().map(|(from, to)| (x.place(*from), x.place(*to).min(right))) {
                rect.shaded x=(px(from)) y=(px(top)) width=(px((to - from).max(0.0))) height=(px(bottom - top)) {}
            }
            @for (tick, at) in y.ticks().into_iter().map(|tick| (tick, y.place(tick))) {
                path.grid d=(format!("M{left} {at:.1}H{right}")) {}
                (label(left - 7.0, at + 4.0, "end", &(self.y.label)(tick)))
            }
            @for (tick, at) in x.ticks().into_iter().map(|tick| (tick, x.place(tick))) {
                path.grid d=(format!("M{at:.1} {top}V{bottom}")) {}
                (label(at, bottom + 17.0, "middle", &(self.x.label)(tick)))
            }
            path.axis d=(format!("M{left} {top}V{bottom}H{right}")) {}
            @for (index, series) in self.series.iter().enumerate() { (series.drawing(index, &x, &y)) }
        }
    }

    fn titles(&self, frame: &Frame) -> Markup {
        let Frame { left, right, top, bottom } = *frame;
        let middle = f64::midpoint(top, bottom);
        html! {
            text.title x=(left) y=(top - 18.0) { (self.title) }
            (label(f64::midpoint(left, right), bottom + 40.0, "middle", self.x.title))
            g transform=(format!("rotate(-90 18 {middle})")) { (label(18.0, middle, "middle", self.y.title)) }
        }
    }

    fn legend(&self, frame: &Frame) -> Markup {
        let at = frame.right + 16.0;
        let lines = self.series.iter().enumerate();
        html! {
            @for (index, series, y) in lines.map(|(n, series)| (n, series, frame.top + 10.0 + n as f64 * 20.0)) {
                (series.path(index, &format!("M{at} {y}h22")))
                @if series.line == Line::Marked { (mark(index, at + 11.0, y, series.color(index))) }
                (label(at + 28.0, y + 4.0, "start", &series.name))
            }
        }
    }
}

impl Series<'_> {
    fn color(&self, index: usize) -> &str {
        self.color.unwrap_or(COLORS[index % COLORS.len()])
    }

    fn drawing(&self, index: usize, x: &Scale<'_>, y: &Scale<'_>) -> Markup {
        let places: Vec<_> = self.points.iter().map(|(a, b)| (x.place(*a), y.place(*b))).collect();
        let line: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let line = line.join("L");
        html! {
            @if let (Line::Filled, Some(first), Some(last)) = (self.line, places.first(), places.last()) {
                path.area style=(format!("fill:{}", self.color(index)))
                    d=(format!("M{:.1} {:.1}L{line}V{:.1}Z", first.0, y.from, y.from.max(last.1))) {}
            }
            @if !places.is_empty() { (self.path(index, &format!("M{line}"))) }
            @if self.line == Line::Marked {
                @for (x, y) in places { (mark(index, x, y, self.color(index))) }
            }
        }
    }

    fn path(&self, index: usize, path: &str) -> Markup {
        let class = if self.line == Line::Dashed { "line dashed" } else { "line" };
        html! { path class=(class) style=(format!("stroke:{}", self.color(index))) d=(path) {} }
    }
}

/// A dot, a square or a diamond.
fn mark(index: usize, x: f64, y: f64, color: &str) -> Markup {
    html! {
        @match index % 3 {
            0 => circle cx=(px(x)) cy=(px(y)) r="3" fill=(color) {},
            1 => rect x=(px(x - 3.0)) y=(px(y - 3.0)) width="6" height="6" fill=(color) {},
            _ => path d=(format!("M{:.1} {y:.1}l4 -4l4 4l-4 4z", x - 4.0)) fill=(color) {},
        }
    }
}

fn label(x: f64, y: f64, anchor: &str, text: &str) -> Markup {
    html! { text x=(px(x)) y=(px(y)) text-anchor=(anchor) { (text) } }
}

/// Tenths of a pixel are enough.
fn px(place: f64) -> String {
    format!("{place:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(logarithmic: bool) -> Axis<'static> {
        Axis { title: "a < b", logarithmic, label: |n| format!("{n}") }
    }

    fn chart(series: Vec<Series<'_>>, logarithmic: bool) -> Chart<'_> {
        Chart { title: "t", x: axis(logarithmic), y: axis(false), series, shaded: &[] }
    }

    fn series(line: Line) -> Series<'static> {
        let points = vec![(1.0, 0.0), (1024.0, 5.0), (65536.0, 3.0)];
        Series { name: "one & other".into(), color: None, line, points }
    }

    #[test]
    fn every_point_lies_within_the_frame() {
        let svg = file(&[chart(vec![series(Line::Marked), series(Line::Dashed)], true)]);
        assert!(svg.contains("one &amp; other") && svg.contains("a &lt; b") && svg.ends_with("</svg>\n"));
        let centres: Vec<f64> = svg
            .split("<circle cx=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().parse().unwrap())
            .collect();
        // Three points, and the mark in the legend.
        assert_eq!(centres.len(), 4);
        assert!(centres.iter().all(|x| (80.0..860.0).contains(x)), "{centres:?}");
        assert_eq!(svg.matches("class=\"line dashed\"").count(), 2);
    }

    #[test]
    fn charts_without_points_are_drawn() {
        assert!(file(&[chart(Vec::new(), true), chart(Vec::new(), false)]).matches("<text").count() > 4);
        assert!(histogram(&[], "1s", "red", "duration").into_string().contains("1s"));
    }

    #[test]
    fn figures_hold_their_values_for_the_script() {
        let figure = chart(vec![series(Line::Filled)], false).figure(200.0, 1.0).into_string();
        assert!(figure.contains("data-values=\"0.000 5.000 3.000\""), "{figure}");
        assert!(!figure.contains("NaN") && figure.contains("class=\"area\""));
    }

    #[test]
    fn ticks_are_round_and_end_above_the_highest_point() {
        let scale = Scale::new(axis(false), [0.0, 7.3].into_iter(), 0.0, 100.0).rounded_up();
        assert_eq!(scale.ticks(), [0.0, 2.0, 4.0, 6.0, 8.0]);
        let scale = Scale::new(axis(true), [1.0, 64.0].into_iter(), 0.0, 100.0);
        assert_eq!(scale.ticks(), [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]);
    }
}
