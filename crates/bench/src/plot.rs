//! Line charts as SVG: one file, nothing to fetch, legible in light and dark.

use std::fmt::Write;

/// How a number is written beside an axis.
pub type Label = fn(f64) -> String;

/// An axis.
#[derive(Clone, Copy)]
pub struct Axis<'a> {
    /// What it shows, with its unit.
    pub title: &'a str,
    /// Whether equal steps are equal factors.
    pub logarithmic: bool,
    /// How its numbers are written.
    pub label: Label,
}

/// A line.
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, by ascending x.
    pub points: Vec<(f64, f64)>,
    /// Drawn thin and dashed: a bound or a goal, nothing measured.
    pub dashed: bool,
}

/// A chart.
pub struct Chart<'a> {
    /// One line above it.
    pub title: &'a str,
    /// Across.
    pub x: Axis<'a>,
    /// Upwards.
    pub y: Axis<'a>,
    /// Its lines.
    pub series: Vec<Series>,
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 210.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 56.0;
/// Told apart also by those who do not see all colours (Okabe and Ito), and by the marks.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7a6f00", "#777777"];

/// The charts, one below the other.
pub fn svg(charts: &[Chart<'_>]) -> String {
    let height = HEIGHT * charts.len() as f64;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
    );
    for (index, chart) in charts.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = chart.draw(&mut out, index as f64 * HEIGHT);
    }
    out.push_str("</svg>\n");
    out
}

/// Where the numbers of an axis lie.
struct Scale<'a> {
    axis: Axis<'a>,
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl<'a> Scale<'a> {
    fn new(axis: Axis<'a>, numbers: impl Iterator<Item = f64> + Clone, from: f64, to: f64) -> Self {
        let usable = |number: &f64| number.is_finite() && (!axis.logarithmic || *number > 0.0);
        let (mut least, mut most) =
            numbers.filter(usable).fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), n| (a.min(n), b.max(n)));
        if least > most {
            (least, most) = (1.0, 10.0);
        }
        if axis.logarithmic {
            (least, most) = (least / 1.05, most * 1.05);
        } else {
            (least, most) = (least.min(0.0), if most > 0.0 { most * 1.08 } else { 1.0 });
        }
        Self { axis, least, most, from, to }
    }

    fn place(&self, number: f64) -> f64 {
        let share = if self.axis.logarithmic {
            (number.max(f64::MIN_POSITIVE) / self.least).ln() / (self.most / self.least).ln()
        } else {
            (number - self.least) / (self.most - self.least)
        };
        self.from + share.clamp(-0.05, 1.05) * (self.to - self.from)
    }

    /// Numbers to write beside the axis: about six.
    fn ticks(&self) -> Vec<f64> {
        if self.axis.logarithmic {
            let (first, last) = (self.least.log2().ceil() as i32, self.most.log2().floor() as i32);
            let step = ((last - first) / 6).max(1);
            return (first..=last).step_by(step as usize).map(|power| 2f64.powi(power)).collect();
        }
        let rough = (self.most - self.least) / 6.0;
        let decade = 10f64.powf(rough.log10().floor());
        let step =
            [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * decade).find(|s| *s >= rough).unwrap_or(rough);
        (0..=8).map(|n| self.least + step * f64::from(n)).take_while(|n| *n <= self.most).collect()
    }
}

