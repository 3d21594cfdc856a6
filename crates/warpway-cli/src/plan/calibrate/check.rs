//! The catalogue's collectives, predicted and measured in the same run.

use serde_json::{Value, json};
use warpway::{DataType, PlanLaunch};
use warpway_collectives::{Function, Task, World, catalogue};
use warpway_plan::simulate::{Machine, Request, buffers, simulate};

use super::rank::Rank;

/// One message of one algorithm.
struct Compared {
    function: Function,
    algorithm: &'static str,
    bytes: u64,
    measured_ns: f64,
    predicted_ns: f64,
}

/// All of them.
pub(super) struct Found {
    n_ranks: u32,
    compared: Vec<Compared>,
}

pub(super) fn measure(rank: &Rank, machine: &Machine, sizes: &[u64]) -> anyhow::Result<Found> {
    let n_ranks = rank.comm().n_ranks();
    let me = rank.comm().rank() as usize;
    let mut found = Found { n_ranks, compared: Vec::new() };
    for algorithm in catalogue() {
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
            let measured_ns = rank.time(|| prepared.run(&launch))?;
            let predicted_ns = simulate(proven.plan(), machine, &request)?.total_ns;
            let (function, algorithm) = (algorithm.function, algorithm.name);
            found.compared.push(Compared { function, algorithm, bytes, measured_ns, predicted_ns });
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
    fn median(&self) -> f64 {
        let mut errors: Vec<f64> = self.compared.iter().map(Compared::error).collect();
        errors.sort_by(f64::total_cmp);
        errors.get(errors.len() / 2).copied().unwrap_or(0.0)
    }

    pub(super) fn summary(&self) -> String {
        let (n_ranks, count) = (self.n_ranks, self.compared.len());
        format!(
            "{n_ranks} ranks, {count} messages: median error of predictions {:.1} %",
            100.0 * self.median()
        )
    }

    pub(super) fn document(&self, machine: &Machine) -> Value {
        let row = |one: &Compared| {
            json!({
                "function": one.function.name(), "algorithm": one.algorithm, "bytes": one.bytes,
                "measured_us": round(one.measured_ns / 1e3), "predicted_us": round(one.predicted_ns / 1e3),
                "error": round(one.error()),
            })
        };
        json!({
            "benchmark": "simulate_accuracy",
            "what": "one launch of every algorithm of the catalogue that fits, f32, out of place, registered memory (lower quartile of 16 batches, the fastest of 3 visits), against its simulation on a topology calibrated from primitives",
            "ranks": self.n_ranks,
            "median_error": round(self.median()),
            "topology": machine.name,
            "messages": self.compared.iter().map(row).collect::<Vec<_>>(),
        })
    }
}

/// Three decimals.
fn round(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}
