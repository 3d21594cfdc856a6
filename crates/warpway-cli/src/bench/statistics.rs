//! Samples and what is said of them.

/// Times of one call, in microseconds, each the mean of a batch.
#[derive(Debug, Clone, Default)]
pub(super) struct Samples(Vec<f64>);

impl Samples {
    pub(super) fn new(mut microseconds: Vec<f64>) -> Self {
        microseconds.sort_by(f64::total_cmp);
        Self(microseconds)
    }

    /// The value below which `share` of the samples lie (nearest rank); 0 without samples.
    pub(super) fn quantile(&self, share: f64) -> f64 {
        let last = self.0.len().saturating_sub(1);
        let at = (share * last as f64).round() as usize;
        self.0.get(at.min(last)).copied().unwrap_or(0.0)
    }

    pub(super) fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    pub(super) fn min(&self) -> f64 {
        self.quantile(0.0)
    }

    pub(super) fn p99(&self) -> f64 {
        self.quantile(0.99)
    }

    /// Every sample times `factor`.
    pub(super) fn scaled(self, factor: f64) -> Self {
        Self(self.0.into_iter().map(|sample| sample * factor).collect())
    }

    pub(super) fn sorted(&self) -> &[f64] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples() {
        let samples = Samples::new(vec![5.0, 1.0, 3.0, 2.0, 4.0]);
        assert_eq!((samples.min(), samples.median(), samples.p99()), (1.0, 3.0, 5.0));
        assert_eq!(Samples::new(vec![7.0]).median(), 7.0);
        assert_eq!(Samples::default().p99(), 0.0);
    }
}
