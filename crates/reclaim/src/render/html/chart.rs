//! Charts as SVG.

use std::fmt::{Result, Write};

use super::escape;
use crate::Bucket;
use crate::render::numbers::{count, duration_us, number};

/// A line of a timeline.
pub(super) struct Series<'a> {
    pub(super) name: &'static str,
    /// The style's class, which gives the colour.
    pub(super) class: &'static str,
    pub(super) values: &'a [f64],
}

const WIDTH: f64 = 1100.0;
const LEFT: f64 = 52.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 22.0;

/// Lines over time, with a legend and a line of text that follows the pointer.
pub(super) fn timeline(
    out: &mut String,
    series: &[Series],
    slice_s: f64,
    runs: &[(f64, f64)],
    height: f64,
) -> Result {
    let shown: Vec<&Series> =
        series.iter().filter(|one| one.values.iter().any(|&value| value > 0.0)).collect();
    let Some(slices) = shown.first().map(|one| one.values.len()) else { return Ok(()) };
    let most = shown.iter().flat_map(|one| one.values).copied().fold(0.0, f64::max);
    let (step, top) = ticks(most);
    let plot = WIDTH - LEFT - 4.0;
    let depth = height - TOP - BOTTOM;
    let x = |at: f64| LEFT + at / slices as f64 * plot;
    let y = |value: f64| TOP + (1.0 - value / top) * depth;
    out.write_str("<div class=\"legend\">")?;
    for one in &shown {
        write!(out, "<span><i class=\"{}\"></i>{}</span>", one.class, one.name)?;
    }
    out.write_str("</div>")?;
    write!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" data-slice=\"{slice_s}\" data-plot=\"{LEFT} {plot}\" data-series=\"{}\">",
        escape(&data(&shown))
    )?;
    for &(begin, end) in runs {
        let (from, to) = (x(begin / slice_s), x((end / slice_s).min(slices as f64)));
        write!(
            out,
            "<rect class=\"run\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{depth}\"/>",
            (to - from).max(0.0)
        )?;
    }
    let mut tick = 0.0;
    while tick <= top * 1.0001 {
        let at = y(tick);
        write!(
            out,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>",
            LEFT + plot
        )?;
        write!(
            out,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 7.0,
            at + 4.0,
            round(tick)
        )?;
        tick += step;
    }
    let seconds = slices as f64 * slice_s;
    let (step, _) = ticks(seconds);
    let mut tick = 0.0;
    while tick <= seconds {
        let at = LEFT + tick / seconds * plot;
        write!(
            out,
            "<text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{} s</text>",
            height - 5.0,
            round(tick)
        )?;
        tick += step;
    }
    for one in &shown {
        let mut line = String::new();
        for (at, &value) in one.values.iter().enumerate() {
            let (place, level) = (x(at as f64 + 0.5), y(value));
            write!(line, "{}{place:.1} {level:.1}", if at == 0 { "M" } else { "L" })?;
        }
        let (first, last, floor) = (x(0.5), x(slices as f64 - 0.5), y(0.0));
        write!(
            out,
            "<path class=\"area {}\" d=\"{line}L{last:.1} {floor:.1}L{first:.1} {floor:.1}Z\"/>",
            one.class
        )?;
        write!(out, "<path class=\"line {}\" d=\"{line}\"/>", one.class)?;
    }
    write!(
        out,
        "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{1}\" y2=\"{1}\"/>",
        LEFT + plot,
        TOP + depth
    )?;
    write!(out, "<line class=\"cursor\" x1=\"0\" x2=\"0\" y1=\"{TOP}\" y2=\"{}\"/></svg>", TOP + depth)?;
    out.write_str("<div class=\"readout\"></div>")
}

/// The values for the script, rounded.
fn data(series: &[&Series]) -> String {
    let one = |one: &&Series| {
        let values: Vec<String> = one.values.iter().map(|value| format!("{value:.3}")).collect();
        format!("{{\"name\":\"{}\",\"values\":[{}]}}", one.name, values.join(","))
    };
    format!("[{}]", series.iter().map(one).collect::<Vec<_>>().join(","))
}

/// A round step that gives two to five lines, and the scale's end.
fn ticks(most: f64) -> (f64, f64) {
    if most <= 0.0 {
        return (1.0, 1.0);
    }
    let power = 10_f64.powf(most.log10().floor());
    let step =
        [0.2, 0.5, 1.0, 2.0, 5.0].map(|factor| factor * power).into_iter().find(|step| most / step <= 5.0);
    let step = step.unwrap_or(power);
    (step, (most / step).ceil() * step)
}

/// A tick without zeros at its end.
fn round(tick: f64) -> String {
    let text = number(tick);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

const HEIGHT: f64 = 200.0;

/// Bars of a log2 histogram.
pub(super) fn histogram(out: &mut String, buckets: &[Bucket], class: &str) -> Result {
    let most = buckets.iter().map(|bucket| bucket.count).max().unwrap_or(0);
    if most == 0 {
        return Ok(());
    }
    // A handful of bars is not stretched over the page.
    let width = 520.0;
    let slot = (width / buckets.len() as f64).min(64.0);
    let depth = HEIGHT - 18.0 - 34.0;
    write!(out, "<svg viewBox=\"0 0 {width} {HEIGHT}\" role=\"img\">")?;
    for (at, bucket) in buckets.iter().enumerate() {
        let bar = bucket.count as f64 / most as f64 * depth;
        // What is there is seen.
        let bar = if bucket.count > 0 { bar.max(1.5) } else { 0.0 };
        let (x, y) = (at as f64 * slot, 18.0 + depth - bar);
        let range = format!("{} to {}", duration_us(bucket.from_us), duration_us(bucket.to_us + 1));
        write!(
            out,
            "<rect class=\"bar {class}\" x=\"{:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{bar:.1}\" rx=\"2\"><title>{range}: {}</title></rect>",
            x + slot * 0.08,
            slot * 0.84,
            count(bucket.count)
        )?;
        if bucket.count > 0 {
            write!(
                out,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                x + slot / 2.0,
                y - 4.0,
                count(bucket.count)
            )?;
        }
        // Every other label where bars are narrow.
        if slot < 44.0 && (at % 2 == 1 || at + 1 == buckets.len()) {
            continue;
        }
        let label = short(bucket.from_us);
        write!(
            out,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            18.0 + depth + 15.0
        )?;
    }
    let end = buckets.len() as f64 * slot;
    let last = buckets.last().map_or(0, |bucket| bucket.to_us + 1);
    write!(
        out,
        "<text x=\"{end:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
        18.0 + depth + 15.0,
        short(last)
    )?;
    write!(out, "<line class=\"axis\" x1=\"0\" x2=\"{end:.1}\" y1=\"{0:.1}\" y2=\"{0:.1}\"/>", 18.0 + depth)?;
    write!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">duration</text></svg>",
        end / 2.0,
        HEIGHT - 3.0
    )
}

/// A power of two of microseconds in as few letters as there is room for: "512u", "8m", "1s".
fn short(us: u64) -> String {
    match us {
        0..1_000 => format!("{us}µs"),
        1_000..1_000_000 => format!("{}ms", us.div_ceil(1_024).max(us / 1_000)),
        _ => format!("{:.0}s", us as f64 / 1e6),
    }
}
