//! Sizes that differ between ranks: checked, and as the rows that a plan with sized chunks takes.

use warpway_collectives::Function;
use warpway_core::collective::CollectiveError;
use warpway_core::{Error, Result};
use warpway_host::BufferView;
use warpway_plan::{RankPlan, SizeRows};

use super::call::{Call, Counts, Sizes};
use super::message::{Message, Place};

/// Bytes of each rank's part of a buffer, and where they lie.
#[derive(Debug, Clone)]
struct Parts(Vec<(u64, u64)>);

impl Parts {
    fn of(call: &Call<'_>, place: Place, what: &str, counts: Counts<'_>) -> Result<Self> {
        let n = place.n_ranks as usize;
        let wrong = |why: String| wrong(call, place, why);
        if counts.counts.len() != n {
            return Err(wrong(format!("{} {what} for {n} ranks", counts.counts.len())));
        }
        if let Some(found) = counts.displacements.map(<[u64]>::len).filter(|found| *found != n) {
            return Err(wrong(format!("{found} displacements for {n} ranks")));
        }
        let element = call.data_type.bytes();
        let mut next = 0u64;
        let mut parts = Vec::with_capacity(n);
        for (rank, count) in counts.counts.iter().enumerate() {
            // A part of no elements lies nowhere, whatever its displacement.
            if *count == 0 {
                parts.push((0, 0));
                continue;
            }
            let first = counts.displacements.map_or(next, |given| given[rank]);
            let end = first.checked_add(*count).filter(|end| end.checked_mul(element).is_some());
            next = end.ok_or_else(|| wrong(format!("the part of rank {rank} ends beyond 64 bits")))?;
            parts.push((first * element, count * element));
        }
        Ok(Self(parts))
    }

    fn bytes(&self) -> u64 {
        self.0.iter().fold(0, |all, (_, bytes)| all.saturating_add(*bytes))
    }

    fn part(&self, rank: u32) -> (u64, u64) {
        self.0.get(rank as usize).copied().unwrap_or_default()
    }

    /// The part of one rank in a buffer that has nothing else.
    fn alone(&self, rank: u32) -> Self {
        Self(vec![(0, self.part(rank).1)])
    }

    fn check(&self, call: &Call<'_>, place: Place, buffer: &'static str, view: BufferView<'_>) -> Result<()> {
        let beyond =
            |(offset, bytes): &(u64, u64)| *bytes > 0 && offset.saturating_add(*bytes) > view.bytes();
        match self.0.iter().position(beyond) {
            None => Ok(()),
            Some(rank) => {
                let (offset, bytes) = self.0[rank];
                Err(wrong(
                    call,
                    place,
                    format!(
                        "the part of rank {rank} reaches from byte {offset} to byte {} of an {buffer} of {} bytes",
                        offset.saturating_add(bytes),
                        view.bytes()
                    ),
                ))
            }
        }
    }
}

fn wrong(call: &Call<'_>, place: Place, why: impl Into<String>) -> Error {
    CollectiveError::Counts { rank: place.rank, function: call.function.name(), why: why.into() }.into()
}

/// Parts of the input and of the output.
fn parts(call: &Call<'_>, place: Place) -> Result<[Parts; 2]> {
    match (call.function, call.sizes) {
        (Function::AllToAllV, Sizes::ByPair(send, receive)) => Ok([
            Parts::of(call, place, "counts to send", send)?,
            Parts::of(call, place, "counts to receive", receive)?,
        ]),
        (Function::AllGatherV | Function::ReduceScatterV, Sizes::ByRank(counts)) => {
            let all = Parts::of(call, place, "counts", counts)?;
            let own = all.alone(place.rank);
            Ok(if call.function == Function::AllGatherV { [own, all] } else { [all, own] })
        }
        _ => {
            let why = "all_to_all_v takes counts to send and to receive, the others counts of each rank";
            Err(wrong(call, place, why))
        }
    }
}

