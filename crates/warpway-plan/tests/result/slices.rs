//! Slices of pipelines that share scratch, because chunks are larger than it.

use warpway_plan::verify::{Options, Profile, Report, Verdict, verify};
use warpway_plan::{BufferSizeIds, BuildError, CollectiveShape, DataSync, Plan, Program, ProgramOptions};

const SLICE: u64 = 64;

fn report(plan: &Plan) -> Report {
    let report = verify(plan, &Options { profile: Profile::Strict, ..Options::default() });
    assert_eq!(report.verdict, Verdict::Accept, "{}: {:#?}", plan.name, report.diagnostics);
    report
}

/// Rank 0's input, of any size, to rank 1's output.
fn shape() -> CollectiveShape {
    let ids =
        |input: &[u64], output: &[u64]| BufferSizeIds { input: input.to_vec(), output: output.to_vec() };
    CollectiveShape::custom_v(vec![ids(&[5], &[]), ids(&[], &[5])])
}

/// Through the receiver's scratch; the sender may be `ahead` slices ahead of the receiver.
fn stream(ahead: u64) -> Result<Plan, BuildError> {
    let mut p = Program::new(ProgramOptions::new(format!("stream_{ahead}"), shape()))?;
    let slot = p.sized_scratch(1, &[5])?.whole();
    let (there, back) = (p.memory_channel(0, 1)?, p.memory_channel(1, 0)?);
    for _ in 0..ahead {
        p.signal(back, 0, DataSync::Before)?;
    }
    p.sized_pipeline(SLICE, 5, |p| {
        p.wait(there, 0, DataSync::After)?;
        p.put(there, slot, p.input(0)?.whole(), 0)?;
        p.signal(there, 0, DataSync::Before)?;
        p.wait(back, 0, DataSync::After)?;
        p.copy(p.output(1)?.whole(), slot, 0)?;
        p.signal(back, 0, DataSync::Before)
    })?;
    for _ in 0..ahead {
        p.wait(there, 0, DataSync::After)?;
    }
    p.finish()
}

/// The same, but the receiver begins when everything is there.
fn all_first() -> Result<Plan, BuildError> {
    let mut p = Program::new(ProgramOptions::new("all_first", shape()))?;
    let slot = p.sized_scratch(1, &[5])?.whole();
    let (there, back) = (p.memory_channel(0, 1)?, p.memory_channel(1, 0)?);
    p.signal(back, 0, DataSync::Before)?;
    p.wait(there, 0, DataSync::After)?;
    p.sized_pipeline(SLICE, 5, |p| {
        p.put(there, slot, p.input(0)?.whole(), 0)?;
        p.signal(there, 0, DataSync::Before)?;
        p.wait(there, 0, DataSync::After)?;
        p.wait(back, 0, DataSync::After)?;
        p.signal(back, 0, DataSync::Before)
    })?;
    p.sized_pipeline(SLICE, 5, |p| p.copy(p.output(1)?.whole(), slot, 0))?;
    p.finish()
}

#[test]
fn as_many_slices_as_the_sender_may_be_ahead() {
    // The least power of two.
    for (ahead, slices) in [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8)] {
        let plan = stream(ahead).unwrap();
        assert_eq!(report(&plan).reused_slices, Some(slices), "{ahead} ahead");
    }
}

/// Ordered throughout, so nothing races; but the receiver would find the last slice in place of each.
#[test]
fn order_is_not_enough() {
    assert_eq!(report(&all_first().unwrap()).reused_slices, None);
}

#[test]
fn the_report_says_so() {
    let text = |ahead| report(&stream(ahead).unwrap()).display(None).to_string();
    assert!(text(1).contains("come back to it after every slice\n"), "{}", text(1));
    assert!(text(2).contains("come back to it after every 2 slices\n"), "{}", text(2));
    let json = serde_json::to_value(report(&stream(2).unwrap())).unwrap();
    assert_eq!(json["reused_slices"], 2);
    assert_eq!(serde_json::to_value(report(&all_first().unwrap())).unwrap().get("reused_slices"), None);
}
