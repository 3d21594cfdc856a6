//! Two ranks send data back and forth and say how long one way takes.
//!
//! ```sh
//! warpway launch -n 2 -- cargo run --release --example send_recv -- [bytes] [slices|registered] [batches] [iterations]
//! ```

use std::time::Instant;

use warpway::{Buffer, Communicator, Incoming, Outgoing};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let bytes: u64 = arguments.next().map_or(Ok(8), |text| text.parse())?;
    let registered = arguments.next().is_some_and(|way| way == "registered");
    let batches: usize = arguments.next().map_or(Ok(100), |text| text.parse())?;
    let iterations: u32 = arguments.next().map_or(Ok(1000), |text| text.parse())?;
    let comm = Communicator::from_env()?;
    anyhow::ensure!(comm.n_ranks() == 2, "two ranks take part");
    let mut samples = Vec::new();
    if registered {
        let buffers: [Buffer<u8>; 2] = [comm.alloc(bytes)?, comm.alloc(bytes)?];
        buffers[0].fill(comm.rank() as u8 + 1)?;
        buffers[1].fill(0xa5)?;
        for batch in 0..batches + 1 {
            let each = ping_pong(&comm, iterations, || (&buffers[0]).into(), &buffers[1])?;
            if batch > 0 {
                samples.push(each);
            }
        }
        let expected = vec![2 - comm.rank() as u8; bytes as usize];
        anyhow::ensure!(buffers[1].to_vec()? == expected, "wrong data");
    } else {
        let data = vec![comm.rank() as u8 + 1; bytes as usize];
        let mut come = vec![0xa5u8; bytes as usize];
        for batch in 0..batches + 1 {
            comm.barrier()?;
            let started = Instant::now();
            for _ in 0..iterations {
                if comm.rank() == 0 {
                    comm.send(&data, 1)?;
                    comm.recv(&mut come, 1)?;
                } else {
                    comm.recv(&mut come, 0)?;
                    comm.send(&data, 0)?;
                }
            }
            if batch > 0 {
                samples.push(started.elapsed().as_secs_f64() * 1e6 / f64::from(2 * iterations));
            }
        }
        anyhow::ensure!(come.iter().all(|byte| *byte == 2 - comm.rank() as u8), "wrong data");
    }
    samples.sort_by(f64::total_cmp);
    if comm.rank() == 0 {
        let median = samples[samples.len() / 2];
        println!("{bytes} bytes: {median:.3} us one way, {:.2} GB/s", bytes as f64 / median / 1e3);
    }
    Ok(())
}

fn ping_pong<'a>(
    comm: &Communicator,
    iterations: u32,
    data: impl Fn() -> Outgoing<'a>,
    come: &Buffer<u8>,
) -> warpway::Result<f64> {
    comm.barrier()?;
    let started = Instant::now();
    for _ in 0..iterations {
        if comm.rank() == 0 {
            comm.send(data(), 1)?;
            comm.recv(Incoming::from(come), 1)?;
        } else {
            comm.recv(Incoming::from(come), 0)?;
            comm.send(data(), 0)?;
        }
    }
    Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(2 * iterations))
}
