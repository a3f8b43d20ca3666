//! Exact intervals of counts: of a rate (Poisson), and of the ratio of two rates.

/// Confidence of intervals in reports.
pub(crate) const CONFIDENCE: f64 = 0.95;

/// Steps of a bisection: more than the bits of a number.
const STEPS: usize = 200;
/// Terms of a series or fraction. They need about the root of the count.
const TERMS: usize = 100_000;
/// Where a series or fraction ends.
const PRECISION: f64 = 1e-14;

/// A value and the limits of its interval. Infinite ones are `None`.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
pub(crate) struct Interval {
    pub(crate) value: Option<f64>,
    pub(crate) low: f64,
    pub(crate) high: Option<f64>,
}

/// Returns the exact interval of the mean of a Poisson distribution of which `count` was seen (Garwood, 1936).
pub(crate) fn poisson(count: u64, confidence: f64) -> (f64, f64) {
    let tail = (1.0 - confidence) / 2.0;
    let k = count as f64;
    let low = if count == 0 { 0.0 } else { gamma_quantile(k, tail) };
    (low, gamma_quantile(k + 1.0, 1.0 - tail))
}

/// Returns the rate of `count` in `exposure`.
pub(crate) fn rate(count: u64, exposure: f64, confidence: f64) -> Interval {
    let (low, high) = poisson(count, confidence);
    Interval { value: Some(count as f64 / exposure), low: low / exposure, high: Some(high / exposure) }
}

/// Returns the ratio of the rate of `count` in `exposure` to that of `rest` in `rest_exposure`, with its exact interval: of all that was
/// seen, the part of the first is binomial (Clopper and Pearson, 1934). `None` if nothing was seen, or one has no exposure.
pub(crate) fn ratio(
    count: u64,
    exposure: f64,
    rest: u64,
    rest_exposure: f64,
    confidence: f64,
) -> Option<Interval> {
    if count + rest == 0 || exposure <= 0.0 || rest_exposure <= 0.0 {
        return None;
    }
    let tail = (1.0 - confidence) / 2.0;
    let (k, r) = (count as f64, rest as f64);
    let odds = |part: f64| part / (1.0 - part) * (rest_exposure / exposure);
    let low = if count == 0 { 0.0 } else { odds(beta_quantile(k, r + 1.0, tail)) };
    let high =
        (rest > 0).then(|| odds(beta_quantile(k + 1.0, r, 1.0 - tail))).filter(|high| high.is_finite());
    let value = (rest > 0).then(|| k / r * (rest_exposure / exposure));
    Some(Interval { value, low, high })
}

/// Returns the probability of at least `count` of `count + rest` in the first group, if both have one rate.
pub(crate) fn chance(count: u64, exposure: f64, rest: u64, rest_exposure: f64) -> f64 {
    if count == 0 || exposure <= 0.0 || rest_exposure <= 0.0 {
        return 1.0;
    }
    beta(count as f64, rest as f64 + 1.0, exposure / (exposure + rest_exposure))
}

fn gamma_quantile(shape: f64, probability: f64) -> f64 {
    bisect(shape + 20.0 * (shape + 1.0).sqrt() + 60.0, |x| gamma(shape, x) < probability)
}

fn beta_quantile(a: f64, b: f64, probability: f64) -> f64 {
    bisect(1.0, |x| beta(a, b, x) < probability)
}

/// The point between 0 and `most` up to which `is_below` is true.
fn bisect(most: f64, is_below: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, most);
    for _ in 0..STEPS {
        let middle = 0.5 * (low + high);
        if middle <= low || middle >= high {
            break;
        }
        if is_below(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

/// Regularized lower incomplete gamma function: P(a, x). DLMF 8.7.1 and 8.9.2.
fn gamma(a: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let scale = (a * x.ln() - x - libm::lgamma(a)).exp();
    if x < a + 1.0 {
        let (mut sum, mut term) = (1.0 / a, 1.0 / a);
        for n in 1..TERMS {
            term *= x / (a + n as f64);
            sum += term;
            if term < sum * PRECISION {
                break;
            }
        }
        return (sum * scale).min(1.0);
    }
    let fraction = continued_fraction(x + 1.0 - a, |n| (-n * (n - a), x + 2.0 * n + 1.0 - a));
    (1.0 - scale / fraction).clamp(0.0, 1.0)
}

/// Regularized incomplete beta function: I_x(a, b). DLMF 8.17.22, with the symmetry 8.17.4 where that converges slowly.
fn beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - beta(b, a, 1.0 - x);
    }
    let scale =
        (libm::lgamma(a + b) - libm::lgamma(a) - libm::lgamma(b) + a * x.ln() + b * (-x).ln_1p()).exp();
    let fraction = continued_fraction(1.0, |n| {
        let m = (n / 2.0).floor();
        let odd = n % 2.0 == 1.0;
        let numerator = if odd {
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
        } else {
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
        };
        (numerator, 1.0)
    });
    (scale / (a * fraction)).clamp(0.0, 1.0)
}

