//! Logarithmic axes: where values lie, and which of them have a mark.

/// From `low` to `high`, both above 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Axis {
    low: f64,
    high: f64,
}

impl Axis {
    /// Around all values that are above 0; powers of ten, or their halves and fifths, at the ends.
    pub(crate) fn decimal(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = extremes(values);
        let below = steps(low.log10().floor() as i32).rfind(|step| *step <= low * 1.0001);
        let above = steps(high.log10().floor() as i32).find(|step| *step >= high * 0.9999);
        let axis = Self { low: below.unwrap_or(low), high: above.unwrap_or(high) };
        // One value has room on both sides.
        if axis.low == axis.high { Self { low: axis.low / 2.0, high: axis.high * 2.0 } } else { axis }
    }

    /// Around all values that are above 0, without more room.
    pub(crate) fn tight(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = extremes(values);
        if low == high { Self { low: low / 2.0, high: high * 2.0 } } else { Self { low, high } }
    }

    /// 0 at the low end, 1 at the high one.
    pub(crate) fn place(&self, value: f64) -> f64 {
        (value / self.low).ln() / (self.high / self.low).ln()
    }

    /// Powers of ten; also their doubles and halves where there are few of them.
    pub(crate) fn decimal_marks(&self) -> Vec<f64> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let inside = |value: &f64| *value >= self.low * 0.9999 && *value <= self.high * 1.0001;
        let all: Vec<f64> = (first..=last).flat_map(decade).filter(inside).collect();
        if all.len() <= 7 {
            return all;
        }
        (first..=last).map(|exponent| 10f64.powi(exponent)).filter(inside).collect()
    }

    /// Powers of two, of a factor apart that leaves at most `most` of them.
    pub(crate) fn binary_marks(&self, most: usize) -> Vec<f64> {
        let (first, last) = (self.low.log2().ceil() as i32, (self.high * 1.0001).log2().floor() as i32);
        let count = (last - first).max(0) as usize + 1;
        let step = count.div_ceil(most.max(1)).max(1);
        (first..=last).step_by(step).map(|exponent| 2f64.powi(exponent)).collect()
    }
}

fn extremes(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let drawn = values.filter(|value| value.is_finite() && *value > 0.0);
    let (low, high) = drawn.fold((f64::MAX, 0.0), |(low, high), value| (value.min(low), value.max(high)));
    if low > high { (1.0, 10.0) } else { (low, high) }
}

/// 1, 2 and 5 times a power of ten.
fn decade(exponent: i32) -> impl DoubleEndedIterator<Item = f64> {
    [1.0, 2.0, 5.0].into_iter().map(move |digit| digit * 10f64.powi(exponent))
}

/// Those, and the next power of ten.
fn steps(exponent: i32) -> impl DoubleEndedIterator<Item = f64> {
    decade(exponent).chain(Some(10f64.powi(exponent + 1)))
}

/// A number of bytes in powers of 1024.
pub(crate) fn bytes(value: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = value;
    let mut at = 0;
    while value >= 1024.0 && at + 1 < units.len() {
        (value, at) = (value / 1024.0, at + 1);
    }
    format!("{} {}", number(value), units[at])
}

/// Without zeros that say nothing; thousands as k and M, less than a thousandth with an exponent.
pub(crate) fn number(value: f64) -> String {
    if value > 0.0 && value < 0.000_999 {
        return format!("{value:.0e}");
    }
    let (value, unit) = match value {
        value if value >= 999_999.0 => (value / 1e6, "M"),
        value if value >= 9_999.0 => (value / 1e3, "k"),
        value => (value, ""),
    };
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_round_numbers() {
        let axis = |values: &[f64]| Axis::decimal(values.iter().copied());
        assert_eq!(axis(&[0.3, 47.0]), Axis { low: 0.2, high: 50.0 });
        assert_eq!(axis(&[1.0, 1000.0]), Axis { low: 1.0, high: 1000.0 });
        assert_eq!(axis(&[6.0, 80.0]), Axis { low: 5.0, high: 100.0 });
        assert_eq!(axis(&[2.0, 2.0]), Axis { low: 1.0, high: 4.0 });
        assert_eq!(axis(&[0.0, f64::NAN]), Axis { low: 1.0, high: 10.0 });
    }

    #[test]
    fn places_are_logarithmic() {
        let axis = Axis { low: 1.0, high: 10_000.0 };
        assert_eq!([1.0, 100.0, 10_000.0].map(|value| axis.place(value)), [0.0, 0.5, 1.0]);
    }

    #[test]
    fn marks_are_few_and_inside() {
        assert_eq!(Axis { low: 0.2, high: 5.0 }.decimal_marks(), [0.2, 0.5, 1.0, 2.0, 5.0]);
        assert_eq!(Axis { low: 0.2, high: 500.0 }.decimal_marks(), [1.0, 10.0, 100.0]);
        assert_eq!(Axis { low: 8.0, high: 2048.0 }.binary_marks(5), [8.0, 32.0, 128.0, 512.0, 2048.0]);
        assert_eq!(Axis { low: 12.0, high: 40.0 }.binary_marks(5), [16.0, 32.0]);
    }

    #[test]
    fn numbers_as_people_write_them() {
        assert_eq!([8.0, 2048.0, 65536.0, 1_572_864.0].map(bytes), ["8 B", "2 KiB", "64 KiB", "1.5 MiB"]);
        assert_eq!([0.05, 1.0, 500.0, 20_000.0, 2e6].map(number), ["0.05", "1", "500", "20k", "2M"]);
        assert_eq!([0.001, 0.0005, 1e-6].map(number), ["0.001", "5e-4", "1e-6"]);
    }
}
