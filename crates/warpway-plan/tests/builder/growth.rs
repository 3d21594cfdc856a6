//! Programs that would take quadratic time if a pass compared each operation with all earlier ones. Each takes well below a
//! second; the runner's time limit is what fails them.

use warpway_plan::{BufferKind, CollectiveShape, DataSync, Program, ProgramOptions, ReduceOp, Reduction};

const N: u64 = 100_000;

fn program() -> Program {
    Program::new(ProgramOptions::new("many", CollectiveShape::test(2, N, N))).unwrap()
}

/// Operations of block 0 of rank 0.
fn count(p: Program) -> usize {
    p.finish().unwrap().ranks[0].blocks[0].operations.len()
}

#[test]
fn many_puts_are_one() {
    let mut p = program();
    let channel = p.memory_channel(0, 1).unwrap();
    let (from, to) = (p.input(0).unwrap(), p.output(1).unwrap());
    for at in 0..N {
        p.put(channel, to.chunk(at..=at).unwrap(), from.chunk(at..=at).unwrap(), 0).unwrap();
    }
    assert_eq!(count(p), 1);
}

#[test]
fn many_folds_are_one() {
    let mut p = program();
    let from = p.input(0).unwrap();
    let result = p.output(0).unwrap().chunk(0..1).unwrap();
    for at in 0..N {
        let other = from.chunk(at..=at).unwrap();
        p.reduce(Reduction::of(result, &[other]).ordered(&[0, 1]), 0).unwrap();
    }
    assert_eq!(count(p), 1);
}

#[test]
fn many_signals_are_one() {
    let mut p = program();
    let channels: Vec<_> = (0..N / 10).map(|_| p.memory_channel(0, 1).unwrap()).collect();
    let back: Vec<_> = (0..N / 10).map(|_| p.memory_channel(1, 0).unwrap()).collect();
    // Waits in the reverse order of the block's positions.
    for channel in &channels {
        p.signal(*channel, 0, DataSync::None).unwrap();
    }
    for channel in channels.iter().rev() {
        p.wait(*channel, 0, DataSync::None).unwrap();
    }
    for channel in back {
        p.signal(channel, 0, DataSync::None).unwrap();
        p.wait(channel, 1, DataSync::None).unwrap();
    }
    assert_eq!(count(p), 2);
}

/// Many small reads, then reads of everything: by single operations, by the items of one, by the body of one.
#[test]
fn many_reads_of_much_are_analysed_in_passing() {
    let mut p = program();
    let channel = p.memory_channel(0, 1).unwrap();
    let (from, to) = (p.input(0).unwrap(), p.output(1).unwrap());
    let stage = p.scratch(0, N).unwrap();
    let small = |p: &mut Program| {
        for at in (0..N).step_by(2) {
            p.copy(stage.chunk(at..=at).unwrap(), from.chunk(at..=at).unwrap(), 0).unwrap();
        }
        p.barrier(0, &[0]).unwrap();
        for at in (0..N).step_by(2) {
            p.copy(p.output(0).unwrap().chunk(at..=at).unwrap(), stage.chunk(at..=at).unwrap(), 0).unwrap();
        }
    };
    small(&mut p);
    for _ in 0..1000 {
        p.put(channel, to.whole(), stage.whole(), 0).unwrap();
    }
    small(&mut p);
    p.pipeline(16, N, |p| {
        for _ in 0..1000 {
            p.put(channel, to.whole(), stage.whole(), 0)?;
            // Of another size, so not joined.
            p.put(channel, to.chunk(1..)?, stage.chunk(1..)?, 0)?;
        }
        Ok(())
    })
    .unwrap();
    let n = N as usize;
    assert_eq!(count(p), 2 * (n + 1) + 3);
}

/// What reads a stage is known without asking every operation about every other.
#[test]
fn many_multicasts_are_joined() {
    let mut p = program();
    let switch = p.switch_channel(&[0, 1], BufferKind::Input).unwrap();
    let stage = p.scratch(0, N).unwrap();
    for at in 0..N {
        let (region, chunk) = (switch.region(0, at, 1), stage.chunk(at..=at).unwrap());
        p.switch_reduce(region, chunk, 0, ReduceOp::Sum).unwrap();
        p.switch_broadcast(region, chunk, 0).unwrap();
    }
    assert_eq!(count(p), N as usize);
}
