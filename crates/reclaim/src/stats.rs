//! Statistics over repeated runs.

use serde::Serialize;

/// What several values come to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// How many.
    pub count: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Sample standard deviation; 0 for one value.
    pub stddev: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
}

impl Summary {
    /// Summarizes `values`; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len();
        if count == 0 {
            return None;
        }
        let mean = values.iter().sum::<f64>() / count as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let stddev = if count > 1 { (squares / (count - 1) as f64).sqrt() } else { 0.0 };
        let min = values.iter().copied().fold(f64::INFINITY, f64::min);
        let max = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Some(Self { count, mean, stddev, min, max })
    }
}

/// The difference of two means, and how sure it is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Difference {
    /// Second mean less the first.
    pub difference: f64,
    /// The interval that holds the true difference with 95 % confidence: its lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Zero is not in it: the difference is real.
    pub real: bool,
}

/// Welch's t-interval of the difference of two means, for samples of different spread and size. None unless both have two
/// values or more.
pub(crate) fn welch(first: &[f64], second: &[f64]) -> Option<Difference> {
    let (a, b) = (Summary::of(first)?, Summary::of(second)?);
    if a.count < 2 || b.count < 2 {
        return None;
    }
    let difference = b.mean - a.mean;
    let (va, vb) = (a.stddev.powi(2) / a.count as f64, b.stddev.powi(2) / b.count as f64);
    let variance = va + vb;
    if variance == 0.0 {
        return Some(Difference { difference, low: difference, high: difference, real: difference != 0.0 });
    }
    // Welch-Satterthwaite.
    let freedom = variance.powi(2) / (va.powi(2) / (a.count - 1) as f64 + vb.powi(2) / (b.count - 1) as f64);
    let reach = t_quantile(0.975, freedom) * variance.sqrt();
    let (low, high) = (difference - reach, difference + reach);
    Some(Difference { difference, low, high, real: low > 0.0 || high < 0.0 })
}

/// The value below which Student's t with `freedom` degrees of freedom is with `probability` (above one half).
fn t_quantile(probability: f64, freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1e6);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if t_below(middle, freedom) < probability { low = middle } else { high = middle }
    }
    (low + high) / 2.0
}

/// The probability that t is below a positive value.
fn t_below(value: f64, freedom: f64) -> f64 {
    1.0 - 0.5 * incomplete_beta(freedom / 2.0, 0.5, freedom / (freedom + value * value))
}

/// The regularised incomplete beta function, by Lentz's continued fraction.
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges fast on this side only.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(b, a, 1.0 - x);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    let tiny = 1e-300;
    let away = |value: f64| if value.abs() < tiny { tiny } else { value };
    let (mut c, mut d) = (1.0, 1.0 / away(1.0 - (a + b) * x / (a + 1.0)));
    let mut fraction = d;
    for m in 1..300 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        for term in [even, odd] {
            d = 1.0 / away(1.0 + term * d);
            c = away(1.0 + term / c);
            fraction *= d * c;
        }
        if (d * c - 1.0).abs() < 1e-14 {
            break;
        }
    }
    front * fraction
}

/// The logarithm of the gamma function for positive values, by Stirling's series above 10.
fn ln_gamma(mut x: f64) -> f64 {
    let mut shift = 0.0;
    while x < 10.0 {
        shift -= x.ln();
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    let series = (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * (1.0 / 1260.0 - inverse / 1680.0))) / x;
    shift + (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        // Two-sided 95 %, as printed in any table of Student's t.
        for (freedom, expected) in
            [(1.0, 12.706), (2.0, 4.303), (5.0, 2.571), (10.0, 2.228), (30.0, 2.042), (1000.0, 1.962)]
        {
            assert!((t_quantile(0.975, freedom) - expected).abs() < 0.001, "{freedom}");
        }
    }

    #[test]
    fn differences_are_real_or_not() {
        // By hand: standard error 2.1213, 7.122 degrees of freedom, t = 2.3561.
        let (a, b) = ([30.0, 35.0, 28.0, 33.0, 32.0], [20.0, 12.0, 22.0, 20.0, 20.0]);
        let found = welch(&a, &b).unwrap();
        assert!((found.difference + 12.8).abs() < 1e-9 && found.real);
        assert!((found.low + 17.80).abs() < 0.01 && (found.high + 7.80).abs() < 0.01, "{found:?}");
        assert!(!welch(&[1.0, 5.0, 3.0], &[2.0, 4.0, 6.0]).unwrap().real);
        assert!(welch(&[1.0], &[2.0, 3.0]).is_none());
        let same = welch(&[2.0, 2.0], &[2.0, 2.0]).unwrap();
        assert_eq!((same.difference, same.real), (0.0, false));
    }

    #[test]
    fn summaries_are_exact() {
        let summary = Summary::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!((summary.mean, summary.min, summary.max), (5.0, 2.0, 9.0));
        assert!((summary.stddev - 2.138).abs() < 0.001);
        assert_eq!(Summary::of(&[3.0]).unwrap().stddev, 0.0);
        assert_eq!(Summary::of(&[]), None);
    }
}
