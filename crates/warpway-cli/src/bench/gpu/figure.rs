//! A figure, what it is compared with, and what it should be.

use std::fmt;

use serde::Serialize;

use super::turns::Series;

/// What samples are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) enum Unit {
    /// More is better.
    #[serde(rename = "GB/s")]
    GigabytesPerSecond,
    #[serde(rename = "us")]
    Microseconds,
    #[serde(rename = "ms")]
    Milliseconds,
}

impl Unit {
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::GigabytesPerSecond => "GB/s",
            Self::Microseconds => "µs",
            Self::Milliseconds => "ms",
        }
    }
}

/// Where a value should lie.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Target {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    pub(super) fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, "≥ {bound}"),
            Self::AtMost(bound) => write!(f, "≤ {bound}"),
        }
    }
}

/// A value that says how good a figure is.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Comparison {
    /// The other contestant; `None`: the value is the figure itself.
    pub(super) against: Option<String>,
    /// The ratio to it, figure by figure; `None` if one of them is missing.
    pub(super) value: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) target: Option<Target>,
}

impl Comparison {
    /// `None` without a target; a value that is missing misses it.
    pub(super) fn is_met(&self) -> Option<bool> {
        self.target.map(|target| self.value.is_some_and(|value| target.is_met(value)))
    }
}

/// What one contestant reached in one case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Figure {
    pub(super) benchmark: &'static str,
    /// Sizes, grid, directions: what all contestants of the case have in common.
    pub(super) case: String,
    pub(super) contestant: String,
    pub(super) unit: Unit,
    /// Over the rounds; `None` if nothing was measured.
    pub(super) median: Option<f64>,
    pub(super) lowest: Option<f64>,
    pub(super) highest: Option<f64>,
    /// The 99th percentile of all samples, of rates the first: one in a hundred is worse.
    pub(super) p99: Option<f64>,
    /// Median of each round, in order.
    pub(super) rounds: Vec<f64>,
    pub(super) comparisons: Vec<Comparison>,
    /// Words that were not what they should be.
    pub(super) wrong: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) failed: Option<String>,
}

impl Figure {
    pub(super) fn new(benchmark: &'static str, case: impl Into<String>, unit: Unit, series: &Series) -> Self {
        let worst = if unit == Unit::GigabytesPerSecond { 0.01 } else { 0.99 };
        Self {
            benchmark,
            case: case.into(),
            contestant: series.name.clone(),
            unit,
            median: series.median(),
            lowest: series.rounds.iter().copied().reduce(f64::min),
            highest: series.rounds.iter().copied().reduce(f64::max),
            p99: series.quantile(worst),
            rounds: series.rounds.clone(),
            comparisons: Vec::new(),
            wrong: series.wrong,
            failed: series.failed.clone(),
        }
    }

    /// Compares with another contestant of the same rounds.
    pub(super) fn against(mut self, own: &Series, other: &Series, target: Option<Target>) -> Self {
        let value = own.ratio_to(other);
        self.comparisons.push(Comparison { against: Some(other.name.clone()), value, target });
        self
    }

    /// Judges the figure itself.
    pub(super) fn should_be(mut self, target: Target) -> Self {
        self.comparisons.push(Comparison { against: None, value: self.median, target: Some(target) });
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_judged_by_ratio_and_by_value() {
        let series = |name: &str, rounds: &[f64]| Series {
            name: name.into(),
            rounds: rounds.to_vec(),
            samples: rounds.to_vec(),
            ..Series::default()
        };
        let (own, floor) = (series("put", &[90.0, 97.0, 98.0]), series("floor", &[100.0; 3]));
        let new = || Figure::new("put", "c", Unit::GigabytesPerSecond, &own);
        let figure = new().against(&own, &floor, Some(Target::AtLeast(0.97))).should_be(Target::AtMost(96.9));
        assert_eq!(
            (figure.lowest, figure.median, figure.highest, figure.p99),
            (Some(90.0), Some(97.0), Some(98.0), Some(90.0))
        );
        assert_eq!(
            figure.comparisons.iter().map(Comparison::is_met).collect::<Vec<_>>(),
            [Some(true), Some(false)]
        );
        let nothing = series("nothing", &[]);
        let figure = new().against(&own, &nothing, Some(Target::AtMost(9.0))).against(&own, &floor, None);
        assert_eq!(
            figure.comparisons.iter().map(Comparison::is_met).collect::<Vec<_>>(),
            [Some(false), None]
        );
        assert_eq!(Figure::new("x", "", Unit::Microseconds, &own).p99, Some(98.0));
    }
}