/// `first + a1 / (b1 + a2 / (b2 + …))` of `(a, b)` of each term, by the modified method of Lentz.
fn continued_fraction(first: f64, term: impl Fn(f64) -> (f64, f64)) -> f64 {
    const TINY: f64 = 1e-300;
    let not_zero = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut value = not_zero(first);
    let (mut c, mut d) = (value, 0.0);
    for n in 1..TERMS {
        let (a, b) = term(n as f64);
        d = 1.0 / not_zero(b + a * d);
        c = not_zero(b + a / c);
        let factor = c * d;
        value *= factor;
        if (factor - 1.0).abs() < PRECISION {
            break;
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() <= 1e-9 * b.abs().max(1.0)
    }

    #[test]
    fn poisson_intervals_are_those_of_tables() {
        // Published to four digits (Garwood 1936; Johnson, Kotz and Kemp, table 4.1); here from mpmath with 30 digits.
        for (count, low, high) in [
            (0, 0.0, 3.688_879_454_113_936_3),
            (1, 0.025_317_807_984_289_876, 5.571_643_390_938_899),
            (2, 0.242_209_278_543_964_9, 7.224_687_667_723_961),
            (5, 1.623_486_390_118_420_4, 11.668_332_079_322_669),
            (10, 4.795_388_696_132_433_5, 18.390_356_042_017_78),
            (50, 37.110_963_737_461_866, 65.918_766_664_336_81),
            (100, 81.363_991_250_923_14, 121.626_793_792_426_38),
            (1000, 938.973_018_407_695_2, 1_063.952_136_016_302),
        ] {
            let found = poisson(count, CONFIDENCE);
            assert!(near(found.0, low) && near(found.1, high), "{count}: {found:?}");
        }
    }

    #[test]
    fn binomial_limits_are_those_of_clopper_and_pearson() {
        for (k, n, low, high) in [
            (0, 10, 0.0, 0.308_497_107_818_760_83),
            (5, 10, 0.187_086_028_447_398_52, 0.812_913_971_552_601_5),
            (1, 20, 0.001_265_089_497_949_803_6, 0.248_732_762_772_027_57),
            (10, 30, 0.172_874_221_526_039_18, 0.528_120_044_789_880_5),
            (100, 1000, 0.082_105_334_355_58, 0.120_287_936_518_692_64),
        ] {
            let (k, n) = (f64::from(k), f64::from(n));
            let found = if k == 0.0 { 0.0 } else { beta_quantile(k, n - k + 1.0, 0.025) };
            assert!(near(found, low), "{k} of {n}: {found}");
            assert!(near(beta_quantile(k + 1.0, n - k, 0.975), high), "{k} of {n}");
        }
    }

    #[test]
    fn a_ratio_has_the_limits_of_the_binomial_part() {
        let found = ratio(10, 1_000.0, 9, 9_000.0, CONFIDENCE).unwrap();
        assert!(near(found.value.unwrap(), 10.0) && near(found.low, 3.651_879_628_113_628_3), "{found:?}");
        assert!(near(found.high.unwrap(), 27.813_626_881_585_403), "{found:?}");
        let endless = ratio(3, 10.0, 0, 10.0, CONFIDENCE).unwrap();
        assert_eq!((endless.value, endless.high), (None, None));
        assert!(endless.low > 0.0);
        assert_eq!(ratio(0, 10.0, 0, 10.0, CONFIDENCE), None);
        assert_eq!(ratio(1, 0.0, 1, 10.0, CONFIDENCE), None);
        // 3 of 3 in half of the exposure.
        assert!(near(chance(3, 10.0, 0, 10.0), 0.125));
        assert!(near(chance(1, 10.0, 1, 30.0), 1.0 - 0.75 * 0.75));
    }

    proptest! {
        #[test]
        fn an_interval_holds_its_value(
            count in 0_u64..2_000_000,
            rest in 0_u64..2_000_000,
            exposure in 1e-3_f64..1e9,
            other in 1e-3_f64..1e9,
        ) {
            let found = rate(count, exposure, CONFIDENCE);
            prop_assert!(found.low <= found.value.unwrap() && found.value.unwrap() <= found.high.unwrap());
            let (low, high) = poisson(count, CONFIDENCE);
            // Each limit leaves a fortieth of the distribution outside.
            prop_assert!(count == 0 || (gamma(count as f64, low) - 0.025).abs() < 1e-7);
            prop_assert!((gamma(count as f64 + 1.0, high) - 0.975).abs() < 1e-7);
            if let Some(found) = ratio(count, exposure, rest, other, CONFIDENCE) {
                prop_assert!(found.value.is_none_or(|value| found.low <= value * (1.0 + 1e-9)), "{:?}", found);
                prop_assert!(found.high.is_none_or(|high| found.value.is_none_or(|value| value <= high * (1.0 + 1e-9))), "{:?}", found);
            }
            prop_assert!((0.0..=1.0).contains(&chance(count, exposure, rest, other)));
        }
    }
}
