//! All-gathers of several hosts: a rank sends its input once to each other host, to the rank that serves it there.

use warpway_plan::{BuildError, CollectiveShape, Plan};

use super::lanes::Lanes;
use super::{PIECES, TRAITS};
use crate::algorithm::Algorithm;
use crate::catalogue::draft::{Draft, Parcel};
use crate::catalogue::fits;
use crate::task::{Function, Task};

pub(super) const ALGORITHMS: &[Algorithm] = &[
    Algorithm {
        name: "hierarchical",
        function: Function::AllGather,
        summary: "every rank sends its input to one rank of each other host, which passes it on there",
        traits: TRAITS,
        fits: fits::several_hosts,
        build: |task| build(task, "all_gather_hierarchical", 1),
    },
    Algorithm {
        name: "hierarchical_pipelined",
        function: Function::AllGather,
        summary: "as hierarchical, piece by piece, so that wire and memory work at the same time",
        traits: TRAITS,
        fits: fits::several_hosts,
        build: |task| build(task, "all_gather_hierarchical_pipelined", PIECES),
    },
];

fn build(task: &Task, name: &str, pieces: u32) -> Result<Plan, BuildError> {
    let lanes = Lanes::new(&task.world);
    let pieces = u64::from(pieces);
    let mut d = Draft::new(task, name, CollectiveShape::all_gather(task.world.n_ranks(), pieces))?;
    for me in 0..d.n() {
        let (near, servers, served) = (lanes.near(me), lanes.servers(me), lanes.served(me));
        let (input, output) = (d.p.input(me)?, d.p.output(me)?);
        let own = u64::from(me) * pieces;
        d.greet(me, &near)?;
        d.greet(me, &served)?;
        d.hear(me, &near)?;
        d.hear(me, &servers)?;
        for piece in 0..pieces {
            let mut parcels = Vec::with_capacity(servers.len());
            for server in &servers {
                let to = d.p.output(*server)?.chunk(own + piece..=own + piece)?;
                parcels.push(Parcel { to, from: input.chunk(piece..=piece)? });
            }
            d.send_far(me, &parcels)?;
        }
        d.copy_own(output.chunk(own..own + pieces)?, input.whole())?;
        let mut parcels = Vec::with_capacity(near.len());
        for peer in &near {
            let to = d.p.output(*peer)?.chunk(own..own + pieces)?;
            parcels.push(Parcel { to, from: input.whole() });
        }
        d.put_near(me, &parcels)?;
        for piece in 0..pieces {
            d.expect(me, &served)?;
            let mut parcels = Vec::new();
            for far in &served {
                let index = u64::from(*far) * pieces + piece;
                let from = output.chunk(index..=index)?;
                for peer in &near {
                    parcels.push(Parcel { to: d.p.output(*peer)?.chunk(index..=index)?, from });
                }
            }
            d.put_near(me, &parcels)?;
        }
        d.tell(me, &near)?;
        d.expect_last(me, &near)?;
        d.settle(me, &servers)?;
    }
    d.finish()
}
