//! The catalogue's collectives, predicted and measured in the same run.

use serde_json::{Value, json};
use warpway::{DataType, PlanLaunch};
use warpway_collectives::{Function, Task, World, catalogue};
use warpway_plan::simulate::{Request, buffers, simulate};

use super::placement::{Flight, Placements};
use super::rank::Rank;
use crate::origin::Origin;

/// One message of one algorithm.
struct Compared {
    function: Function,
    algorithm: &'static str,
    bytes: u64,
    flight: Flight,
    measured_ns: f64,
    predicted_ns: f64,
}

/// All of them.
pub(super) struct Found {
    n_ranks: u32,
    compared: Vec<Compared>,
    /// Messages while the cores were where there is no topology for.
    left_out: u64,
}

/// Runs the algorithms of some functions, or of all if none is named.
pub(super) fn measure(
    rank: &Rank,
    placements: &mut Placements,
    functions: &[Function],
    sizes: &[u64],
) -> anyhow::Result<Found> {
    let n_ranks = rank.comm().n_ranks();
    let me = rank.comm().rank() as usize;
    let mut found = Found { n_ranks, compared: Vec::new(), left_out: 0 };
    let wanted = |function: Function| functions.is_empty() || functions.contains(&function);
    for algorithm in catalogue().filter(|algorithm| wanted(algorithm.function)) {
        // Sized plans compute with tables; what they move is what the fixed-size forms move.
        let task = Task::new(algorithm.function, World::one_host(n_ranks));
        if algorithm.function.is_sized() || (algorithm.fits)(&task).is_err() {
            continue;
        }
        rank.say(&format!("{} by {}", algorithm.function, algorithm.name));
        let proven = algorithm.prove(&task)?;
        let prepared = rank.comm().prepare(&proven)?;
        let sizes = if algorithm.function == Function::Barrier { &[0][..] } else { sizes };
        for &bytes in sizes {
            // Packets are for what fits the caches.
            if algorithm.traits.packets && bytes > 1 << 20 {
                continue;
            }
            let request = Request {
                repairs: proven.repairs().clone(),
                record: false,
                ranks_per_host: Some(vec![n_ranks]),
                ..Request::message(bytes)
            };
            let [input, output] = buffers(proven.plan(), &request)?.get(me).copied().unwrap_or_default();
            let memory = [rank.touched(input)?, rank.touched(output)?];
            let launch =
                PlanLaunch::new(memory[0].view_of(0, input), memory[1].view_of(0, output), DataType::Float32);
            let timing = rank.time(None, || prepared.run(&launch))?;
            let Some(machine) = placements.of(timing.flight, rank)? else {
                found.left_out += 1;
                continue;
            };
            let predicted_ns = simulate(proven.plan(), placements.machine(machine), &request)?.total_ns;
            found.compared.push(Compared {
                function: algorithm.function,
                algorithm: algorithm.name,
                bytes,
                flight: timing.flight,
                measured_ns: timing.median,
                predicted_ns,
            });
        }
    }
    Ok(found)
}

impl Compared {
    fn error(&self) -> f64 {
        (self.predicted_ns / self.measured_ns - 1.0).abs()
    }
}

impl Found {
    fn median(&self, of: impl Fn(&Compared) -> bool) -> f64 {
        let mut errors: Vec<f64> = self.compared.iter().filter(|one| of(one)).map(Compared::error).collect();
        errors.sort_by(f64::total_cmp);
        errors.get(errors.len() / 2).copied().unwrap_or(0.0)
    }

    pub(super) fn summary(&self) -> String {
        let (n_ranks, count) = (self.n_ranks, self.compared.len());
        let left_out = match self.left_out {
            0 => String::new(),
            left_out => format!(", {left_out} left out because the cores had moved"),
        };
        format!(
            "{n_ranks} ranks, {count} messages{left_out}: median error of predictions {:.1} %",
            100.0 * self.median(|_| true)
        )
    }

    pub(super) fn document(&self, placements: &Placements, origin: &Origin) -> anyhow::Result<Value> {
        let row = |one: &Compared| {
            json!({
                "function": one.function.name(), "algorithm": one.algorithm, "bytes": one.bytes,
                "measured_us": round(one.measured_ns / 1e3), "predicted_us": round(one.predicted_ns / 1e3),
                "error": round(one.error()), "flight_ns": one.flight.0.round(),
            })
        };
        let mut sizes: Vec<u64> = self.compared.iter().map(|one| one.bytes).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let by_size: serde_json::Map<String, Value> = sizes
            .into_iter()
            .map(|bytes| (bytes.to_string(), json!(round(self.median(|one| one.bytes == bytes)))))
            .collect();
        let mut document = serde_json::to_value(origin)?;
        let rest = json!({
            "benchmark": "simulate_accuracy",
            "what": "one launch of every algorithm of the catalogue that fits, f32, out of place, registered memory (median of 48 batches in 3 visits), against its simulation on a topology calibrated from primitives (medians, too) while the cores were as far apart; flight_ns: one way of a signal between them",
            "ranks": self.n_ranks,
            "median_error": round(self.median(|_| true)),
            "median_error_by_bytes": by_size,
            "left_out": self.left_out,
            "topologies": placements.flights().map(|flight| json!({"flight_ns": flight.0.round()})).collect::<Vec<_>>(),
            "messages": self.compared.iter().map(row).collect::<Vec<_>>(),
        });
        if let (Value::Object(document), Value::Object(rest)) = (&mut document, rest) {
            document.extend(rest);
        }
        Ok(document)
    }
}

/// Three decimals.
fn round(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}