/// Buffers that are apart.
pub(super) fn apart<'a>(
    call: &Call<'a>,
    place: Place,
    input: BufferView<'a>,
    output: BufferView<'a>,
) -> Result<Message<'a>> {
    let [inputs, outputs] = parts(call, place)?;
    inputs.check(call, place, "input", input)?;
    outputs.check(call, place, "output", output)?;
    let bytes = match call.function {
        Function::AllGatherV => Some(outputs.bytes()),
        Function::ReduceScatterV => Some(inputs.bytes()),
        _ => None,
    };
    Ok(Message { input, output, in_place: false, bytes })
}

/// One buffer for both.
pub(super) fn in_place<'a>(call: &Call<'a>, place: Place, data: BufferView<'a>) -> Result<Message<'a>> {
    let (input, output) = match (call.function, call.sizes) {
        (Function::AllGatherV | Function::ReduceScatterV, Sizes::ByRank(counts)) => {
            let all = Parts::of(call, place, "counts", counts)?;
            all.check(call, place, "buffer", data)?;
            let (offset, bytes) = all.part(place.rank);
            let own = data.part(offset, bytes);
            if call.function == Function::AllGatherV { (own, data) } else { (data, own) }
        }
        _ => (data, data),
    };
    Ok(Message { in_place: true, ..apart(call, place, input, output)? })
}

/// What a launch of `plan` (that of this rank) brings.
///
/// A part is one chunk or, in plans of a larger chunk factor, several in a row. Size ids count those of rank 0 first; of
/// all_to_all_v those from rank 0 to rank 0, then from rank 0 to rank 1.
pub(super) fn rows(call: &Call<'_>, place: Place, plan: &RankPlan) -> Result<SizeRows> {
    let [inputs, outputs] = parts(call, place)?;
    let Some(ids) = &plan.size_ids else { return Ok(SizeRows::default()) };
    let n = u64::from(place.n_ranks);
    let factor = (plan.input_chunks.max(plan.output_chunks) / n.max(1)).max(1);
    let mut rows = SizeRows::default();
    for (is_input, parts, ids, offsets) in
        [(true, &inputs, &ids.input, &mut rows.input), (false, &outputs, &ids.output, &mut rows.output)]
    {
        for id in ids {
            let (owner, piece) = (id / factor, id % factor);
            let part = match call.function {
                Function::AllToAllV if is_input => owner % n,
                Function::AllToAllV => owner / n,
                _ if parts.0.len() == 1 => 0,
                _ => owner,
            };
            let (offset, bytes) = parts.0.get(part as usize).copied().unwrap_or_default();
            let elements = bytes / call.data_type.bytes();
            let (before, count) = share(elements, piece, factor);
            offsets.push(offset + before * call.data_type.bytes());
            rows.extents.insert(*id, count * call.data_type.bytes());
        }
    }
    // Where all counts are known, scratch may hold any part.
    if let Sizes::ByRank(counts) = call.sizes {
        for id in &ids.scratch {
            let count = counts.counts.get((id / factor) as usize).copied().unwrap_or(0);
            rows.extents.insert(*id, share(count, id % factor, factor).1 * call.data_type.bytes());
        }
    }
    Ok(rows)
}

/// Of `count` elements in `of` pieces: those before piece `at`, and those of it. The first pieces have one more where
/// they do not divide evenly.
fn share(count: u64, at: u64, of: u64) -> (u64, u64) {
    let (each, more) = (count / of, count % of);
    (at * each + at.min(more), each + u64::from(at < more))
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn pieces_follow_each_other_and_are_all() {
        for (count, of) in [(0, 1), (7, 1), (7, 3), (2, 5), (10, 5)] {
            let pieces: Vec<(u64, u64)> = (0..of).map(|at| share(count, at, of)).collect();
            let ends: Vec<u64> = pieces.iter().map(|(before, length)| before + length).collect();
            assert_eq!(pieces[0].0, 0);
            assert!(pieces[1..].iter().zip(&ends).all(|((before, _), end)| before == end), "{pieces:?}");
            assert_eq!(ends.last(), Some(&count));
        }
    }
}