impl Chart<'_> {
    fn draw(&self, out: &mut String, top: f64) -> std::fmt::Result {
        let points = self.series.iter().flat_map(|series| series.points.iter());
        let (left, right) = (LEFT, WIDTH - RIGHT);
        let (upper, lower) = (top + TOP, top + HEIGHT - BOTTOM);
        let x = Scale::new(self.x, points.clone().map(|point| point.0), left, right);
        let y = Scale::new(self.y, points.map(|point| point.1), lower, upper);
        writeln!(
            out,
            "<text x=\"{left}\" y=\"{}\" font-size=\"16\" font-weight=\"600\">{}</text>",
            top + 26.0,
            escape(self.title)
        )?;
        for number in y.ticks() {
            let at = y.place(number);
            writeln!(
                out,
                "<line x1=\"{left}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#e2e2e2\"/>"
            )?;
            let text = escape(&(self.y.label)(number));
            writeln!(
                out,
                "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#444\">{text}</text>",
                left - 8.0,
                at + 4.0
            )?;
        }
        for number in x.ticks() {
            let at = x.place(number);
            writeln!(
                out,
                "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{upper}\" y2=\"{lower}\" stroke=\"#f0f0f0\"/>"
            )?;
            let text = escape(&(self.x.label)(number));
            writeln!(
                out,
                "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\" fill=\"#444\">{text}</text>",
                lower + 18.0
            )?;
        }
        writeln!(out, "<path d=\"M{left} {upper}V{lower}H{right}\" fill=\"none\" stroke=\"#444\"/>")?;
        let (middle, below) = (f64::midpoint(left, right), lower + 40.0);
        writeln!(
            out,
            "<text x=\"{middle}\" y=\"{below}\" text-anchor=\"middle\">{}</text>",
            escape(self.x.title)
        )?;
        let (side, centre) = (18.0, f64::midpoint(upper, lower));
        writeln!(
            out,
            "<text x=\"{side}\" y=\"{centre}\" text-anchor=\"middle\" transform=\"rotate(-90 {side} {centre})\">{}</text>",
            escape(self.y.title)
        )?;
        for (index, series) in self.series.iter().enumerate() {
            series.draw(out, index, &x, &y, (right + 16.0, upper + 10.0 + index as f64 * 20.0))?;
        }
        Ok(())
    }
}

impl Series {
    fn draw(
        &self,
        out: &mut String,
        index: usize,
        x: &Scale<'_>,
        y: &Scale<'_>,
        legend: (f64, f64),
    ) -> std::fmt::Result {
        let colour = if self.dashed { "#444444" } else { COLOURS[index % COLOURS.len()] };
        let style =
            if self.dashed { "stroke-width=\"1.5\" stroke-dasharray=\"5 4\"" } else { "stroke-width=\"2\"" };
        let path: Vec<String> =
            self.points.iter().map(|(a, b)| format!("{:.1} {:.1}", x.place(*a), y.place(*b))).collect();
        writeln!(out, "<path d=\"M{}\" fill=\"none\" stroke=\"{colour}\" {style}/>", path.join("L"))?;
        if !self.dashed {
            for (a, b) in &self.points {
                mark(out, index, x.place(*a), y.place(*b), colour)?;
            }
        }
        let (at, line) = legend;
        writeln!(out, "<path d=\"M{at} {line}h22\" stroke=\"{colour}\" {style}/>")?;
        if !self.dashed {
            mark(out, index, at + 11.0, line, colour)?;
        }
        writeln!(out, "<text x=\"{}\" y=\"{}\">{}</text>", at + 28.0, line + 4.0, escape(&self.name))
    }
}

/// A dot, a square or a diamond.
fn mark(out: &mut String, index: usize, x: f64, y: f64, colour: &str) -> std::fmt::Result {
    match index % 3 {
        0 => writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>"),
        1 => writeln!(
            out,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"6\" height=\"6\" fill=\"{colour}\"/>",
            x - 3.0,
            y - 3.0
        ),
        _ => writeln!(out, "<path d=\"M{:.1} {y:.1}l4 -4l4 4l-4 4z\" fill=\"{colour}\"/>", x - 4.0),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(logarithmic: bool) -> Axis<'static> {
        Axis { title: "a < b", logarithmic, label: |n| format!("{n}") }
    }

    #[test]
    fn every_point_lies_within_the_frame() {
        let points = vec![(1.0, 0.0), (1024.0, 5.0), (65536.0, 3.0)];
        let series = vec![Series { name: "one & other".into(), points, dashed: false }];
        let chart = Chart { title: "t", x: axis(true), y: axis(false), series };
        let svg = svg(&[chart]);
        assert!(svg.contains("one &amp; other") && svg.contains("a &lt; b") && svg.ends_with("</svg>\n"));
        let centres = svg
            .split("<circle cx=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().parse::<f64>().unwrap());
        assert!(centres.clone().all(|x| (LEFT..WIDTH).contains(&x)), "{:?}", centres.collect::<Vec<_>>());
    }

    #[test]
    fn nothing_to_draw_is_drawn() {
        let empty =
            |logarithmic| Chart { title: "", x: axis(logarithmic), y: axis(logarithmic), series: Vec::new() };
        assert!(svg(&[empty(true), empty(false)]).matches("<text").count() > 4);
    }
}
