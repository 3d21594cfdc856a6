//! What is said of a case: the row of the table and of the document.

use serde::Serialize;

use super::super::statistics::Samples;
use super::case::{Case, Subject};
use super::turns::{Opened, Outcome};

/// One size.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    /// Bytes of the larger buffer.
    pub(super) bytes: u64,
    /// Elements of a part, or of all where there are no parts.
    pub(super) count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) out_of_place: Option<Side>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) in_place: Option<Side>,
}

/// One size, out of place or in place.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Side {
    #[serde(flatten)]
    pub(super) time: Time,
    /// bytes / median, 10⁹ bytes a second.
    pub(super) gb_per_s: f64,
    /// That times the factor of the function: [`Subject::bus_factor`].
    pub(super) bus_gb_per_s: f64,
    /// Elements, in all checked calls of all ranks.
    pub(super) wrong: u64,
    pub(super) algorithm: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) floor: Option<Floor>,
    pub(super) peers: Vec<Rivalry>,
    /// Why it was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unsupported: Option<String>,
}

/// Of one call.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Time {
    pub(super) median_us: f64,
    pub(super) min_us: f64,
    pub(super) p99_us: f64,
    /// One per batch, ascending.
    pub(super) samples_us: Vec<f64>,
}

/// The least time that plain copies would take.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Floor {
    /// Bytes read and written by the plan, on all ranks.
    pub(super) moved_bytes: f64,
    /// 10⁹ bytes read and written a second by plain copies on all ranks at once.
    pub(super) copy_gb_per_s: f64,
    pub(super) us: f64,
    /// The floor's time as a share of the median.
    pub(super) share: f64,
}

/// A peer, in the same turns.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Rivalry {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) time: Time,
    /// What it worked in.
    pub(super) in_place: bool,
    /// Name and version, and the algorithm if it says so.
    pub(super) program: Option<String>,
    pub(super) wrong: u64,
    /// Its median as a multiple of Warpway's.
    pub(super) ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unsupported: Option<String>,
}

impl Time {
    fn new(samples: &Samples) -> Self {
        Self {
            median_us: samples.median(),
            min_us: samples.min(),
            p99_us: samples.p99(),
            samples_us: samples.sorted().to_vec(),
        }
    }
}

impl Row {
    /// Without any side yet.
    pub(super) fn new(subject: &Subject, bytes: u64) -> Self {
        let count = if bytes == 0 { 0 } else { subject.count(bytes) };
        Self { bytes, count, out_of_place: None, in_place: None }
    }

    pub(super) fn sides(&self) -> impl Iterator<Item = &Side> {
        [&self.out_of_place, &self.in_place].into_iter().flatten()
    }

    pub(super) fn set(&mut self, case: Case, side: Side) {
        let place = if case.in_place { &mut self.in_place } else { &mut self.out_of_place };
        *place = Some(side);
    }

    /// Wrong elements of Warpway. Those of peers are told beside their times.
    pub(super) fn wrong(&self) -> u64 {
        self.sides().map(|side| side.wrong).sum()
    }
}

impl Side {
    /// Of Warpway's outcome and those of its peers.
    pub(super) fn new(subject: &Subject, case: Case, ours: &Outcome, peers: &[Outcome]) -> Self {
        let time = Time::new(&ours.samples);
        let rate = if time.median_us > 0.0 { case.bytes as f64 / time.median_us / 1e3 } else { 0.0 };
        let (algorithm, unsupported) = match &ours.opened {
            Opened::Ready { algorithm, .. } => (algorithm.clone(), None),
            Opened::Unsupported(why) => (None, Some(why.clone())),
        };
        let peers = peers.iter().map(|peer| Rivalry::new(peer, time.median_us)).collect();
        Self {
            time,
            gb_per_s: rate,
            bus_gb_per_s: rate * subject.bus_factor(),
            wrong: ours.wrong,
            algorithm,
            floor: None,
            peers,
            unsupported,
        }
    }

    /// Adds the floor: what the plan moves, and the rate of plain copies.
    pub(super) fn with_floor(self, moved_bytes: Option<f64>, copy_gb_per_s: f64) -> Self {
        let us = moved_bytes.map(|moved| moved / copy_gb_per_s / 1e3);
        let floor = us.zip(moved_bytes).filter(|_| self.time.median_us > 0.0).map(|(us, moved_bytes)| {
            Floor { moved_bytes, copy_gb_per_s, us, share: us / self.time.median_us }
        });
        Self { floor, ..self }
    }
}

impl Rivalry {
    fn new(outcome: &Outcome, ours: f64) -> Self {
        let time = Time::new(&outcome.samples);
        let (in_place, program, unsupported) = match &outcome.opened {
            Opened::Ready { in_place, algorithm, .. } => (*in_place, algorithm.clone(), None),
            Opened::Unsupported(why) => (false, None, Some(why.clone())),
        };
        let ratio = (time.median_us > 0.0 && ours > 0.0).then(|| time.median_us / ours);
        Self { name: outcome.name.clone(), time, in_place, program, wrong: outcome.wrong, ratio, unsupported }
    }
}

#[cfg(test)]
mod tests {
    use warpway::DataType;
    use warpway::plan::ReduceOp;
    use warpway_collectives::Function;

    use super::*;

    fn outcome(name: &str, us: &[f64], opened: Opened) -> Outcome {
        Outcome { name: name.into(), opened, samples: Samples::new(us.to_vec()), wrong: 0 }
    }

    #[test]
    fn rates_ratios_and_shares() {
        let subject = Subject {
            operation: Function::AllReduce.into(),
            data_type: DataType::Float32,
            op: ReduceOp::Sum,
            root: 0,
            n_ranks: 4,
        };
        let ready = || Opened::Ready { in_place: false, wrong: 0, algorithm: Some("ring".into()) };
        let case = Case { bytes: 1_000_000, in_place: false };
        let peers = [
            outcome("a", &[250.0, 240.0, 300.0], ready()),
            outcome("b", &[], Opened::Unsupported("no".into())),
        ];
        let side = Side::new(&subject, case, &outcome("Warpway", &[90.0, 100.0, 110.0], ready()), &peers);
        assert_eq!((side.time.median_us, side.gb_per_s, side.bus_gb_per_s), (100.0, 10.0, 15.0));
        assert_eq!(side.peers.iter().map(|peer| peer.ratio).collect::<Vec<_>>(), [Some(2.5), None]);
        // 4 MB at 50 GB/s take 80 µs.
        let floor = side.with_floor(Some(4e6), 50.0).floor.unwrap();
        assert!((floor.us - 80.0).abs() < 1e-9 && (floor.share - 0.8).abs() < 1e-9);
    }
}
