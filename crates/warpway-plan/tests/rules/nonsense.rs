//! Whatever numbers a plan has, the verifier answers: it neither panics nor runs on.

use serde_json::Value;
use warpway_plan::verify::{DeviceLimits, Options, Target, verify};
use warpway_plan::{Plan, Style, testing};

use super::strict;

/// A small generator, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }
}

const NUMBERS: [u64; 10] = [0, 1, 2, 3, 16, 64, 4096, u32::MAX as u64, 1 << 40, u64::MAX];

/// Every number of the document.
fn numbers<'v>(value: &'v mut Value, found: &mut Vec<&'v mut Value>) {
    match value {
        Value::Number(_) => found.push(value),
        Value::Array(list) => list.iter_mut().for_each(|element| numbers(element, found)),
        Value::Object(map) => map.values_mut().for_each(|element| numbers(element, found)),
        _ => {}
    }
}

#[test]
fn numbers_that_mean_nothing() {
    let mut random = Random(11);
    let options = [
        Options { max_steps: 5_000, ..Options::default() },
        Options { max_steps: 5_000, sizes: vec![0, 48, 4096, u64::MAX], ..strict() },
        Options {
            target: Target::Mscclpp,
            device: Some(DeviceLimits { resident_blocks: 1, multicast: false }),
            max_steps: 5_000,
            chunk_units: vec![0, 1, u64::MAX],
            ..Options::default()
        },
    ];
    let plans: Vec<Value> = testing::all(3)
        .unwrap()
        .iter()
        .map(|plan| serde_json::from_str(&plan.to_json(Style::Compact)).unwrap())
        .collect();
    let mut read = 0;
    for turn in 0..3_000 {
        let mut value = plans[turn % plans.len()].clone();
        for _ in 0..=random.below(3) {
            let mut found = Vec::new();
            numbers(&mut value, &mut found);
            let at = random.below(found.len());
            *found[at] = NUMBERS[random.below(NUMBERS.len())].into();
        }
        let Ok(plan) = Plan::from_json(value.to_string().as_bytes()) else { continue };
        read += 1;
        let report = verify(&plan.plan, &options[turn % options.len()]);
        assert!(report.diagnostics.len() < 10_000);
    }
    assert!(read > 1_000, "{read}");
}
