//! Ranks on several hosts: played by host identities, so that the ranks share no memory and meet by TCP.

use std::time::Duration;

use warpway::plan::verify::VerifiedPlan;
use warpway::{Communicator, DataType, PreparedPlan, Result, in_process_with};
use warpway_tests::on_hosts;
use warpway_tests::suite::plans::{
    ELEMENTS, Message, between_hosts, in_random_order, launch, sized_between_hosts,
};

use crate::sized;

const LIMIT: Duration = Duration::from_secs(60);

fn prepare(comm: &Communicator, plans: &[VerifiedPlan]) -> Result<Vec<PreparedPlan>> {
    plans.iter().map(|plan| comm.prepare(plan)).collect()
}

fn every_size(hosts: &[u32], data_type: DataType) {
    let plans = between_hosts(hosts);
    in_process_with(&on_hosts(hosts, LIMIT), |comm| {
        let prepared = prepare(comm, &plans)?;
        for elements in ELEMENTS {
            for prepared in &prepared {
                launch(comm, prepared, &Message::new(elements, data_type))?;
            }
        }
        comm.barrier()
    })
    .unwrap();
}

#[test]
fn two_hosts_of_one_rank() {
    every_size(&[0, 1], DataType::Int32);
}

#[test]
fn two_hosts_of_two_ranks() {
    every_size(&[0, 0, 1, 1], DataType::Float16);
}

#[test]
fn three_hosts_of_two_ranks() {
    every_size(&[0, 0, 1, 1, 2, 2], DataType::Uint8);
}

#[test]
fn three_hosts_of_one_rank() {
    every_size(&[0, 1, 2], DataType::Bfloat16);
}

#[test]
fn megabytes() {
    let hosts = [0, 0, 1, 1];
    let plans = between_hosts(&hosts);
    in_process_with(&on_hosts(&hosts, LIMIT), |comm| {
        // In slices of 96 bytes it would take long.
        let prepared: Vec<PreparedPlan> =
            prepare(comm, &plans)?.into_iter().filter(|p| p.plan().name != "send_slices").collect();
        for elements in [1_000_003, 3, 700_001] {
            for prepared in &prepared {
                launch(comm, prepared, &Message::new(elements, DataType::Float32))?;
            }
        }
        comm.barrier()
    })
    .unwrap();
}

/// Scratch grows and is reused, records pass the end of their rings, ranks are late.
#[test]
fn plans_in_random_order() {
    for hosts in [&[0, 0, 1, 1][..], &[0, 1, 2]] {
        let plans = between_hosts(hosts);
        in_process_with(&on_hosts(hosts, LIMIT), |comm| in_random_order(comm, &plans, 7, 150)).unwrap();
    }
}

#[test]
fn counts_that_come_at_launch() {
    for hosts in [&[0, 1][..], &[0, 0, 1, 1], &[0, 0, 1, 2, 2]] {
        let plans = sized_between_hosts(hosts);
        in_process_with(&on_hosts(hosts, LIMIT), |comm| {
            let prepared = prepare(comm, &plans)?;
            for turn in 0..25 {
                for prepared in &prepared {
                    sized::launch(comm, prepared, turn)?;
                }
            }
            comm.barrier()
        })
        .unwrap();
    }
}
