//! What the memory gives: the floor of a put.

use warpway::Result;

use super::Arguments;
use super::pattern::byte;
use super::report::{Report, Row};
use super::session::Session;

/// `memcpy` by rank 0, one thread per block, between private buffers that have been touched. The other ranks
/// are idle, as they are while rank 0 puts.
pub(super) fn run(session: &Session, arguments: &Arguments, report: &mut Report) -> Result<()> {
    for size in arguments.sizes(1) {
        report.begin("memcpy", size);
        let source: Vec<u8> = (0..size).map(|at| byte(0, session.rank(), at)).collect();
        let mut target = vec![0xff; size as usize];
        let part = size.div_ceil(u64::from(arguments.blocks)).max(1) as usize;
        let first = session.rank() == 0;
        let samples = session.time(arguments.batches, || {
            if first {
                copy(&source, &mut target, part);
            }
            Ok(())
        })?;
        let mut row = Row::new("memcpy", size, &samples);
        row.blocks = arguments.blocks;
        row.errors = session.sum(u64::from(first && source != target))?;
        report.push(row);
    }
    Ok(())
}

fn copy(source: &[u8], target: &mut [u8], part: usize) {
    let mut parts = source.chunks(part).zip(target.chunks_mut(part));
    let Some((source, target)) = parts.next() else { return };
    std::thread::scope(|scope| {
        for (source, target) in parts {
            scope.spawn(|| target.copy_from_slice(source));
        }
        target.copy_from_slice(source);
    });
    std::hint::black_box(target);
}
